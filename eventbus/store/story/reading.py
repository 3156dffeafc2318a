"""Reads the story of one object: from the store, or from an API worker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.client.connection import ApiConnection
from eventbus.errors import BusUnavailable, InvalidEvent, NotFound
from eventbus.model.decodable import decodable
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.kinds import KINDS, Kind
from eventbus.model.list_watch import ListOptions
from eventbus.store.event_search import NewestFirst, happened_in, read_events_about, read_placed_about
from eventbus.store.object_store import ObjectStore, may_read
from eventbus.store.occurrences import read_minutes
from eventbus.store.reader import ObjectReader
from eventbus.store.scan import members
from eventbus.store.story.story import Around, Link, Story, hosts_of, start_of, story_from_json
from eventbus.store.story.verdict import Rhythm, Verdict, first_seen, repeated, rhythms_of, verdict_of, words_of

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
        return _sorted(versioned([event for placed in read_placed_about(bus, client, objects) for event in placed]))

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
        near = (entry for entry in islice(walk.placed(), MOST_READ) if happened_in(entry[1], since, until))
        links = [(linker.link(entry[1]), entry) for entry in near]
        links = [entry for entry in links if not linker.is_start_of_up(entry[1][1])]
        linked = _nearest(_together(links), first_seen(start))
        events_around = versioned([entry.placed for entry in linked])
        around = tuple(
            Around(entry.link, event, tuple(entry.also.values()))
            for entry, event in zip(linked, events_around, strict=True)
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
    verdicts = (verdict_of(events, now) for events in read_events_about(bus, client, objects))
    return [verdict for verdict in verdicts if verdict is not None]


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
        self._family = {_named(reference) for reference in family}
        self._owners = {_named(reference) for reference in owners}
        self._hosts = frozenset(hosts)
        self._reason = start.reason if start.type == EventType.WARNING else ""
        words = [*hosts, *(reference[2] for reference in self._owners), self._reason]
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
    ordered = sorted(((link, entry) for link, entry in linked if link), key=lambda entry: first_seen(entry[1][1]))
    merged: list[_Linked] = []
    starts: dict[tuple[Link, str, str, str], list[_Linked]] = {}
    for link, placed in ordered:
        event = placed[1]
        entry = _Linked(link, placed, {})
        if event.type == EventType.WARNING or not _STARTS.match(event.reason):
            merged.append(entry)
            continue
        where = (link, event.metadata.namespace, event.involved_object.kind.lower(), event.source.host)
        same = starts.setdefault(where, [])
        if same and first_seen(event) - first_seen(same[0].event) > TOGETHER:
            merged += _merged(same)
            same.clear()
        same.append(entry)
    for same in starts.values():
        merged += _merged(same)
    return merged


def _merged(same: list[_Linked]) -> list[_Linked]:
    """Return one entry if the starts are about several objects; a single object keeps all its entries."""
    about = {_named(entry.event.involved_object): entry.event.involved_object for entry in same}
    if len(about) < 2:
        return list(same)
    # Keep the last event of the first object: Started, not Created.
    first = _named(same[0].event.involved_object)
    kept = [entry for entry in same if _named(entry.event.involved_object) == first][-1]
    return [_Linked(kept.link, kept.placed, {name: entry for name, entry in about.items() if name != first})]


def _nearest(linked: Iterable[_Linked], when: datetime) -> list[_Linked]:
    """Return the `MOST_OF_A_LINK` entries of each link that are nearest to *when*, in the order of time."""
    counts: Counter[Link] = Counter()
    kept = []
    for entry in sorted(linked, key=lambda entry: abs(first_seen(entry.event) - when)):
        if counts[entry.link] < MOST_OF_A_LINK:
            counts[entry.link] += 1
            kept.append(entry)
    return sorted(kept, key=lambda entry: first_seen(entry.event))


def _as_stored(placed: Iterable[_Placed]) -> Sequence[Event]:
    return [event for _, event in placed]


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


def _named(reference: ObjectReference) -> tuple[str, str, str]:
    return reference.namespace or "default", reference.kind.lower(), reference.name


def _sorted(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=first_seen))


#: Kind → kinds of the objects that it creates. Their names begin with its name.
_MAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("ReplicaSet",),
    "ReplicaSet": ("Pod",),
    "ReplicationController": ("Pod",),
    "StatefulSet": ("Pod",),
    "DaemonSet": ("Pod",),
    "Job": ("Pod",),
    "CronJob": ("Job",),
}
#: Kinds that are not searched for owned objects, because a story does not show them.
_NEVER_OWNED: Final = frozenset({"events", "leases", "configmaps", "secrets"})
#: Kinds that a story does not show.
_HIDDEN: Final = frozenset({"events", "secrets"})
#: Most owned objects that a story includes.
MOST_OWNED: Final = 200


#: Kind and name of an owner → the objects that it owns.
_ByOwner: TypeAlias = dict[tuple[str, str], list[ObjectReference]]


class Relations:
    """Reads owners and owned objects. One thread at a time, as with the client."""

    def __init__(self, bus: Bus, client: Client) -> None:
        self._bus = bus
        self._client = client
        self._store = ObjectStore(bus, client)
        self._permitted: dict[str, bool] = {}
        self._by_owner: dict[tuple[str, str], _ByOwner] = {}

    def stored(self, about: ObjectReference) -> Any:
        """Return the stored object, or None if the store does not have it or the user may not read its kind."""
        kind = KINDS.named(about.kind)
        if kind is None or kind.plural in _HIDDEN or not self._may_read(kind):
            return None
        try:
            return self._store.objects(kind).get(about.name, about.namespace if kind.namespaced else "")
        except NotFound:
            return None

    def owners(self, about: ObjectReference, stored: Any) -> list[ObjectReference]:
        """Return the owners of *about*, the nearest first."""
        by_reference: dict[tuple[str, str], ObjectReference] = {}
        references = stored.metadata.owner_references if stored is not None else ()
        for owner in references:
            reference = ObjectReference(
                kind=owner.kind,
                namespace=about.namespace,
                name=owner.name,
                uid=owner.uid,
                api_version=owner.api_version,
            )
            by_reference[owner.kind, owner.name] = reference
        nearest = list(by_reference.values()) or self._owners_by_name(about)
        for owner in list(nearest):
            nearest += [further for further in self._owners_by_name(owner) if further not in nearest]
        return nearest

    def owned(self, about: ObjectReference) -> list[ObjectReference]:
        """Return the objects that *about* owns, directly or through others; at most `MOST_OWNED`."""
        owned: dict[tuple[str, str], ObjectReference] = {}
        waiting = [about]
        while waiting and len(owned) < MOST_OWNED:
            owner = waiting.pop(0)
            for reference in (*self._owned_by_reference(owner), *self._owned_by_name(owner)):
                if (reference.kind, reference.name) not in owned and len(owned) < MOST_OWNED:
                    owned[reference.kind, reference.name] = reference
                    waiting.append(reference)
        return list(owned.values())

    def _may_read(self, kind: Kind[Any]) -> bool:
        if kind.plural not in self._permitted:
            self._permitted[kind.plural] = may_read(self._store, kind)
        return self._permitted[kind.plural]

    def _owners_by_name(self, about: ObjectReference) -> list[ObjectReference]:
        name, dash, _ = about.name.rpartition("-")
        kinds = [kind for kind, made_kinds in _MAKES.items() if about.kind in made_kinds] if dash and name else []
        candidates = [ObjectReference(kind=kind, namespace=about.namespace, name=name) for kind in kinds]
        events = read_events_about(self._bus, self._client, candidates)
        return [
            owner
            for owner, of_owner in zip(candidates, events, strict=True)
            if of_owner or self.stored(owner) is not None
        ]

    def _owned_by_name(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in _MAKES.get(about.kind, ()):
            for name in self._named(about.namespace or "default", kind, f"{about.name}-"):
                if "-" not in name.removeprefix(f"{about.name}-"):
                    yield ObjectReference(kind=kind, namespace=about.namespace, name=name)

    def _owned_by_reference(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in KINDS:
            if kind.plural in _NEVER_OWNED or not kind.namespaced or not self._may_read(kind):
                continue
            yield from self._owned_of(kind, about.namespace).get((about.kind, about.name), ())

    def _owned_of(self, kind: Kind[Any], namespace: str) -> _ByOwner:
        """Return the objects of *kind* by owner. Lists them once for all owners."""
        by_owner = self._by_owner.get((kind.plural, namespace))
        if by_owner is None:
            by_owner = self._by_owner[kind.plural, namespace] = {}
            for obj in self._store.objects(kind).list(ListOptions(namespace=namespace)).items:
                meta = obj.metadata
                owned = ObjectReference(kind=kind.name, namespace=meta.namespace, name=meta.name, uid=meta.uid)
                for owner in dict.fromkeys((owner.kind, owner.name) for owner in meta.owner_references):
                    by_owner.setdefault(owner, []).append(owned)
        return by_owner

    def _named(self, namespace: str, kind: str, begin: str) -> Iterator[str]:
        """Yield the names that begin so, of objects that have events. Redis: ZRANGE on index:object."""
        prefix = f"{namespace}/{kind.lower()}/{begin}".encode("utf-8", "replace")
        seen: set[str] = set()
        for keys in self._bus.keys:
            for member in members(self._client, keys.index_object, prefix):
                name = member.rpartition(b"\0")[0].decode("utf-8", "replace").split("/", 2)[2]
                if name not in seen:
                    seen.add(name)
                    yield name


def fetch_story(
    connection: ApiConnection, about: ObjectReference, *, before: timedelta = BEFORE, system: bool = False
) -> Story:
    """As `read_story`."""
    parameters = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
    query = urlencode({**parameters, "before": f"{int(before.total_seconds())}s", "system": str(system).lower()})
    body = connection.call("GET", f"/eventbus/v1/why?{query}")
    try:
        return story_from_json(body)
    except (msgspec.DecodeError, InvalidEvent) as error:
        raise BusUnavailable(f"{connection.address} answered in the form of another version: {error}") from None


class _Verdicts(msgspec.Struct, frozen=True):
    """The reply of an API worker."""

    items: list[Verdict]


def fetch_verdicts(connection: ApiConnection, objects: Sequence[ObjectReference]) -> list[Verdict]:
    """As `read_verdicts`."""
    body = msgspec.json.encode({"objects": list(objects)})
    reply = connection.call("POST", "/eventbus/v1/verdicts", body=body, headers={"Content-Type": "application/json"})
    try:
        return msgspec.json.decode(reply, type=decodable(_Verdicts)).items
    except msgspec.DecodeError as error:
        raise BusUnavailable(f"{connection.address} answered in the form of another version: {error}") from None
