"""Watching one kind: what is there, what changed before the hub reads, and then what the hub tells."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.clock import Clock
from eventbus.errors import EventBusError, Expired
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata, ListOptions, WatchEvent, WatchEventType
from eventbus.store.changes import READ_COUNT, UNFINISHED, ChangeType, Versions, follows
from eventbus.store.hub import ChangeHub, ObjectChange, decode_change, plural_of
from eventbus.store.selection import Selection

T = TypeVar("T", bound=HasMetadata)

#: Changes that wait for a slow reader. One more, and the watch ends when they are read; the next goes on from there.
BUFFERED = 10_000
#: Seconds between two bookmarks; controllers written for Kubernetes give up after 70.
BOOKMARK_S = 60.0

_TOLD = {
    (False, True): WatchEventType.ADDED,
    (True, True): WatchEventType.MODIFIED,
    (True, False): WatchEventType.DELETED,
}


class Begin(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Where a watch begins: *after* these versions, once *items* have been told as ADDED."""

    after: Versions
    newest: Sequence[int]  #: the store's versions, read a moment ago
    items: tuple[T, ...] = ()
    told: bool = False  #: the end of *items* is to be told by a bookmark


class StoreWatch(Generic[T]):
    """Implements `eventbus.list_watch.Watch`: read by one thread, stopped by any.

    An object that leaves the selection arrives as DELETED, one that comes into it as ADDED. Ends when *timeout_s* is
    over, and when its reader is too slow; the next watch, from the last position, misses nothing either way. As long
    as what there was at the beginning is not told in full, that position is `UNFINISHED`, which leads to Expired.

    Raises: Expired, out of the iteration: changes were lost; list again. BusUnavailable: go on from the last position.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        client: Client,
        hub: ChangeHub,
        kind: Kind[T],
        options: ListOptions,
        begin: Begin[T],
        clock: Clock,
    ) -> None:
        self.kind = kind
        self._bus = bus
        self._client = client
        self._hub = hub
        self._selection: Selection[T] = Selection(kind, options)
        self._begin = begin
        self._clock = clock
        self._bookmarks = options.allow_bookmarks
        self._ends_at = None if options.timeout_s is None else clock.monotonic() + options.timeout_s
        self._bookmark_at = clock.monotonic() + BOOKMARK_S
        self._changed = threading.Condition()
        self._buffer: deque[ObjectChange] = deque()
        self._progress = list(begin.after.counters)
        self._position = list(begin.after.counters)
        self._bookmarked: tuple[int, ...] = ()
        self._finished = not begin.items  # all that there was has been told, as it was at _position
        # Of the objects told at the start those that were written while they were listed: their changes come again.
        oldest = min(begin.after.counters)
        self._told_at = {
            (found.metadata.namespace, found.metadata.name): version
            for found in begin.items
            if (version := int(found.metadata.resource_version)) > oldest
        }
        self._failure: EventBusError | None = None
        self._ended = False
        self._stopped = False
        # What there is at the beginning may be as new as *newest*, and is whole when all up to there is told.
        self._told_until = tuple(map(max, hub.attach(self, begin.newest), begin.newest))

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        yield from self._first_events()
        for partition, until in enumerate(self._told_until):
            yield from self._catch_up(partition, until)
        if not self._stopped:
            yield from self._end_of_first_events()
        while (change := self._next()) is not None:
            if isinstance(change, WatchEvent):
                yield change
            else:
                yield from self._seen(change)
        if self._bookmarks and not self._stopped and tuple(self._position) != self._bookmarked:
            yield self._bookmark()

    def stop(self) -> None:
        """See `Watch`."""
        self._stopped = True
        with self._changed:
            self._ended = True
            self._buffer.clear()
            self._changed.notify_all()
        self._hub.detach(self)

    def offer(self, partition: int, changes: Sequence[ObjectChange], version: int) -> None:
        """See `Subscriber`."""
        with self._changed:
            if self._ended:
                return
            if len(self._buffer) + len(changes) > BUFFERED:
                self._ended = True
            else:
                self._buffer += changes
                self._progress[partition] = version
            if changes or self._ended:
                self._changed.notify_all()

    def fail(self, error: EventBusError) -> None:
        """See `Subscriber`."""
        with self._changed:
            self._failure = self._failure or error
            self._ended = True
            self._changed.notify_all()

    def _first_events(self) -> Iterator[WatchEvent[T]]:
        last = len(self._begin.items)
        for number, found in enumerate(self._begin.items, 1):
            if self._stopped:
                return
            self._finished = number == last and self._begin.after.counters == tuple(self._begin.newest)
            yield WatchEvent(WatchEventType.ADDED, found, position=self._version())

    def _end_of_first_events(self) -> Iterator[WatchEvent[T]]:
        self._finished = True
        if self._begin.told:
            yield msgspec.structs.replace(self._bookmark(), initial_events_end=True)
        elif self._bookmarks and self._begin.items:
            yield self._bookmark()

    def _catch_up(self, partition: int, until: int) -> Iterator[WatchEvent[T]]:
        """What changed behind the watch's version, up to where the hub offers it."""
        key = self._bus.keys[partition].changes
        while (position := self._position[partition]) < until and not self._stopped:
            with redis_errors():
                reply: Any = self._client.execute_command("XREAD", "COUNT", READ_COUNT, "STREAMS", key, f"{position}-0")
            entries = reply[0][1] if reply else []
            if not entries:
                raise Expired(f"too old resource version: {position} ({until})")
            for entry_id, fields in entries:
                version = int(entry_id.partition(b"-")[0])
                if not follows(version, position):
                    raise Expired(f"too old resource version: {position} ({version})")
                if version > until:
                    return
                self._position[partition] = position = version
                if plural_of(fields) == self.kind.plural:
                    change = decode_change(self.kind, partition, version, fields)
                    if change is not None:
                        yield from self._told(change)

    def _next(self) -> ObjectChange | WatchEvent[T] | None:
        """The next change, a bookmark if one is due, or None at the end. Raises: the failure."""
        with self._changed:
            while True:
                if self._buffer:
                    return self._buffer.popleft()
                if self._failure is not None:
                    raise self._failure
                if not self._stopped:
                    self._position = [max(pair) for pair in zip(self._position, self._progress, strict=True)]
                now = self._clock.monotonic()
                if self._ended or (self._ends_at is not None and now >= self._ends_at):
                    return None
                if self._bookmarks and now >= self._bookmark_at:
                    self._bookmark_at = now + BOOKMARK_S
                    return self._bookmark()
                due = [at for at in (self._ends_at, self._bookmark_at if self._bookmarks else None) if at is not None]
                self._changed.wait(min(due) - now if due else None)

    def _seen(self, change: ObjectChange) -> Iterator[WatchEvent[T]]:
        if change.version > self._position[change.partition]:
            self._position[change.partition] = change.version
            yield from self._told(change)

    def _told(self, change: ObjectChange) -> Iterator[WatchEvent[T]]:
        found = cast("T", change.object)
        if self._told_at and change.version <= self._told_at.get((found.metadata.namespace, found.metadata.name), 0):
            return
        is_in = change.type is not ChangeType.DELETED and self._selection.matches(found)
        was_in = change.type is not ChangeType.ADDED and self._selection.matched(found, change.was)
        if is_in or was_in:
            yield WatchEvent(_TOLD[was_in, is_in], found, position=self._version())

    def _bookmark(self) -> WatchEvent[T]:
        self._bookmarked = tuple(self._position)
        return WatchEvent.bookmark(self._version())

    def _version(self) -> str:
        return str(Versions(self._position)) if self._finished else UNFINISHED


__all__ = ["BOOKMARK_S", "BUFFERED", "Begin", "StoreWatch"]
