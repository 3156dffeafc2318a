"""Finds stored events: about objects, the newest first, and by a search for text, selectors and time.

The index of names is not ordered by time. The index of expiry is: an event expires a fixed time after its last write.
Events with repeats that were suppressed since then are in the index of refreshes, and come first.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.calls import PendingCalls
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import ID_CHARS, Keys
from eventbus.broker.redis_errors import redis_errors
from eventbus.client.connection import ApiConnection
from eventbus.client.numbers import fetch
from eventbus.errors import BusUnavailable, InvalidEvent
from eventbus.model.encoding.event_json import from_core, micros_to_json
from eventbus.model.event import Event, Instant, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.model.selectors import FieldSelector
from eventbus.store.event_storage import EventStorage
from eventbus.store.reader import ObjectReader
from eventbus.store.scan import bounds, scan
from eventbus.store.selection import Selection
from eventbus.store.storage import decode_or_none

#: Most events that are read about one object.
MOST_ABOUT: Final = 5_000


def read_events_about(bus: Bus, client: Client, objects: Sequence[ObjectReference]) -> list[list[Event]]:
    """Return, for each of *objects*, the events about it; see `read_placed_about`."""
    return [[event for _, event in placed] for placed in read_placed_about(bus, client, objects)]


def read_placed_about(bus: Bus, client: Client, objects: Sequence[ObjectReference]) -> list[list[tuple[int, Event]]]:
    """Return, for each of *objects*, the events about it, each with its partition.

    An object needs kind (in any case), name and namespace.

    Raises: BusUnavailable.
    Redis:  ZRANGE on index:object of each object and partition in one round, then MGET on objects of each partition.
    """
    storage = EventStorage(kind=EVENT, bus=bus, client=client, remember=True)
    pipe: Any = client.pipeline(transaction=False)
    for partition in storage.partitions:
        for about in objects:
            index, prefix = storage.index_about(partition, about.namespace or "default", about.kind, about.name)
            pipe.execute_command("ZRANGE", index, *bounds(prefix), "BYLEX", "LIMIT", 0, MOST_ABOUT)
    with redis_errors():
        replies = pipe.execute()
    placed: list[list[tuple[int, Event]]] = [[] for _ in objects]
    for partition in storage.partitions:
        here = replies[partition * len(objects) : (partition + 1) * len(objects)]
        keys = [(which, member[-ID_CHARS:]) for which, members in enumerate(here) for member in members]
        if not keys:
            continue
        with redis_errors():
            values: Any = client.mget([bus.keys[partition].object + key for _, key in keys])
        for (which, _), packed in zip(keys, values, strict=True):
            event, namespace = decode_or_none(storage, packed), objects[which].namespace
            # An event in `default` may be about another object, one without a namespace.
            if event and event.involved_object.namespace in ("", namespace, namespace or "default"):
                placed[which].append((partition, event))
    return placed


#: Events read at once, of all partitions together.
PAGE: Final = 1000
#: Pages in one round trip of a long walk, so that it waits less often. The first two have one, as most walks end there.
MOST_PAGES: Final = 4
#: Events marked for a refresh that are read first, of each partition.
MOST_REFRESHED: Final = 1000


class _Packed(NamedTuple):
    """A packed event; *order* grows with its age."""

    order: float
    partition: int
    key: bytes
    value: bytes


class NewestFirst:
    """A walk from the newest write to the oldest. *examined*: the number of events that it has read.

    Args: since: without events written before, even if repeats were suppressed since, unless a refresh is due.
          wanted: a test of the packed bytes of an event, which is much faster than decoding.
          part: a part of the packed bytes of all wanted events, in lower case; b"": unknown. A page is searched for it
            at once, because a call of *wanted* for each event takes ten times as long.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        client: Client,
        since: datetime | None = None,
        wanted: Callable[[bytes], bool] | None = None,
        part: bytes = b"",
    ) -> None:
        self._bus = bus
        self._client = client
        self._wanted = wanted
        self._part = part
        self._storage = EventStorage(kind=EVENT, bus=bus, client=client, remember=True)
        ttl_ms = bus.options.event_ttl_s * 1000
        self._least = b"-inf" if since is None else b"%d" % (int(since.timestamp() * 1000) + ttl_ms)
        self._page = max(20, PAGE // bus.partitions)
        self.examined = 0

    def events(self) -> Iterator[Event]:
        """Yield the events of `placed`."""
        return (event for _, event in self.placed())

    def placed(self) -> Iterator[tuple[int, Event]]:
        """Yield each event once, with its partition. Events written meanwhile may be missing: a watch delivers them.

        Raises: BusUnavailable.
        Redis:  ZRANGE on index:refresh and index:expiry, MGET, in pages.
        """
        seen: set[tuple[int, bytes]] = set()
        for stored in heapq.merge(*(self._partition(number) for number in self._storage.partitions)):
            if (stored.partition, stored.key) in seen:
                continue
            seen.add((stored.partition, stored.key))
            if event := decode_or_none(self._storage, stored.value):
                yield stored.partition, event

    def _partition(self, number: int) -> Iterator[_Packed]:
        keys = self._bus.keys[number]
        with redis_errors():
            refreshed: Any = self._client.zrange(keys.index_refresh, 0, MOST_REFRESHED - 1)
            values: Any = self._client.mget([keys.object + key for key in refreshed]) if refreshed else []
            raw: Any = self._client.execute_command(*self._range(keys, b"+inf", 0, 1))
        yield from self._wanted_of(number, refreshed, [float("inf")] * len(refreshed), values)
        newest, passed, pages, (members, scores) = b"+inf", 0, 1, _scored(raw)
        pending: PendingCalls | None = None
        try:
            while members or pending is not None:
                # Request the next pages before these are decoded and used.
                read, read_scores, current = members, scores, pending
                pending = None
                if current is not None:
                    replies = current.replies()
                    parts = replies[: -(-len(read) // self._page)]
                    members, scores = _scored(replies[-1]) if len(replies) > len(parts) else ([], [])
                if members:
                    objects = [
                        ("MGET", *map(keys.object.__add__, members[start : start + self._page]))
                        for start in range(0, len(members), self._page)
                    ]
                    if len(members) < pages * self._page:
                        pending = PendingCalls(self._client, *objects)
                    else:
                        # Continue after the last score and its members: other writes would shift a plain offset.
                        last = b"%d" % scores[-1]
                        same = scores.count(scores[-1])
                        newest, passed = last, passed + same if newest == last else same
                        pages = min(2 * pages, MOST_PAGES) if current is not None else 1
                        pending = PendingCalls(self._client, *objects, self._range(keys, newest, passed, pages))
                if current is not None:
                    yield from self._wanted_of(number, read, read_scores, list(chain.from_iterable(parts)))
        finally:
            if pending is not None:
                pending.drain()

    def _range(self, keys: Keys, newest: bytes, passed: int, pages: int) -> tuple[Any, ...]:
        command = ("ZRANGE", keys.index_expiry, newest, self._least, "BYSCORE", "REV")
        return (*command, "LIMIT", passed, pages * self._page, "WITHSCORES")

    def _wanted_of(
        self, partition: int, members: Sequence[bytes], scores: Sequence[float], values: Sequence[bytes | None]
    ) -> Iterator[_Packed]:
        self.examined += len(members)
        wanted = self._wanted
        for place in places_of(self._part, values) if self._part else range(len(values)):
            value = values[place]
            if value is not None and (wanted is None or wanted(value)):
                yield _Packed(-scores[place], partition, members[place], value)


def places_of(part: bytes, values: Sequence[bytes | None]) -> Iterator[int]:
    """Yield the places of the *values* with *part*, in lower case, and few others: those that have its beginning."""
    whole = b"".join([value or b"" for value in values]).lower()
    found = whole.find(part)
    if found < 0:
        return
    ends = list(accumulate([len(value or b"") for value in values]))
    while found >= 0:
        place = bisect_right(ends, found)
        yield place
        found = whole.find(part, ends[place])


def happened_in(event: Event, since: datetime | None, until: datetime | None) -> bool:
    """Return True if the event's time, from first to last, overlaps the period. None: no bound."""
    last = event.last_seen or datetime.min.replace(tzinfo=UTC)
    first = event.first_timestamp or event.event_time or last
    return (since is None or last >= since) and (until is None or first <= until)


def _scored(raw: Sequence[Any]) -> tuple[Sequence[bytes], Sequence[float]]:
    """Return the members and scores of a reply WITHSCORES: flat in RESP2, pairs in RESP3."""
    if raw and isinstance(raw[0], (list, tuple)):
        return [key for key, _ in raw], [float(score) for _, score in raw]
    return raw[::2], list(map(float, raw[1::2]))


_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a search. *text*: words; all of them must occur, in any field and case.

    *namespace*: "" is all, or, if there are *namespaces*, each of these.
    """

    namespace: str = ""
    namespaces: frozenset[str] = frozenset()
    label_selector: str = ""
    field_selector: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 500


class SearchResult(msgspec.Struct, frozen=True):
    """The events found, last seen first. *more*: there are others. *begins*: events that ended before have expired."""

    items: tuple[Event, ...]
    resource_version: str
    more: bool
    examined: int
    begins: datetime


def search_events(bus: Bus, client: Client, events: ObjectReader[Event], search: Search) -> SearchResult:
    """Find the newest events. The version is read first, so that a watch from it delivers every later change.

    If more than *limit* match, those written last are taken, or, of a namespace with few events, those last seen. The
    result is sorted by last seen.

    Raises: InvalidSelector: correct the search.  BusUnavailable.
    Redis:  GET on version; see `_read_few` and `NewestFirst`.
    """
    version = str(events.newest())
    options = ListOptions(
        namespace=search.namespace, label_selector=search.label_selector, field_selector=search.field_selector
    )
    selection: Selection[Event] = Selection(EVENT, options)
    words = search.text.lower().split()
    wanted, part = _prefilter(search, words)
    walk = NewestFirst(bus=bus, client=client, since=search.since, wanted=wanted, part=part)
    few = _read_few(bus, client, selection) if selection.namespace else None
    placed: list[tuple[int, Event]] = []
    more = False
    for partition, event in walk.placed() if few is None else few:
        if search.namespaces and event.metadata.namespace not in search.namespaces:
            continue
        if selection.matches(event) and happened_in(event, search.since, search.until) and _has_words(event, words):
            if len(placed) == search.limit:
                more = True
                break
            placed.append((partition, event))
    items = sorted(events.versioned(placed), key=lambda event: event.last_seen or _NO_TIME, reverse=True)
    begins = datetime.now(UTC) - timedelta(seconds=bus.options.event_ttl_s)
    return SearchResult(tuple(items), version, more, walk.examined if few is None else len(few), begins)


#: Events of a namespace or about an object that are read without a walk over all events.
FEW: Final = 2_000


def _read_few(bus: Bus, client: Client, selection: Selection[Event]) -> list[tuple[int, Event]] | None:
    """Return all events that the best index of *selection* has, the one last seen first; None: more than `FEW`.

    Redis: ZLEXCOUNT on the index of each partition in one round, then as `scan`.
    """
    storage = EventStorage(kind=EVENT, bus=bus, client=client, remember=True)
    pipe: Any = client.pipeline(transaction=False)
    for partition in storage.partitions:
        index, prefix = storage.index(partition, selection)
        pipe.zlexcount(index, *bounds(prefix))
    with redis_errors():
        counts = pipe.execute()
    if sum(counts) > FEW:
        return None
    placed = [
        (partition, event)
        for partition, count in zip(storage.partitions, counts, strict=True)
        if count
        for page in scan(bus, client, storage, partition, storage.index(partition, selection))
        for _, event in page
    ]
    return sorted(placed, key=lambda entry: entry[1].last_seen or _NO_TIME, reverse=True)


def _has_words(event: Event, words: Sequence[str]) -> bool:
    """Return True if each of *words*, in lower case, is part of one of the event's texts."""
    if not words:
        return True
    about, related = event.involved_object, event.related
    texts = [
        *(event.reason, event.message, event.type, event.action, event.metadata.name),
        *(
            f"{event.metadata.namespace}/{about.kind}/{about.name}",
            about.namespace,
            about.uid,
            about.field_path,
            about.api_version,
        ),
        *(event.source.component, event.source.host, event.reporting_component, event.reporting_instance),
        *(f"{key}={value}" for key, value in event.metadata.labels.items()),
        *(f"{key}={value}" for key, value in event.metadata.annotations.items()),
    ]
    if related is not None:
        texts.append(f"{related.kind}/{related.name}")
    whole = "\n".join(texts).lower()
    return all(word in whole for word in words)


def _prefilter(search: Search, words: Sequence[str]) -> tuple[Callable[[bytes], bool] | None, bytes]:
    """Return a fast test of packed bytes that accepts every event of the search, and few others; and a part of all."""
    terms = FieldSelector.parse(search.field_selector, EVENT.fields).terms
    exact = [term.value.encode() for term in terms if not term.negated and _is_unescaped(term.value)]
    # The packed bytes hold the parts of kind/name and key=value, not the whole.
    parts = {part for word in words for part in re.split("[/=]", word)}
    loose = [part.encode() for part in parts if _is_unescaped(part)]
    if not exact and not loose:
        return None, b""

    def wanted(packed: bytes) -> bool:
        # Loops: a generator for each event would take longer than the search.
        for value in exact:
            if value not in packed:
                return False
        if loose:
            lower = packed.lower()
            for word in loose:
                if word not in lower:
                    return False
        return True

    return wanted, max((*loose, *(value.lower() for value in exact)), key=len)


def _is_unescaped(value: str) -> bool:
    """Return True if packed bytes contain this value unchanged: it is not "", and JSON does not escape it."""
    return value.isascii() and value.isprintable() and bool(value) and not {'"', "\\", "/"} & set(value)


class _Found(msgspec.Struct, frozen=True, rename="camel"):
    """The reply of an API worker."""

    resource_version: str
    more: bool
    examined: int
    begins: Instant
    items: list[dict[str, Any]]


def fetch_search(connection: ApiConnection, search: Search) -> SearchResult:
    """As `search_events`, without *namespaces*. Raises: BusUnavailable, BusRefused."""
    query = {
        "namespace": search.namespace,
        "labelSelector": search.label_selector,
        "fieldSelector": search.field_selector,
        "q": search.text,
        "since": micros_to_json(search.since),
        "until": micros_to_json(search.until),
        "limit": search.limit,
    }
    path = f"/eventbus/v1/events?{urlencode({name: value for name, value in query.items() if value})}"
    found = fetch(connection, path, _Found)
    try:
        items = tuple(map(from_core, found.items))
    except InvalidEvent as error:
        raise BusUnavailable(f"{connection.address} answered in the form of another version: {error}") from None
    return SearchResult(items, found.resource_version, found.more, found.examined, found.begins)
