"""The story of one object as a value and as JSON of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import from_core, to_core
from eventbus.model.event import Event, EventType, Instant, ObjectReference
from eventbus.store.story.verdict import Rhythm, Verdict, first_seen, verdicts_of


class Link(StrEnum):
    """The reason why an event about another object is part of a story."""

    NODE = "node"  #: about the node that the object's events come from
    OWNER = "owner"  #: about an owner of the object
    CHANGE = "change"  #: something on the same host was started, installed or changed
    TROUBLE = "trouble"  #: another Warning on the same host
    SAME_REASON = "same-reason"  #: a Warning with the same reason, at the same time


class Around(msgspec.Struct, frozen=True):
    """An event about another object near the story's first Warning.

    *also*: other objects of its kind and namespace that were started together with its object.
    """

    link: Link
    event: Event
    also: tuple[ObjectReference, ...] = ()


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The events and relations of one object. Events are ordered by the time they first happened.

    *stored*: the object's JSON if the store has it. *of_owned*: the events of objects that it owns. *since*, *until*:
    the period of *around*, or None if there are no events. *begins*: events last seen before this time have expired.
    *rhythms*: of repeated events with known minutes.
    """

    object: ObjectReference
    stored: Mapping[str, Any] | None = None
    owners: tuple[ObjectReference, ...] = ()
    owned: tuple[ObjectReference, ...] = ()
    hosts: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    of_owned: tuple[Event, ...] = ()
    around: tuple[Around, ...] = ()
    since: Instant | None = None
    until: Instant | None = None
    begins: Instant | None = None
    rhythms: tuple[Rhythm, ...] = ()

    @property
    def first_warning(self) -> Event | None:
        """Return the first Warning of the object or the objects that it owns, or None."""
        return _first_warning((*self.events, *self.of_owned))

    def verdict(self, now: datetime) -> Verdict | None:
        """Return the worst verdict on the object and the objects that it owns, or None if none has a Warning."""
        return next(iter(self.verdicts(now)), None)

    def verdicts(self, now: datetime) -> list[Verdict]:
        """Return the verdicts on the object and the objects that it owns, the worst first; only with a Warning."""
        return verdicts_of((*self.events, *self.of_owned), now)

    def within(self, namespace: str) -> Story:
        """Return the story without objects of other namespaces, for users with access to this namespace only."""
        of_owned = tuple(event for event in self.of_owned if event.metadata.namespace == namespace)
        uids = {event.metadata.uid for event in (*self.events, *of_owned)}
        since, until = self.since, self.until
        former, start = start_of(self.events, self.of_owned), start_of(self.events, of_owned)
        if former is not start:
            later = first_seen(start) - first_seen(former) if former and start else None
            since = since + later if since and later else None
            until = until + later if until and later else None
        return msgspec.structs.replace(
            self,
            owners=tuple(entry for entry in self.owners if entry.namespace == namespace),
            owned=tuple(entry for entry in self.owned if entry.namespace == namespace),
            hosts=tuple(hosts_of((*self.events, *of_owned), self.stored)),
            of_owned=of_owned,
            around=tuple(entry for entry in self.around if entry.event.metadata.namespace == namespace),
            since=since,
            until=until,
            rhythms=tuple(rhythm for rhythm in self.rhythms if rhythm.uid in uids),
        )


def start_of(events: tuple[Event, ...], of_owned: tuple[Event, ...]) -> Event | None:
    """Return the event around which others are searched: the first Warning, else the object's first event."""
    return _first_warning((*events, *of_owned)) or next(iter(events), None)


def hosts_of(events: Iterable[Event], stored: Mapping[str, Any] | None) -> list[str]:
    """Return the hosts that the events come from, and the node that the object is assigned to."""
    spec = (stored or {}).get("spec")
    node = spec.get("nodeName") if isinstance(spec, Mapping) else None
    hosts = [node if isinstance(node, str) else "", *(event.source.host for event in events)]
    return list(dict.fromkeys(host for host in hosts if host))


def _first_warning(events: tuple[Event, ...]) -> Event | None:
    warnings = [event for event in events if event.type == EventType.WARNING]
    return min(warnings, key=first_seen, default=None)


class AroundJson(msgspec.Struct, frozen=True):
    """The JSON of `Around`: an event about another object, and its link to the object of the story."""

    link: Link
    event: dict[str, Any]
    also: tuple[ObjectReference, ...] = ()


class StoryJson(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON of `Story`, with events as core/v1 Events. *verdicts*: those of `Story.verdicts`."""

    object: ObjectReference
    stored: dict[str, Any] | None
    owners: tuple[ObjectReference, ...]
    owned: tuple[ObjectReference, ...]
    hosts: tuple[str, ...]
    since: Instant | None
    until: Instant | None
    begins: Instant | None
    rhythms: tuple[Rhythm, ...]
    verdicts: tuple[Verdict, ...]
    events: list[dict[str, Any]]
    of_owned: list[dict[str, Any]]
    around: list[AroundJson]


#: The fields that are equal in `Story` and `StoryJson`.
_SAME = ("object", "owners", "owned", "hosts", "since", "until", "begins", "rhythms")


def story_to_json(story: Story, now: datetime, encode: Callable[[Event], dict[str, Any]] = to_core) -> StoryJson:
    """Return the story as JSON, with events in the form of *encode*. Events that cannot be encoded are left out."""
    return StoryJson(
        **{name: getattr(story, name) for name in _SAME},
        stored=None if story.stored is None else msgspec.to_builtins(story.stored),
        verdicts=tuple(story.verdicts(now)),
        events=_plains(story.events, encode),
        of_owned=_plains(story.of_owned, encode),
        around=[
            AroundJson(entry.link, plain, entry.also)
            for entry in story.around
            for plain in _plains((entry.event,), encode)
        ],
    )


def story_from_json(data: bytes) -> Story:
    """Decode a `StoryJson`. Raises: InvalidEvent, msgspec.DecodeError."""
    plain = msgspec.json.decode(data, type=decodable(StoryJson))
    return Story(
        **{name: getattr(plain, name) for name in _SAME},
        stored=plain.stored,
        events=tuple(map(from_core, plain.events)),
        of_owned=tuple(map(from_core, plain.of_owned)),
        around=tuple(Around(entry.link, from_core(entry.event), entry.also) for entry in plain.around),
    )


def _plains(events: tuple[Event, ...], encode: Callable[[Event], dict[str, Any]]) -> list[dict[str, Any]]:
    plains = []
    for event in events:
        try:
            plains.append(encode(event))
        except InvalidEvent:
            continue
    return plains
