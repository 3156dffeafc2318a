"""Walks through stored events from the newest write to the oldest, for a page of the newest events.

The index of names is not ordered by time. The index of expiry is: an event expires a fixed time after its last write.
Events whose repeats were held back since then are in the index of refreshes, and come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import PoisonBatch
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.store.event_storage import EventStorage

#: Events read at once, of all partitions together.
PAGE: Final = 1000
#: Events marked for a refresh that are read first, of each partition.
MOST_REFRESHED: Final = 1000


class _Packed(NamedTuple):
    """A packed event; *order* grows with its age."""

    order: float
    partition: int
    key: bytes
    value: bytes


class NewestFirst:
    """One walk. *examined*: how many events it has looked at.

    Args: since: events written before are left out, also if repeats were held back since, unless a refresh is due.
          wanted: a test of an event's packed bytes; it saves decoding, which takes far longer.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        client: Client,
        since: datetime | None = None,
        wanted: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._bus = bus
        self._client = client
        self._wanted = wanted
        self._storage = EventStorage(kind=EVENT, bus=bus, client=client, remember=True)
        ttl_ms = bus.options.event_ttl_s * 1000
        self._least = b"-inf" if since is None else b"%d" % (int(since.timestamp() * 1000) + ttl_ms)
        self._page = max(20, PAGE // bus.partitions)
        self.examined = 0

    def events(self) -> Iterator[Event]:
        """Yield as `placed`, without the partitions."""
        return (event for _, event in self.placed())

    def placed(self) -> Iterator[tuple[int, Event]]:
        """Yield each event once, with its partition. One written meanwhile may be missing: a watch delivers it.

        Raises: BusUnavailable.
        Redis:  ZRANGE on index:refresh and index:expiry, MGET, in pages.
        """
        seen: set[tuple[int, bytes]] = set()
        for found in heapq.merge(*(self._partition(number) for number in self._storage.partitions)):
            if (found.partition, found.key) in seen:
                continue
            seen.add((found.partition, found.key))
            try:
                event = self._storage.decode(found.value)
            except PoisonBatch:
                continue
            if event is not None:
                yield found.partition, event

    def _partition(self, number: int) -> Iterator[_Packed]:
        keys = self._bus.keys[number]
        with redis_errors():
            refreshed: Any = self._client.zrange(keys.index_refresh, 0, MOST_REFRESHED - 1)
        yield from self._load(number, [(key, float("inf")) for key in refreshed])
        newest, passed = b"+inf", 0
        while True:
            with redis_errors():
                command = ("ZRANGE", keys.index_expiry, newest, self._least, "BYSCORE", "REV")
                raw: Any = self._client.execute_command(*command, "LIMIT", passed, self._page, "WITHSCORES")
            found = _scored(raw)
            yield from self._load(number, found)
            if len(found) < self._page:
                return
            # Continue at the last score, after the members that have it: an offset alone would shift with other writes.
            last = found[-1][1]
            same = sum(score == last for _, score in found)
            passed = passed + same if newest == b"%d" % last else same
            newest = b"%d" % last

    def _load(self, partition: int, found: Sequence[tuple[bytes, float]]) -> Iterator[_Packed]:
        if not found:
            return
        prefix, wanted = self._bus.keys[partition].object, self._wanted
        with redis_errors():
            values: Any = self._client.mget([prefix + key for key, _ in found])
        for (key, score), value in zip(found, values, strict=True):
            self.examined += 1
            if value is not None and (wanted is None or wanted(value)):
                yield _Packed(-score, partition, key, value)


def happened_in(event: Event, since: datetime | None, until: datetime | None) -> bool:
    """Return True if the event's time, from first to last, overlaps the period. None: no bound."""
    last = event.last_seen or datetime.min.replace(tzinfo=UTC)
    first = event.first_timestamp or event.event_time or last
    return (since is None or last >= since) and (until is None or first <= until)


def _scored(raw: Sequence[Any]) -> list[tuple[bytes, float]]:
    """Pair up a reply WITHSCORES: flat in RESP2, pairs in RESP3."""
    if raw and isinstance(raw[0], (list, tuple)):
        return [(key, float(score)) for key, score in raw]
    return [(key, float(score)) for key, score in zip(raw[::2], raw[1::2], strict=True)]
