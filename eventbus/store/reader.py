"""Reads and watches the objects of one kind, with the rules and error messages of the API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import Expired
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, VersionMatch, WatchEvent
from eventbus.store.change_hub import Hub
from eventbus.store.changes import AheadOfStore, Change, ChangeReader, Versions, read_versions
from eventbus.store.event_storage import EventStorage
from eventbus.store.list_options import Continue, check_list, check_watch
from eventbus.store.scan import PAGE, bounds, scan
from eventbus.store.selection import Selection, selection_of
from eventbus.store.storage import ObjectStorage, Storage, not_found
from eventbus.store.watch import CatchUp, Idle, WatchStart, WatchState
from eventbus.util.clock import Clock, SystemClock

T = TypeVar("T", bound=HasMetadata)

_ANY_VERSION = ("", "0")


class ObjectReader(Generic[T]):
    """Reads one kind; implements `model.list_watch.ListerWatcher`. Use it from one thread at a time, as its client.

    Writing is `eventbus.store.writer.ObjectWriter`'s.

    Args: remember: keep decoded events for the next list; for servers.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        client: Client,
        hub: Hub,
        kind: Kind[T],
        clock: Clock | None = None,
        remember: bool = False,
    ) -> None:
        self.kind = kind
        self._bus = bus
        self._client = client
        self._hub = hub
        self._clock = clock or SystemClock()
        self._storage = _open_storage(kind, bus, client, remember=remember)

    @property
    def partitions(self) -> int:
        """Return the number of counters in a version of this kind."""
        return len(self._storage.partitions)

    def get(self, name: str, namespace: str = "") -> T:
        """Read the newest state of one object.

        Raises: NotFound: with the API server's message.
        Redis:  GET; for an event, which may lie in any partition, also ZRANGE on each partition and a second GET.
        """
        stored = self._storage.find(namespace, name)
        if stored is None:
            raise not_found(self.kind, name)
        return stored.object

    def list(self, options: ListOptions | None = None) -> ObjectList[T]:
        """Read one page: see `ListerWatcher.list`. Order: by namespace and name within a partition.

        The version is read before the first page, so that a watch from it returns every later change. A list with EXACT
        is consistent, or raises Expired if there were writes meanwhile.

        Raises: InvalidSelector, InvalidObject: correct the options.  Expired, BusUnavailable.
        Redis:  GET on version, ZRANGE on an index and MGET, in pages; ZLEXCOUNT unless the page is the last.
        """
        options = options or ListOptions()
        selection: Selection[T] = Selection(self.kind, options)
        check_list(options)
        start = self._start(options)
        items: list[T] = []
        last, more = start, ""
        for partition, page in self._scan(selection, start, options.limit):
            taken = page[: options.limit - len(items)] if options.limit else page
            items += [obj for _, obj in taken]
            if taken:
                last = Continue(start.version, partition, taken[-1][0])
            if len(taken) < len(page):
                more = str(last)
                break
            if taken and len(items) == options.limit and not selection.takes_all:
                # The next page may be empty, as in the API server: finding out could read the whole store.
                more = str(last) if self._count_after(selection, last) else ""
                break
        if options.version_match is VersionMatch.EXACT and str(self.newest()) != start.version:
            raise Expired(f"The resource version for the provided list is too old: {start.version}")
        left = self._count_after(selection, last) if more and selection.takes_all else None
        return ObjectList(tuple(items), start.version, more, left)

    def watch(self, options: ListOptions | None = None) -> StoreWatch[T]:
        """Begin to watch: see `ListerWatcher.watch`. The watches of a kind in one process share one blocking read.

        Raises: InvalidSelector, InvalidObject: correct the options.
                Expired: the version is not one of this store, or is ahead of it.
        Redis:  GET on version; XREAD on changes to catch up.
        """
        return StoreWatch(self, options or ListOptions(), self._clock)

    def open_watch(self, options: ListOptions, ready: Callable[[], None]) -> WatchState[T]:
        """Begin a watch without a thread: see `WatchState`. Otherwise as `watch`.

        `close_watch` ends it."""
        check_watch(options)
        selection = selection_of(self.kind, options.namespace, options.label_selector, options.field_selector)
        version = options.resource_version
        items: tuple[T, ...] = ()
        item_versions: tuple[int, ...] = ()
        sends = version in _ANY_VERSION if options.send_initial_events is None else options.send_initial_events
        if sends:
            listed = msgspec.structs.replace(
                options, limit=0, continue_="", version_match=VersionMatch.UNSET, send_initial_events=None
            )
            items, item_versions, version = self._list_first(listed)
        newest = self.newest()
        after = newest if version in _ANY_VERSION else self._parse(version, newest)
        state = WatchState(
            selection=selection,
            options=options,
            start=WatchStart(
                after=after,
                newest=newest.counters,
                items=items,
                item_versions=item_versions,
                marks_end=bool(options.send_initial_events and options.allow_bookmarks),
            ),
            now=self._clock.monotonic(),
            ready=ready,
        )
        offered = self._hub.attach(state, self._storage, newest.counters)
        # The initial objects may be as new as *newest*, so the list is complete after all changes up to it.
        state.starts_at(self._path(after.counters, tuple(map(max, offered, newest.counters))))
        return state

    def close_watch(self, state: WatchState[T]) -> None:
        """End a watch of `open_watch`. Thread-safe, idempotent."""
        state.stop()
        self._hub.detach(state, self.kind)

    def read_changes(self, request: CatchUp) -> tuple[Sequence[Change[T]], int]:
        """Read some of the changes that a watch requests, and return them with the last version read.

        Raises: Expired: they are gone.  BusUnavailable: call again.
        Redis:  XREAD on changes.
        """
        reader = ChangeReader(
            bus=self._bus,
            client=self._client,
            storage=self._storage,
            partition=request.partition,
            after=request.after,
        )
        changes = reader.read()
        if reader.after == request.after:
            raise Expired(f"too old resource version: {request.after} ({request.until})")
        return changes, reader.after

    def versioned(self, placed: Iterable[tuple[int, T]]) -> Sequence[T]:
        """Return the objects of *placed*, pairs of partition and object, with the versions of this reader's lists."""
        return [obj for _, obj in placed]

    def expect(self, version: str) -> None:
        """Check that the store has reached *version*. Raises: AheadOfStore.  Redis: GET on version."""
        self._parse(version, self.newest())

    def newest(self) -> Versions:
        """Read the version of the kind's last change."""
        return Versions(read_versions(self._bus, self._client, self.kind.plural, self._storage.partitions))

    def _list_first(self, options: ListOptions) -> tuple[tuple[T, ...], tuple[int, ...], str]:
        """Return the initial objects of a watch, their versions in the store, and the version of the list.

        The oldest change comes first: a watcher that is cut off continues from its last object and misses none.
        """
        listed = self.list(options)
        items = tuple(sorted(listed.items, key=_version_of))
        return items, tuple(map(_version_of, items)), listed.resource_version

    def _path(self, after: Sequence[int], until: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the versions that a watch passes from *after* to *until*, which is the last of them."""
        return (until,)

    def _start(self, options: ListOptions) -> Continue:
        """Return where the page begins. Raises: Expired, InvalidObject."""
        newest = self.newest()
        if options.continue_:
            start = Continue.parse(options.continue_)
            known = Versions.parse(start.version, len(newest.counters))
            if any(version < past for version, past in zip(newest.counters, known.counters, strict=True)):
                raise Expired("The provided continue parameter is too old to display a consistent list result.")
            return start
        requested = options.resource_version
        if requested not in _ANY_VERSION:
            self._parse(requested, newest)
            if options.version_match is VersionMatch.EXACT and str(newest) != requested:
                raise Expired(f"The resource version for the provided list is too old: {requested}")
        return Continue(str(newest), 0, b"")

    def _scan(
        self, selection: Selection[T], start: Continue, limit: int
    ) -> Iterator[tuple[int, Sequence[tuple[bytes, T]]]]:
        """Yield the selected objects with their index members, in pages, each with its partition."""
        # Read one object more than requested, to know whether there are more.
        page = min(PAGE, limit) + 1 if limit and selection.takes_all else PAGE
        for partition in self._storage.partitions:
            if partition < start.partition:
                continue
            after = start.member if partition == start.partition else b""
            index = self._storage.index(partition, selection)
            pages = scan(
                self._bus, self._client, self._storage, partition, index, after=after, page=page, ahead=not limit
            )
            for entries in pages:
                # The prefix of the index contains the namespace.
                yield (
                    partition,
                    entries if selection.takes_all else [entry for entry in entries if selection.matches(entry[1])],
                )

    def _count_after(self, selection: Selection[T], last: Continue) -> int:
        """Count the objects in the indexes after a page that ends with *last*."""
        pipe: Any = self._client.pipeline(transaction=False)
        for partition in self._storage.partitions:
            if partition >= last.partition:
                key, prefix = self._storage.index(partition, selection)
                low, high = bounds(prefix)
                pipe.zlexcount(key, b"(" + last.member if partition == last.partition and last.member else low, high)
        with redis_errors():
            counts: list[int] = pipe.execute()
        return sum(counts)

    def _parse(self, version: str, newest: Versions) -> Versions:
        """Parse *version*.

        Raises: InvalidObject: it is not a version.  Expired: it is not a version of this store.
                AheadOfStore: the store is older than *version*, for example because it has lost changes.
        """
        parsed = Versions.parse(version, len(newest.counters))
        if any(requested > there for requested, there in zip(parsed.counters, newest.counters, strict=True)):
            raise AheadOfStore(version, str(newest))
        return parsed


class StoreWatch(Generic[T]):
    """Iterates over a `WatchState`, and blocks while it is idle; implements `eventbus.model.list_watch.Watch`.

    One thread reads it, any thread may stop it.

    Raises: Expired, out of the iteration: changes were lost; list again.
            BusUnavailable: watch again from the last position.
    """

    def __init__(self, reader: ObjectReader[T], options: ListOptions, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._ready = threading.Event()
        self._state = reader.open_watch(options, self._ready.set)

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        while True:
            self._ready.clear()
            now = self._clock.monotonic()
            step = self._state.next(now)
            if step is None:
                return
            if isinstance(step, WatchEvent):
                yield step
            elif isinstance(step, Idle):
                self._ready.wait(None if step.until is None else max(0.0, step.until - now))
            else:
                self._state.caught_up(*self._reader.read_changes(step))

    def stop(self) -> None:
        """See `Watch`."""
        self._reader.close_watch(self._state)


def _open_storage(kind: Kind[T], bus: Bus, client: Client, *, remember: bool) -> Storage[T]:
    """Return the storage of *kind*."""
    if kind.plural == EVENTS:
        events = EventStorage(kind=cast("Kind[Any]", kind), bus=bus, client=client, remember=remember)
        return cast("Storage[T]", events)
    return ObjectStorage(kind=kind, bus=bus, client=client)


def _version_of(obj: HasMetadata) -> int:
    return int(obj.metadata.resource_version)
