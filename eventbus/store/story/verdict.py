"""Judges an object that has Warnings: why it fails, since when, how often, and whether it still does.

Repeated events also have a rhythm: the minutes in which they happened. `eventbus why`, the page's overview and its
stories all use these rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from eventbus.model.event import SUPPRESSED_REASON, Event, EventType, Instant, ObjectReference
from eventbus.store.occurrences import MINUTE, Minutes, Words

#: A loop has ended after this many of its mean pauses without a repeat. Three, because pauses grow.
PAUSES: Final = 3
LEAST_PAUSE: Final = timedelta(minutes=2)
#: Reasons of recovery. They count even if they were seen before: a job that sometimes fails also completes sometimes.
_WELL: Final = re.compile(
    r"(Completed?|Succeeded|Successful|Finished|Resolved|Recovered|Restored|Healthy|Ready|Repaired|Cleared)$"
)
_NOT_WELL: Final = re.compile(r"(Not|Un|In)[A-Za-z]*$")
#: Reasons of Normal events that are part of a failure: an unhealthy object is killed and restarted.
_PART_OF_IT: Final = re.compile(r"^(Kill|BackOff|Evict|Preempt|Restart)")
_NEVER: Final = datetime.fromtimestamp(0, UTC)


class Still(StrEnum):
    """Whether the object still fails."""

    GOES_ON = "goes-on"  #: the last Warning is not longer ago than `patience`
    STOPPED = "stopped"  #: the last Warning is longer ago, or a good event came later
    ONCE = "once"  #: one Warning, once


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of an object that has Warnings.

    *reason*, *message*, *times*: of the most frequent reason. *reasons*: all reasons, the most frequent first.
    *since*, *last*, *total*: of all Warnings. *ended_by*: the reason of the event that ended them. *goes_on*: the uid
    of the newest Warning of each reason that goes on.
    """

    object: ObjectReference
    reason: str
    message: str
    times: int
    reasons: tuple[str, ...]
    total: int
    since: Instant
    last: Instant
    still: Still
    ended_by: str = ""
    goes_on: tuple[str, ...] = ()


def verdict_of(events: Iterable[Event], now: datetime) -> Verdict | None:
    """Judge one object by all its events. Returns None if it has no Warning."""
    events = list(events)
    warnings = [event for event in events if event.type == EventType.WARNING]
    if not warnings:
        return None
    # A report of suppressed events is a Warning, but its reason does not say why the object fails.
    relevant = [event for event in warnings if event.reason != SUPPRESSED_REASON] or warnings
    often: Counter[str] = Counter()
    for event in relevant:
        often[event.reason] += event.times_seen
    worst = max(relevant, key=lambda event: (often[event.reason], event.times_seen, last_seen(event)))
    still, end = _still(relevant, events, now)
    goes_on: tuple[str, ...] = ()
    if still is Still.GOES_ON:
        newest = {event.reason: event for event in sorted(relevant, key=last_seen)}.values()
        goes_on = tuple(event.metadata.uid for event in newest if now - last_seen(event) <= patience(relevant))
    return Verdict(
        object=msgspec.structs.replace(worst.involved_object, kind=min(events, key=first_seen).involved_object.kind),
        reason=worst.reason,
        message=worst.message,
        times=often[worst.reason],
        reasons=tuple(sorted(often, key=lambda reason: (reason != worst.reason, -often[reason]))),
        total=often.total(),
        since=min(map(first_seen, relevant)),
        last=max(map(last_seen, relevant)),
        still=still,
        ended_by="" if end is None else end.reason,
        goes_on=goes_on,
    )


def verdicts_of(events: Iterable[Event], now: datetime) -> list[Verdict]:
    """Judge each object that has Warnings among *events*: objects that still fail first, the most frequent first."""
    by_object: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        about = event.involved_object
        by_object.setdefault((about.namespace or "default", about.kind.lower(), about.name), []).append(event)
    verdicts = [verdict for object_events in by_object.values() if (verdict := verdict_of(object_events, now))]
    return sorted(verdicts, key=lambda each: (each.still is Still.GOES_ON, each.times, each.last), reverse=True)


def _still(warnings: Sequence[Event], events: Sequence[Event], now: datetime) -> tuple[Still, Event | None]:
    last = max(map(last_seen, warnings))
    recoveries = [event for event in events if event.type != EventType.WARNING and ends(event, last)]
    if recoveries:
        return Still.STOPPED, max(recoveries, key=last_seen)
    if sum(event.times_seen for event in warnings) < 2:
        return Still.ONCE, None
    return (Still.GOES_ON if now - last <= patience(warnings) else Still.STOPPED), None


def ends(event: Event, last: datetime) -> bool:
    """Return True if *event* ends a failure that was last seen at *last*.

    An event that repeats during a failure, like a restart, began before *last* and ends nothing.
    """
    if last_seen(event) <= last or _PART_OF_IT.search(event.reason):
        return False
    well = _WELL.search(event.reason)
    if well is not None:
        return not _NOT_WELL.search(event.reason[: well.start()])
    return first_seen(event) > last


def patience(warnings: Sequence[Event]) -> timedelta:
    """Return the silence after which *warnings* have ended."""
    count = sum(event.times_seen for event in warnings)
    return silence_after(count, max(map(last_seen, warnings)) - min(map(first_seen, warnings)))


def silence_after(count: int, duration: timedelta) -> timedelta:
    """Return the silence that ends *count* occurrences within *duration*."""
    return max(PAUSES * duration / (count - 1), LEAST_PAUSE) if count > 1 else LEAST_PAUSE


def first_seen(event: Event) -> datetime:
    """Return when the event first happened, or the start of the epoch if it names no time."""
    return event.first_timestamp or event.event_time or event.last_seen or _NEVER


def last_seen(event: Event) -> datetime:
    """Return when the event last happened, or the time of `first_seen` if it names no last time."""
    return event.last_seen or first_seen(event)


#: Most events of one story for which minutes are read; the last seen are preferred.
MOST_RHYTHMS: Final = 40


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
    """Return the repeated ones of *events*, the last seen first; at most `MOST_RHYTHMS`."""
    repeats = [event for event in events if event.times_seen > 1 and event.last_seen is not None]
    return sorted(repeats, key=last_seen, reverse=True)[:MOST_RHYTHMS]


def words_of(event: Event) -> Words:
    """Return the words under which the bus counts the event."""
    source = event.source.component or event.reporting_component
    return event.metadata.namespace, event.involved_object.kind, event.type, event.reason, source


def rhythms_of(events: Sequence[Event], counted: Minutes) -> tuple[Rhythm, ...]:
    """Return the rhythms of *events*, which come from `repeated`. Events without counted minutes are left out."""
    alike = Counter(map(words_of, events))
    rhythms = (_rhythm(event, counted, alone=alike[words_of(event)] == 1) for event in events)
    return tuple(rhythm for rhythm in rhythms if rhythm is not None)


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
