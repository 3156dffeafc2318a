"""Says when a repeated event happened between its first and its last time, by the counts of each minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from eventbus.event import Event, Instant
from eventbus.store.occurrences import MINUTE, Minutes, Words
from eventbus.story.verdict import first_seen, last_seen, patience

#: Events of one story whose minutes are looked up: those last seen.
MOST: Final = 40


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """One minute, by its beginning, and how often it happened in it."""

    at: Instant
    count: int


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A period without it, longer than what a loop of its pace is given until it is taken to have ended."""

    since: Instant
    until: Instant


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """When the event *uid* happened. *minutes* and *silences* are in the order of their time.

    The bus counts by namespace, kind, type, reason and source, not by object. *own*: all of *minutes* are this event's
    alone; else others that are counted with it may have happened then instead. A silence is one in any case.
    """

    uid: str
    own: bool
    minutes: tuple[Minute, ...]
    silences: tuple[Silence, ...]


def repeated(events: Iterable[Event]) -> list[Event]:
    """Return those of *events* that have a rhythm, at most `MOST`."""
    found = [event for event in events if event.times_seen > 1 and event.last_seen is not None]
    return sorted(found, key=last_seen, reverse=True)[:MOST]


def words_of(event: Event) -> Words:
    """Return what the event is counted under."""
    source = event.source.component or event.reporting_component
    return event.metadata.namespace, event.involved_object.kind, event.type, event.reason, source


def rhythms_of(events: Sequence[Event], counted: Minutes) -> tuple[Rhythm, ...]:
    """Make the rhythm of each of *events*, as `repeated` found them; without those of whose time nothing is known."""
    alike = Counter(map(words_of, events))
    found = (_rhythm(event, counted, alone=alike[words_of(event)] == 1) for event in events)
    return tuple(rhythm for rhythm in found if rhythm is not None)


def _rhythm(event: Event, counted: Minutes, *, alone: bool) -> Rhythm | None:
    first, last = first_seen(event), last_seen(event)
    # Counted is the minute of its publication, which may be the next.
    minutes = [
        Minute(at=at, count=count) for at, count in counted.of(words_of(event)) if first - MINUTE < at <= last + MINUTE
    ]
    known, until = max(first, counted.begins), min(last, counted.until)
    if known > until or not minutes:
        return None
    own = alone and known == first and sum(minute.count for minute in minutes) == event.times_seen
    times = sorted({*(minute.at for minute in minutes), *(at for at in counted.unknown if known < at <= until)})
    return Rhythm(
        uid=event.metadata.uid,
        own=own,
        minutes=tuple(minutes),
        silences=tuple(_silences(times, known, until, patience([event]))),
    )


def _silences(times: Sequence[datetime], known: datetime, until: datetime, longest: timedelta) -> Iterable[Silence]:
    """Yield the periods between *times*, each of which is a minute's beginning, that are longer than *longest*."""
    heard = known
    for at in (*times, until):
        if at - heard > longest:
            yield Silence(since=heard, until=at)
        heard = max(heard, at + MINUTE)
