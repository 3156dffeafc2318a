"""Reads the changes of events of all partitions for the notifier, no faster than it stores them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.notify.engine import Occurrence
from eventbus.store.changes import READ_COUNT, follow, read_versions
from eventbus.store.event_storage import EventStorage
from eventbus.store.scan import scan
from eventbus.store.storage import ChangeType
from eventbus.store.story.verdict import last_seen
from eventbus.util.log import log

BLOCK_MS: Final = 500
PAUSE_S: Final = 0.5
#: Batches that are read and not stored yet, of one thread.
AHEAD: Final = 2
#: Seconds between two checks for lost changes of quiet partitions.
CHECK_S: Final = 5.0


class Batch(NamedTuple):
    """Occurrences of *partition* up to *position*. Call *done* when they are stored. *position* None: more come."""

    partition: int
    occurrences: Sequence[Occurrence]
    position: int | None
    reader: Reader

    def done(self) -> None:
        """Let the reader go on."""
        self.reader.free.release()


class Reader:
    """One thread and connection that reads *positions*, and puts batches into *inbox*.

    If changes were lost, it lists the events that were written after its position instead.

    Args: since: for partitions without a position, the events last seen at this time or later are listed; seconds since
              1970, None: begin with the next change.
    Attributes: ready: set as soon as no change after this moment is missed.
    """

    def __init__(
        self,
        bus: Bus,
        positions: Mapping[int, int | None],
        inbox: SimpleQueue[Any],
        *,
        since: float | None = None,
    ) -> None:
        self.free = threading.Semaphore(AHEAD)
        self.ready = threading.Event()
        self.lists = 0
        self._bus = bus
        self._positions = dict(positions)
        self._inbox = inbox
        self._since = since
        self._starts: dict[int, int] = {}  #: by partition without a position, the version when it was read first
        self._stop = threading.Event()
        self._checked_at = 0.0
        name = f"eventbus-notify-read-{min(positions)}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stop.set()
        self.free.release()
        self._thread.join()

    def _run(self) -> None:
        client = self._bus.client(block_ms=BLOCK_MS, name="eventbus-notify-read")
        self._storage = EventStorage(kind=EVENT, bus=self._bus, client=client)
        try:
            while not self._stop.is_set():
                try:
                    self._turn(client)
                except EventBusError as error:
                    log.debug("reading changes waits: %s", error)
                    self._stop.wait(PAUSE_S)
                except Exception:
                    log.exception("reading changes goes on after an unexpected error")
                    self._stop.wait(PAUSE_S)
        finally:
            client.close()

    def _turn(self, client: Client) -> None:
        self._begin(client)
        known = {partition: position for partition, position in self._positions.items() if position is not None}
        keys = {self._bus.keys[partition].changes_of(EVENT.plural): partition for partition in known}
        after = [f"{position}-0" for position in known.values()]
        with redis_errors():
            reply: Any = client.execute_command(
                "XREAD", "COUNT", READ_COUNT, "BLOCK", BLOCK_MS, "STREAMS", *keys, *after
            )
        for key, entries in reply or ():
            partition = keys[key]
            found = follow(self._storage, partition, known[partition], entries)
            if found.version > known[partition]:
                occurrences = [
                    Occurrence(change.object, change.type is ChangeType.ADDED)
                    for change in found.changes
                    if change.type is not ChangeType.DELETED
                ]
                self._put(partition, occurrences, found.version)
            if found.lost is not None:
                self._list_lost(client, partition)
        if not reply or time.monotonic() - self._checked_at >= CHECK_S:
            self._checked_at = time.monotonic()
            self._check(client, {key: partition for key, partition in keys.items() if key not in dict(reply or ())})

    def _check(self, client: Client, quiet: Mapping[bytes, int]) -> None:
        """Find changes that were lost and that no later change reveals. See `Feed`."""
        partitions = list(quiet.values())
        for partition, version in zip(
            partitions, read_versions(self._bus, client, EVENT.plural, partitions), strict=True
        ):
            position = self._positions[partition] or 0
            if version == position:
                continue
            key = self._bus.keys[partition].changes_of(EVENT.plural)
            with redis_errors():
                more: Any = client.execute_command("XREAD", "COUNT", 1, "STREAMS", key, f"{position}-0")
            if not more:
                self._list_lost(client, partition)

    def _begin(self, client: Client) -> None:
        missing = [partition for partition, position in self._positions.items() if position is None]
        unread = [partition for partition in missing if partition not in self._starts]
        if unread:
            self._starts |= zip(unread, read_versions(self._bus, client, EVENT.plural, unread), strict=True)
        self.ready.set()
        since = self._since
        for partition in missing:
            if since is not None:
                self._list(client, partition, lambda event: last_seen(event).timestamp() >= since)
            self._put(partition, [], self._starts[partition])

    def _list_lost(self, client: Client, partition: int) -> None:
        position = self._positions[partition] or 0
        (newest,) = read_versions(self._bus, client, EVENT.plural, [partition])
        log.warning("changes after %d of partition %d are gone: events are listed", position, partition)
        if newest > position:
            self._list(client, partition, lambda event: int(event.metadata.resource_version or 0) > position)
        self._put(partition, [], newest)

    def _list(self, client: Client, partition: int, wanted: Any) -> None:
        self.lists += 1
        for events in self._pages(client, partition):
            if occurrences := [Occurrence(event, True) for event in events if wanted(event)]:
                self._put(partition, occurrences, None)

    def _pages(self, client: Client, partition: int) -> Iterator[list[Event]]:
        index = (self._bus.keys[partition].index_name, b"")
        for page in scan(self._bus, client, self._storage, partition, index, ahead=False):
            yield [event for _, event in page]

    def _put(self, partition: int, occurrences: Sequence[Occurrence], position: int | None) -> None:
        if self._stop.is_set() or not self.free.acquire() or self._stop.is_set():
            return
        self._inbox.put(Batch(partition, occurrences, position, self))
        if position is not None:
            self._positions[partition] = position
