"""Does it still? A table: what was seen of one object, and the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from eventbus.model.event import Event, ObjectMeta, ObjectReference
from eventbus.store.story.verdict import Still, verdict_of, verdicts_of

NOW = datetime(2026, 1, 2, 15, 0, tzinfo=UTC)


def seen(
    reason: str, first: int, last: int | None = None, count: int = 1, *, normal: bool = False, name: str = "web-0"
) -> Event:
    """One event; *first*, *last*: how many minutes ago."""
    return Event(
        metadata=ObjectMeta(name=reason.lower(), uid=f"uid-{reason}"),
        involved_object=ObjectReference("Pod", "shop", name),
        reason=reason,
        type="Normal" if normal else "Warning",
        first_timestamp=NOW - timedelta(minutes=first),
        last_timestamp=NOW - timedelta(minutes=first if last is None else last),
        count=count,
    )


CASES = {
    "a loop is at work": ([seen("Failed", 60, 4, 12)], Still.GOES_ON, ""),
    "a loop is silent for three of its pauses": ([seen("Failed", 60, 20, 12)], Still.STOPPED, ""),
    "a quick loop has two minutes": ([seen("Failed", 3, 1, 500)], Still.GOES_ON, ""),
    "one Warning": ([seen("Failed", 1)], Still.ONCE, ""),
    "one Warning, long ago": ([seen("Failed", 300)], Still.ONCE, ""),
    "several that are counted each by itself": ([seen("Failed", n) for n in (30, 20, 10, 2)], Still.GOES_ON, ""),
    "it completed since": ([seen("Failed", 60, 4, 12), seen("Completed", 3, normal=True)], Still.STOPPED, "Completed"),
    "it completed since, as it had before": (
        [seen("Failed", 60, 4, 12), seen("Completed", 90, 3, 5, normal=True)],
        Still.STOPPED,
        "Completed",
    ),
    "it completed before": ([seen("Failed", 60, 4, 12), seen("Completed", 90, 5, 5, normal=True)], Still.GOES_ON, ""),
    "once, and then it was well": ([seen("Failed", 9), seen("Completed", 3, normal=True)], Still.STOPPED, "Completed"),
    "what starts again and again is part of the loop": (
        [seen("BackOff", 60, 4, 12), seen("Started", 61, 3, 12, normal=True)],
        Still.GOES_ON,
        "",
    ),
    "something new and normal happened since": (
        [seen("FailedScheduling", 60, 4, 12), seen("Scheduled", 3, normal=True)],
        Still.STOPPED,
        "Scheduled",
    ),
    "it is killed for it": ([seen("Unhealthy", 60, 4, 12), seen("Killing", 3, normal=True)], Still.GOES_ON, ""),
    "not ready is not well": (
        [seen("Failed", 60, 4, 12), seen("NodeNotReady", 90, 3, 5, normal=True)],
        Still.GOES_ON,
        "",
    ),
    "it failed again after it had completed": (
        [seen("Failed", 60, 1, 12), seen("Completed", 3, normal=True)],
        Still.GOES_ON,
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_does_it_still(name: str) -> None:
    events, still, ended_by = CASES[name]
    verdict = verdict_of(events, NOW)
    assert verdict is not None
    assert (verdict.still, verdict.ended_by) == (still, ended_by)
    assert bool(verdict.goes_on) is (still is Still.GOES_ON)


def test_what_happened_most_is_named_and_all_is_counted() -> None:
    verdict = verdict_of(
        [seen("Failed", 60, 50, 3), seen("BackOff", 30, 1, 9), seen("EventsSuppressed", 5, 1, 70)], NOW
    )
    assert verdict is not None
    assert (verdict.reason, verdict.times, verdict.reasons, verdict.total) == ("BackOff", 9, ("BackOff", "Failed"), 12)
    assert (verdict.since, verdict.last) == (NOW - timedelta(minutes=60), NOW - timedelta(minutes=1))


def test_of_each_reason_the_newest_goes_on() -> None:
    backoffs = [replace(seen("BackOff", n), metadata=ObjectMeta(name="b", uid=f"uid-{n}")) for n in (9, 5, 1)]
    verdict = verdict_of([*backoffs, seen("Failed", 9, 1, 3)], NOW)
    assert verdict is not None
    assert set(verdict.goes_on) == {"uid-1", "uid-Failed"}


def test_each_object_is_judged_by_its_own_events_and_what_goes_on_comes_first() -> None:
    events = [
        seen("Failed", 60, 4, 50, name="well"),
        seen("Completed", 3, normal=True, name="well"),
        seen("Failed", 60, 4, 12, name="ill"),
        seen("Started", 3, normal=True, name="quiet"),
    ]
    assert [(one.object.name, one.still) for one in verdicts_of(events, NOW)] == [
        ("ill", Still.GOES_ON),
        ("well", Still.STOPPED),
    ]
    assert verdict_of([seen("Started", 3, normal=True)], NOW) is None
