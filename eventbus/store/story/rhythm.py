"""Finds the minutes in which a repeated event happened, by the counts of each minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from eventbus.model.event import Event, Instant
from eventbus.store.occurrences import MINUTE, Minutes, Words
from eventbus.store.story.verdict import first_seen, last_seen, patience

#: Most events of one story for which minutes are read; the last seen are preferred.
MOST: Final = 40


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a minute, and the number of occurrences in it."""

    at: Instant
    count: int


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A period without occurrences that is longer than the event's `patience`."""

    since: Instant
    until: Instant


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """The minutes and silences of the event *uid*, in the order of time.

    The bus counts by namespace, kind, type, reason and source, not by object. If *own* is False, *minutes* may include
    occurrences of other events with the same words. Silences are certain in both cases.
    """

    uid: str
    own: bool
    minutes: tuple[Minute, ...]
    silences: tuple[Silence, ...]


def repeated(events: Iterable[Event]) -> list[Event]:
    """Return the repeated ones of *events*, the last seen first; at most `MOST`."""
    found = [event for event in events if event.times_seen > 1 and event.last_seen is not None]
    return sorted(found, key=last_seen, reverse=True)[:MOST]


def words_of(event: Event) -> Words:
    """Return the words under which the bus counts the event."""
    source = event.source.component or event.reporting_component
    return event.metadata.namespace, event.involved_object.kind, event.type, event.reason, source


def rhythms_of(events: Sequence[Event], counted: Minutes) -> tuple[Rhythm, ...]:
    """Return the rhythms of *events*, which come from `repeated`. Events without counted minutes are left out."""
    alike = Counter(map(words_of, events))
    found = (_rhythm(event, counted, alone=alike[words_of(event)] == 1) for event in events)
    return tuple(rhythm for rhythm in found if rhythm is not None)


def _rhythm(event: Event, counted: Minutes, *, alone: bool) -> Rhythm | None:
    first, last = first_seen(event), last_seen(event)
    # The bus counts at publication, which may be in the next minute.
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
    """Yield the periods longer than *longest* between *times*, which are starts of minutes."""
    end = known
    for at in (*times, until):
        if at - end > longest:
            yield Silence(since=end, until=at)
        end = max(end, at + MINUTE)
