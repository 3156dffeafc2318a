"""Reads the story of one object from the store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.kinds import KINDS
from eventbus.store.events_about import read_events_about, read_placed_about
from eventbus.store.newest import NewestFirst, happened_in
from eventbus.store.occurrences import read_minutes
from eventbus.store.reader import ObjectReader
from eventbus.store.story.relations import Relations
from eventbus.store.story.rhythm import Rhythm, repeated, rhythms_of, words_of
from eventbus.store.story.story import Around, Link, Story, hosts_of, start_of
from eventbus.store.story.verdict import Verdict, first_seen, verdict_of

#: An event with its partition.
_Placed: TypeAlias = tuple[int, Event]

#: Reasons of changes on the same host: starts, installs, edits.
_CHANGES: Final = re.compile(
    r"^(Start|Creat|Install|Upgrad|Remov|Upda|Chang|Config|Deploy|Scal|Restart|Reboot|Kill|Pull|Sched|Dele|Reload"
    r"|Roll|Mount|Attach|Apply|Appli|Evict|Drain|Cordon|Successful|Replac|Renew)",
    re.IGNORECASE,
)
#: Reasons of starts. Starts of several objects of a kind within `TOGETHER` become one entry.
_STARTS: Final = re.compile(r"^(Start|Creat|Pull|Sched)", re.IGNORECASE)
TOGETHER: Final = timedelta(seconds=2)
#: The namespace of events that workers record about themselves, and the component of `eventbus up`.
OWN_NAMESPACE: Final = "eventbus-system"
_UP: Final = "eventbus-up"
#: The component of events that an agent records about its node, and the time that `up` takes to start its agent.
_AGENT: Final = "eventbus-agent"
_UP_STARTS_WITHIN: Final = timedelta(seconds=30)
#: The period before and after the first Warning in which other events are searched.
BEFORE: Final = timedelta(minutes=10)
_AFTER: Final = timedelta(minutes=1)
#: Most entries of one link; the nearest to the Warning are kept.
MOST_OF_A_LINK: Final = 20
#: Most events that are examined, the newest first; on a busy bus the oldest are missing.
MOST_READ: Final = 5_000


def read_story(
    bus: Bus,
    client: Client,
    about: ObjectReference,
    *,
    before: timedelta = BEFORE,
    system: bool = False,
    reader: ObjectReader[Event] | None = None,
) -> Story:
    """Read the events and relations of *about*, and the events around its first Warning, else its first event.

    Events of eventbus's own workers and of `eventbus up` are not searched, unless *system* is True or *about* is in
    their namespace. Starts of several objects at one time are one entry. The story of an unknown object is empty.

    Args:   about: kind, name and, if it has one, namespace.
            before: how long before that event the search starts.
            reader: sets the resource versions of the events; None: those of the store.

    Raises: BusUnavailable, BusRefused.
    Redis:  ZRANGE on index:object, index:expiry, index:refresh; MGET and GET on objects; HMGET on occurrences.
    """
    relations, versioned = Relations(bus, client), reader.versioned if reader else _as_stored

    def events_about(objects: Sequence[ObjectReference]) -> tuple[Event, ...]:
        return _sorted(versioned([one for placed in read_placed_about(bus, client, objects) for one in placed]))

    events = events_about([about])
    about = _as_recorded(about, events)
    stored = relations.stored(about)
    owners, owned = relations.owners(about, stored), relations.owned(about)
    of_owned = events_about(owned)
    plain = None if stored is None else _plain(about, stored)
    hosts = hosts_of((*events, *of_owned), plain)
    start = start_of(events, of_owned)
    since, until = (first_seen(start) - before, first_seen(start) + _AFTER) if start else (None, None)
    around: tuple[Around, ...] = ()
    if start is not None and since is not None and until is not None:
        system = system or about.namespace == OWN_NAMESPACE
        linker = _Linker((about, *owned), owners, hosts, start, system=system)
        walk = NewestFirst(bus=bus, client=client, since=since, wanted=linker.may_be_linked)
        near = (one for one in islice(walk.placed(), MOST_READ) if happened_in(one[1], since, until))
        links = [(linker.link(one[1]), one) for one in near]
        links = [one for one in links if not linker.is_start_of_up(one[1][1])]
        linked = _nearest(_together(links), first_seen(start))
        found = versioned([one.placed for one in linked])
        around = tuple(
            Around(one.link, event, tuple(one.also.values())) for one, event in zip(linked, found, strict=True)
        )
    return Story(
        object=about,
        stored=plain,
        owners=tuple(owners),
        owned=tuple(owned),
        hosts=tuple(hosts),
        events=events,
        of_owned=of_owned,
        around=around,
        since=since,
        until=until,
        begins=datetime.now(UTC) - timedelta(seconds=bus.options.event_ttl_s),
        rhythms=_rhythms(bus, client, repeated((*events, *of_owned))),
    )


def _rhythms(bus: Bus, client: Client, events: Sequence[Event]) -> tuple[Rhythm, ...]:
    if not events:
        return ()
    since, now = min(map(first_seen, events)), datetime.now(UTC)
    return rhythms_of(events, read_minutes(bus, client, {words_of(event) for event in events}, since, now))


def read_verdicts(bus: Bus, client: Client, objects: Sequence[ObjectReference]) -> list[Verdict]:
    """Judge each of *objects*, given as for `read_story`. Objects without a Warning are left out.

    Raises: BusUnavailable, BusRefused.
    Redis:  as `read_events_about`.
    """
    now = datetime.now(UTC)
    found = (verdict_of(events, now) for events in read_events_about(bus, client, objects))
    return [verdict for verdict in found if verdict is not None]


class _Linker:
    """Finds the link of an event to an object and the objects that it owns, its *family*."""

    def __init__(
        self,
        family: Iterable[ObjectReference],
        owners: Iterable[ObjectReference],
        hosts: Sequence[str],
        start: Event,
        *,
        system: bool,
    ) -> None:
        self._system = system
        self._up_started: list[tuple[str, datetime]] = []
        self._family = {_named(one) for one in family}
        self._owners = {_named(one) for one in owners}
        self._hosts = frozenset(hosts)
        self._reason = start.reason if start.type == EventType.WARNING else ""
        words = [*hosts, *(one[2] for one in self._owners), self._reason]
        self._words = [word.encode("utf-8", "replace") for word in words if word]

    def may_be_linked(self, packed: bytes) -> bool:
        """Return False if `link` cannot find a link. Takes packed events, because decoding them is expensive."""
        return any(word in packed for word in self._words)

    def link(self, event: Event) -> Link | None:
        about = event.involved_object
        named, warns = _named(about), event.type == EventType.WARNING
        if event.source.component == _UP and event.reason == "Starting":
            self._up_started.append((event.source.host, first_seen(event)))
        if named in self._family or not (self._system or _is_of_others(event)):
            return None
        if about.kind == "Node" and about.name in self._hosts:
            return Link.NODE
        if named in self._owners:
            return Link.OWNER
        if warns and event.reason == self._reason:
            return Link.SAME_REASON
        if event.source.host in self._hosts:
            if warns:
                return Link.TROUBLE
            if _CHANGES.match(event.reason):
                return Link.CHANGE
        return None

    def is_start_of_up(self, event: Event) -> bool:
        """Return True if an agent of `eventbus up` reports its start. Call it after `link` has seen all events."""
        if self._system or event.source.component != _AGENT or event.type == EventType.WARNING:
            return False
        begun = first_seen(event)
        return any(
            host == event.source.host and timedelta(0) <= begun - started <= _UP_STARTS_WITHIN
            for host, started in self._up_started
        )


def _is_of_others(event: Event) -> bool:
    """Return False for routine events of eventbus's own workers and of `eventbus up`."""
    if event.metadata.namespace == OWN_NAMESPACE:
        return False
    return event.source.component != _UP or event.type == EventType.WARNING


