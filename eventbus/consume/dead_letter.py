"""The dead letter: entries that no worker could handle, with the cause; list, replay or discard them.

`consumer.py` decides which entries are buried, `lua/bury.lua` buries them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import ReplayStatus
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusUnavailable, GroupMissing, NotFound, PoisonBatch
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event

PAGE = 100


class DeadEntry(msgspec.Struct, frozen=True):
    """One buried entry. *id* names it (`<partition>/<entry id>`), *body* is that of a stream entry.

    *why* is the external sink's reason for refusing it, "" if no sink refused it.
    """

    id: str
    time_ms: int
    group: str
    cause: str
    deaths: int
    body: bytes
    why: str = ""

    def events(self) -> list[Event]:
        """Return its events that can be decoded; often none: many are buried because they cannot be decoded."""
        try:
            batch = unpack_batch(self.body)
        except PoisonBatch:
            return []
        events: list[Event] = []
        for position, packed in enumerate(batch.events):
            try:
                events.append(unpack_event(packed, batch.uid(position)))
            except PoisonBatch:
                continue
        return events


class DeadLetter:
    """The dead letters of all partitions. One client; use it from one thread at a time."""

    def __init__(self, bus: Bus, client: Client) -> None:
        self._bus = bus
        self._client = client

    def list(self, *, group: str | None = None, cause: str | None = None) -> Iterator[DeadEntry]:
        """Yield every buried entry, oldest first within a partition, read in pages."""
        for partition, keys in enumerate(self._bus.keys):
            after = "-"
            while True:
                with redis_errors():
                    page: Any = self._client.xrange(keys.dead, after, "+", PAGE)
                for entry_id, fields in page:
                    entry = _entry(partition, entry_id, fields)
                    if group in (None, entry.group) and cause in (None, entry.cause):
                        yield entry
                if len(page) < PAGE:
                    break
                after = f"({page[-1][0].decode()}"

    def get(self, dead_id: str) -> DeadEntry:
        """Read one entry. Raises: NotFound."""
        partition, entry_id = self._parse(dead_id)
        with redis_errors():
            entries: Any = self._client.xrange(self._bus.keys[partition].dead, entry_id, entry_id)
        if not entries:
            raise _not_found(dead_id)
        return _entry(partition, *entries[0])

    def replay(self, dead_id: str) -> None:
        """Return the entry to the group that buried it; other groups do not read it again.

        A second replay raises NotFound. For an export (group `export:<sink>`), replay only asks for a retry; the entry
        leaves when the sink has the event's newest state.

        Raises: NotFound: replayed or discarded before.  BusUnavailable: the stream is full; try again later.
                GroupMissing: that group was deleted; the entry stays.
        """
        partition, entry_id = self._parse(dead_id)
        functions = self._bus.functions(self._client, partition)
        group = self.get(dead_id).group
        _, export, sink = group.partition("export:")
        if export:
            if not functions.export_retry(sink, entry_id):
                raise _not_found(dead_id)
            return
        answer = functions.replay(self._bus.options, entry_id)
        if answer is ReplayStatus.MISSING:
            raise _not_found(dead_id)
        if answer is ReplayStatus.NOGROUP:
            raise GroupMissing(
                f"dead/{dead_id} stays: group {group!r}, which buried it, is no more; start a worker of it, or discard"
            )
        if answer is ReplayStatus.FULL:
            raise BusUnavailable(f"the stream of partition {partition} is full; replay again once it has drained")

    def discard(self, dead_id: str) -> None:
        """Delete the entry for good; it is counted. Raises: NotFound."""
        partition, entry_id = self._parse(dead_id)
        if not self._bus.functions(self._client, partition).discard(entry_id):
            raise _not_found(dead_id)

    def _parse(self, dead_id: str) -> tuple[int, bytes]:
        partition, slash, entry_id = dead_id.partition("/")
        if not slash or not partition.isdecimal() or int(partition) >= self._bus.partitions:
            raise _not_found(dead_id)
        ms, _, sequence = entry_id.partition("-")
        if not (ms.isdecimal() and sequence.isdecimal()):
            raise _not_found(dead_id)
        return int(partition), entry_id.encode()


def _entry(partition: int, entry_id: bytes, fields: dict[bytes, bytes]) -> DeadEntry:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode("utf-8", "replace")

    deaths = text(b"deaths")
    return DeadEntry(
        id=f"{partition}/{entry_id.decode()}",
        time_ms=int(entry_id.split(b"-")[0]),
        group=text(b"group"),
        cause=text(b"cause"),
        deaths=int(deaths) if deaths.isdecimal() else 0,
        body=fields.get(b"b", b""),
        why=text(b"why"),
    )


def _not_found(dead_id: str) -> NotFound:
    return NotFound(f'dead entries "{dead_id}" not found', resource="dead", name=dead_id)
