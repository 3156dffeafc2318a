"""Says of an object that has Warnings: what fails, since when, how often, and does it still?

The one place of this rule: `eventbus why`, the page's overview and its stories all show what is said here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from eventbus.event import SUPPRESSED_REASON, Event, EventType, Instant, ObjectReference

#: A loop's pauses grow: after so many of its mean pauses without a repeat, it is taken to have ended.
PAUSES: Final = 3
LEAST_PAUSE: Final = timedelta(minutes=2)
#: What says that all is well, also where it has been said before: a job that fails now and then completes now and then.
_WELL: Final = re.compile(
    r"(Completed?|Succeeded|Successful|Finished|Resolved|Recovered|Restored|Healthy|Ready|Repaired|Cleared)$"
)
_NOT_WELL: Final = re.compile(r"(Not|Un|In)[A-Za-z]*$")
#: Normal, and still a part of what goes wrong: what is unhealthy is killed and started again.
_PART_OF_IT: Final = re.compile(r"^(Kill|BackOff|Evict|Preempt|Restart)")
_NEVER: Final = datetime.fromtimestamp(0, UTC)


class Still(StrEnum):
    """The answer to: does it still?"""

    GOES_ON = "goes-on"  #: it has not been silent for long, by its own pace
    STOPPED = "stopped"  #: it has, or the object has done well since
    ONCE = "once"  #: one Warning so far


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """*times*: how often *reason* happened, the one that happened most. *since*, *last*, *total*: of all its Warnings.

    *reasons*: all, that one first. *ended_by*: what said that all is well. *goes_on*: uids, one for each reason.
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
    """Judge one object by all its events. None: it has no Warning."""
    events = list(events)
    warnings = [event for event in events if event.type == EventType.WARNING]
    if not warnings:
        return None
    # The report of what was held back counts, and says nothing of what is wrong.
    telling = [event for event in warnings if event.reason != SUPPRESSED_REASON] or warnings
    often: Counter[str] = Counter()
    for event in telling:
        often[event.reason] += event.times_seen
    worst = max(telling, key=lambda event: (often[event.reason], event.times_seen, last_seen(event)))
    still, end = _still(telling, events, now)
    goes_on: tuple[str, ...] = ()
    if still is Still.GOES_ON:
        newest = {event.reason: event for event in sorted(telling, key=last_seen)}.values()
        goes_on = tuple(event.metadata.uid for event in newest if now - last_seen(event) <= patience(telling))
    return Verdict(
        object=msgspec.structs.replace(worst.involved_object, kind=min(events, key=first_seen).involved_object.kind),
        reason=worst.reason,
        message=worst.message,
        times=often[worst.reason],
        reasons=tuple(sorted(often, key=lambda reason: (reason != worst.reason, -often[reason]))),
        total=often.total(),
        since=min(map(first_seen, telling)),
        last=max(map(last_seen, telling)),
        still=still,
        ended_by="" if end is None else end.reason,
        goes_on=goes_on,
    )


def verdicts_of(events: Iterable[Event], now: datetime) -> list[Verdict]:
    """Judge each object that has Warnings among *events*; those that go on first, of these the most often."""
    by_object: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        about = event.involved_object
        by_object.setdefault((about.namespace or "default", about.kind.lower(), about.name), []).append(event)
    found = [verdict for of_one in by_object.values() if (verdict := verdict_of(of_one, now))]
    return sorted(found, key=lambda one: (one.still is Still.GOES_ON, one.times, one.last), reverse=True)


def _still(warnings: Sequence[Event], events: Sequence[Event], now: datetime) -> tuple[Still, Event | None]:
    last = max(map(last_seen, warnings))
    ends = [event for event in events if event.type != EventType.WARNING and _ends(event, last)]
    if ends:
        return Still.STOPPED, max(ends, key=last_seen)
    if sum(event.times_seen for event in warnings) < 2:
        return Still.ONCE, None
    return (Still.GOES_ON if now - last <= patience(warnings) else Still.STOPPED), None


def _ends(event: Event, last: datetime) -> bool:
    """Return True if *event* says that what was seen *last* is over: it came later, and is no part of the loop.

    What starts again and again beside a failure was there before its last time, and ends nothing.
    """
    if last_seen(event) <= last or _PART_OF_IT.search(event.reason):
        return False
    well = _WELL.search(event.reason)
    if well is not None:
        return not _NOT_WELL.search(event.reason[: well.start()])
    return first_seen(event) > last


def patience(warnings: Sequence[Event]) -> timedelta:
    """Return for how long they may be silent until they are taken to have ended."""
    count = sum(event.times_seen for event in warnings)
    if count < 2:
        return LEAST_PAUSE
    pause = (max(map(last_seen, warnings)) - min(map(first_seen, warnings))) / (count - 1)
    return max(PAUSES * pause, LEAST_PAUSE)


def first_seen(event: Event) -> datetime:
    """Return when the event first happened, or the start of the epoch if it names no time."""
    return event.first_timestamp or event.event_time or event.last_seen or _NEVER


def last_seen(event: Event) -> datetime:
    """Return when the event last happened, or the time of `first_seen` if it names no last time."""
    return event.last_seen or first_seen(event)
