"""The objects of one kind: read, written and watched with the rules and the words of the API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.functions import Functions
from eventbus.broker.keys import item_key, partition_of
from eventbus.broker.redis_errors import redis_errors
from eventbus.clock import Clock, SystemClock
from eventbus.errors import Expired, NotFound, PoisonBatch
from eventbus.event import ObjectReference
from eventbus.kinds import EVENT, Kind
from eventbus.list_watch import HasMetadata, ListOptions, ObjectList, VersionMatch
from eventbus.store.asked import check_list, check_watch
from eventbus.store.changes import Versions, read_versions
from eventbus.store.hub import ChangeHub
from eventbus.store.index import KEY_CHARS, bounds, members
from eventbus.store.items import decode_object
from eventbus.store.pages import Continue
from eventbus.store.selection import Selection
from eventbus.store.watch import Begin, StoreWatch

T = TypeVar("T", bound=HasMetadata)

#: Objects read at once.
PAGE = 500
_ANY_VERSION = ("", "0")


class StoredObjects(Generic[T]):
    """Reads one kind; implements `eventbus.list_watch.ListerWatcher`. One thread at a time, as its client.

    Writing is `ObjectWriter`'s.
    """

    def __init__(self, *, bus: Bus, client: Client, hub: ChangeHub, kind: Kind[T], clock: Clock | None = None) -> None:
        self.kind = kind
        self._bus = bus
        self._client = client
        self._hub = hub
        self._clock = clock or SystemClock()

    def get(self, name: str, namespace: str = "") -> T:
        """One object, as it is now.

        Raises: NotFound: worded as the API server does.
        Redis:  GET; of an event, which may lie in any partition, ZRANGE and GET on all of them, a round each.
        """
        found = self._find(namespace, name)[1]
        if found is None:
            raise NotFound(f'{self.kind.resource} "{name}" not found')
        return found

    def list(self, options: ListOptions | None = None) -> ObjectList[T]:
        """One page: see `ListerWatcher.list`. Order: by namespace and name within a partition.

        The version is read before the first page, so that a watch from it replays what changed meanwhile, later pages
        included. A list with EXACT is of one moment, or Expired: it can be had while nothing is written.

        Raises: InvalidSelector, InvalidObject: fix the question.  Expired, BusUnavailable.
        Redis:  HGET on meta, ZRANGE on an index and MGET, in pages.
        """
        options = options or ListOptions()
        selection: Selection[T] = Selection(self.kind, options)
        check_list(options)
        start = self._start(options)
        items: list[T] = []
        last, more = start, ""
        for partition, member, found in self._scan(selection, start, options.limit):
            if options.limit and len(items) == options.limit:
                more = str(last)
                break
            items.append(found)
            last = Continue(start.version, partition, member)
        if options.version_match is VersionMatch.EXACT and str(self._newest()) != start.version:
            raise Expired(f"The resource version for the provided list is too old: {start.version}")
        return ObjectList(tuple(items), start.version, more)

    def watch(self, options: ListOptions | None = None) -> StoreWatch[T]:
        """See `ListerWatcher.watch`. What the process watches shares one blocking read.

        Raises: InvalidSelector, InvalidObject: fix the question.
                Expired: the version is not one of this store, or is ahead of it.
        Redis:  HGET on meta; XREAD on changes for what is behind.
        """
        options = options or ListOptions()
        check_watch(options)
        version = options.resource_version
        initial = version in _ANY_VERSION or options.send_initial_events
        items: tuple[T, ...] = ()
        if initial:
            listed = msgspec.structs.replace(
                options, limit=0, continue_="", version_match=VersionMatch.UNSET, send_initial_events=False
            )
            found = self.list(listed)
            items, version = found.items, found.resource_version
        newest = self._newest()
        after = self._parse(version, newest)
        return StoreWatch(
            bus=self._bus,
            client=self._client,
            hub=self._hub,
            kind=self.kind,
            options=options,
            begin=Begin(after=after, newest=newest.counters, items=items, told=options.send_initial_events),
            clock=self._clock,
        )

    def _find(self, namespace: str, name: str) -> tuple[tuple[int, bytes], T | None]:
        """Where the object lies, partition and key, and the object."""
        if self.kind.type is EVENT.type:
            return self._find_event(namespace, name)
        place = self._place(namespace, name)
        with redis_errors():
            packed: Any = self._client.get(self._bus.keys[place[0]].object_of(self.kind.plural) + place[1])
        return place, self._decode(packed)

    def _place(self, namespace: str, name: str) -> tuple[int, bytes]:
        about = ObjectReference(kind=self.kind.name, namespace=namespace, name=name)
        return partition_of(about, self._bus.partitions), item_key(namespace, name)

    def _find_event(self, namespace: str, name: str) -> tuple[tuple[int, bytes], T | None]:
        low, high = bounds(f"{namespace}/{name}\0".encode("utf-8", "replace"))
        pipe: Any = self._client.pipeline(transaction=False)
        for keys in self._bus.keys:
            pipe.execute_command("ZRANGE", keys.index_name, low, high, "BYLEX", "LIMIT", 0, 1)
        with redis_errors():
            named: list[list[bytes]] = pipe.execute()
        for partition, found in enumerate(named):
            for member in found:
                key = member[-KEY_CHARS:]
                with redis_errors():
                    packed: Any = self._client.get(self._bus.keys[partition].object + key)
                if (event := self._decode(packed)) is not None:
                    return (partition, key), event
        return (0, b""), None

    def _start(self, options: ListOptions) -> Continue:
        """Where a page begins. Raises: Expired, InvalidObject."""
        newest = self._newest()
        if options.continue_:
            start = Continue.parse(options.continue_)
            known = Versions.parse(start.version, self._bus.partitions)
            if any(version < past for version, past in zip(newest.counters, known.counters, strict=True)):
                raise Expired("The provided continue parameter is too old to display a consistent list result.")
            return start
        asked = options.resource_version
        if asked not in _ANY_VERSION:
            self._parse(asked, newest)
            if options.version_match is VersionMatch.EXACT and str(newest) != asked:
                raise Expired(f"The resource version for the provided list is too old: {asked}")
        return Continue(str(newest), 0, b"")

    def _scan(self, selection: Selection[T], start: Continue, limit: int) -> Iterator[tuple[int, bytes, T]]:
        """What is selected, with partition and index member."""
        page = min(PAGE, limit + 1) if limit and selection.takes_all else PAGE
        which, prefix = selection.index()
        for partition in range(start.partition, self._bus.partitions):
            keys = self._bus.keys[partition]
            index = keys.index_object if which == "object" else keys.index_name_of(self.kind.plural)
            after = start.member if partition == start.partition else b""
            named = members(self._client, index, prefix, after=after, page=page)
            while chunk := list(islice(named, page)):
                for member, found in zip(chunk, self._load(partition, chunk), strict=True):
                    if found is not None and selection.matches(found):
                        yield partition, member, found

    def _load(self, partition: int, named: Iterable[bytes]) -> Sequence[T | None]:
        prefix = self._bus.keys[partition].object_of(self.kind.plural)
        with redis_errors():
            values: Any = self._client.mget([prefix + member[-KEY_CHARS:] for member in named])
        return [self._decode(value) for value in values]

    def _decode(self, packed: bytes | None) -> T | None:
        try:
            return decode_object(self.kind, packed)
        except PoisonBatch:
            return None

    def _newest(self) -> Versions:
        return Versions(read_versions(self._bus, self._client))

    def _parse(self, version: str, newest: Versions) -> Versions:
        """Raises: Expired: it is none of this store, or ahead of it: the store has lost what it was of."""
        parsed = Versions.parse(version, self._bus.partitions)
        if any(asked > there for asked, there in zip(parsed.counters, newest.counters, strict=True)):
            raise Expired(f"Too large resource version: {version}, current: {newest}")
        return parsed

    def _functions(self, partition: int) -> Functions:
        return self._bus.functions(self._client, partition)


__all__ = ["StoredObjects"]