class _Linked(msgspec.Struct):
    """An event with its link. *also*: other objects that were started together with its object."""

    link: Link
    placed: _Placed
    also: dict[tuple[str, str, str], ObjectReference]

    @property
    def event(self) -> Event:
        return self.placed[1]


def _together(linked: Iterable[tuple[Link | None, _Placed]]) -> list[_Linked]:
    """Merge the starts of several objects of a kind on one host that began within `TOGETHER` of the first."""
    ordered = sorted(((link, one) for link, one in linked if link), key=lambda one: first_seen(one[1][1]))
    found: list[_Linked] = []
    starts: dict[tuple[Link, str, str, str], list[_Linked]] = {}
    for link, placed in ordered:
        event = placed[1]
        one = _Linked(link, placed, {})
        if event.type == EventType.WARNING or not _STARTS.match(event.reason):
            found.append(one)
            continue
        where = (link, event.metadata.namespace, event.involved_object.kind.lower(), event.source.host)
        same = starts.setdefault(where, [])
        if same and first_seen(event) - first_seen(same[0].event) > TOGETHER:
            found += _merged(same)
            same.clear()
        same.append(one)
    for same in starts.values():
        found += _merged(same)
    return found


def _merged(same: list[_Linked]) -> list[_Linked]:
    """Return one entry if the starts are about several objects; a single object keeps all its entries."""
    about = {_named(one.event.involved_object): one.event.involved_object for one in same}
    if len(about) < 2:
        return list(same)
    # Keep the last event of the first object: Started, not Created.
    first = _named(same[0].event.involved_object)
    kept = [one for one in same if _named(one.event.involved_object) == first][-1]
    return [_Linked(kept.link, kept.placed, {name: one for name, one in about.items() if name != first})]


def _nearest(linked: Iterable[_Linked], when: datetime) -> list[_Linked]:
    """Return the `MOST_OF_A_LINK` entries of each link that are nearest to *when*, in the order of time."""
    counts: Counter[Link] = Counter()
    kept = []
    for one in sorted(linked, key=lambda one: abs(first_seen(one.event) - when)):
        if counts[one.link] < MOST_OF_A_LINK:
            counts[one.link] += 1
            kept.append(one)
    return sorted(kept, key=lambda one: first_seen(one.event))


def _as_stored(found: Iterable[_Placed]) -> Sequence[Event]:
    return [event for _, event in found]


def _as_recorded(about: ObjectReference, events: Sequence[Event]) -> ObjectReference:
    """Return *about* with the kind spelled as in its first event, else as in the store.

    A given namespace is kept: events about cluster-scoped objects also have a namespace, and the user asked for one.
    """
    if events:
        first, newest = events[0].involved_object, events[-1].involved_object
        namespace = about.namespace or newest.namespace
        return ObjectReference(first.kind, namespace, newest.name, newest.uid, newest.api_version)
    kind = KINDS.named(about.kind)
    return about if kind is None else msgspec.structs.replace(about, kind=kind.name)


def _plain(about: ObjectReference, stored: Any) -> dict[str, Any]:
    kind = KINDS.named(about.kind)
    return {} if kind is None else kind.encode(stored)


def _named(one: ObjectReference) -> tuple[str, str, str]:
    return one.namespace or "default", one.kind.lower(), one.name


def _sorted(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=first_seen))
