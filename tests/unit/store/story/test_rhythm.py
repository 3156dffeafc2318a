"""When a repeated event happened: a table of counts a minute, and the silences that follow from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.store.occurrences import Minutes
from eventbus.store.story.verdict import MOST_RHYTHMS, Rhythm, repeated, rhythms_of, words_of

#: A whole minute.
BEGUN = datetime(2026, 1, 2, 15, 0, tzinfo=UTC)


def at(minute: float) -> datetime:
    return BEGUN + timedelta(minutes=minute)


def seen(first: float, last: float, count: int, *, name: str = "web-0", uid: str = "one") -> Event:
    return Event(
        metadata=ObjectMeta(name=name, namespace="shop", uid=uid),
        involved_object=ObjectReference("Pod", "shop", name),
        reason="Failed",
        type="Warning",
        source=EventSource("kubelet"),
        first_timestamp=at(first),
        last_timestamp=at(last),
        count=count,
    )


def counted(counts: dict[int, int], *, unknown: tuple[int, ...] = (), begins: int = -60, until: float = 60) -> Minutes:
    start = int(BEGUN.timestamp()) // 60
    by_minute = {start + minute: count for minute, count in counts.items()}
    return Minutes(
        {("shop", "Pod", "Warning", "Failed", "kubelet"): by_minute}, tuple(map(at, unknown)), at(begins), at(until)
    )


def told(rhythm: Rhythm) -> tuple[bool, list[tuple[float, float]]]:
    def minute(time: datetime) -> float:
        return (time - BEGUN).total_seconds() / 60

    return rhythm.own, [(minute(one.since), minute(one.until)) for one in rhythm.silences]


CASES = {
    "a steady loop has no silence": (seen(0.5, 9.5, 10), counted(dict.fromkeys(range(10), 1)), (True, [])),
    "it was quiet for a while": (
        seen(0.5, 30.5, 40),
        counted(dict.fromkeys([0, 1, 2, 29, 30], 8)),
        (True, [(3, 29)]),
    ),
    "its own pauses are no silence": (seen(0.5, 20.5, 5), counted(dict.fromkeys([0, 5, 10, 15, 20], 1)), (True, [])),
    "others are counted with it": (
        seen(0.5, 30.5, 20),
        counted(dict.fromkeys([0, 1, 2, 29, 30], 8)),
        (False, [(3, 29)]),
    ),
    "of a minute it is not known": (
        seen(0.5, 30.5, 40),
        counted(dict.fromkeys([0, 1, 2, 29, 30], 8), unknown=(20,)),
        (True, [(3, 20), (21, 29)]),
    ),
    "its beginning is forgotten": (
        seen(-90.5, 30.5, 200),
        counted(dict.fromkeys([0, 1, 30], 8), begins=-60),
        (False, [(-60, 0), (2, 30)]),
    ),
    "its clock goes before ours": (seen(0.5, 9.5, 3), counted({0: 3}, until=1.5), (True, [])),
    "it was published a minute late": (seen(0.9, 2.9, 3), counted({1: 1, 2: 1, 3: 1}), (True, [])),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_silences_are_longer_than_a_loop_of_its_pace_is_given(
    case: tuple[Event, Minutes, tuple[bool, list[tuple[float, float]]]],
) -> None:
    event, minutes, expected = case
    (rhythm,) = rhythms_of([event], minutes)
    assert told(rhythm) == expected


def test_events_that_are_counted_together_have_no_minutes_of_their_own() -> None:
    two = [seen(0.5, 9.5, 10), seen(0.5, 9.5, 10, name="web-1", uid="two")]
    found = rhythms_of(two, counted(dict.fromkeys(range(10), 1)))
    assert [rhythm.own for rhythm in found] == [False, False]


def test_what_happened_once_or_before_all_counts_has_no_rhythm() -> None:
    assert repeated([seen(0, 0, 1)]) == []
    assert rhythms_of([seen(-90, -70, 5)], counted({0: 5})) == ()
    assert len(repeated([seen(0, n, 2) for n in range(MOST_RHYTHMS + 5)])) == MOST_RHYTHMS


def test_it_is_counted_as_the_sink_counts_it() -> None:
    assert words_of(seen(0, 1, 2)) == ("shop", "Pod", "Warning", "Failed", "kubelet")
