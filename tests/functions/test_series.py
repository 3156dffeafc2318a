"""correlate_and_store.lua and refresh.lua on events of events.k8s.io, which form series."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from eventbus.model.event import Event, EventSeries, EventSource
from eventbus.store.stored import View, decode_stored
from tests.builders import make_packed_in_series
from tests.functions.conftest import MakePartition
from tests.functions.partition import MINUTE, T0, Partition

HOUR = 60 * MINUTE
#: T0 is 80 s after a full six minutes of the clock, and 800 s after a full half hour.
FULL_SIX, FULL_HALF_HOUR = T0 + 280_000, T0 + 1_000_000


@pytest.fixture
def series(make_partition: MakePartition) -> Partition:
    """A partition whose functions may touch the events that the sets of series name."""
    partition = make_partition(refresh_s=10)
    partition.client.besides = partition.keys.object + b"*"
    return partition


def record(partition: Partition, after_ms: int = 0, times: int = 1, **fields: Any) -> str:
    packed = make_packed_in_series(T0 + after_ms, **fields)
    return "".join(partition.record_deliveries(partition.deliver([packed] * times), at_ms=T0 + after_ms))


def at(after_ms: int) -> datetime:
    return datetime.fromtimestamp((T0 + after_ms) / 1000, UTC)


def refresh(partition: Partition, after_ms: int) -> int:
    """Do what the housekeeping does at that time."""
    due = partition.admin.zrange(partition.keys.index_refresh, 0, T0 + after_ms, byscore=True)
    return partition.call.refresh(partition.options, due, T0 + after_ms)


def written(partition: Partition) -> list[int]:
    """The counts of the stored events as they were written last; 0: of one that is no series."""
    answers = [answer.event for answer in partition.answers().values() if answer.event is not None]
    return sorted(event.occurrences for event in answers)


def test_the_first_two_events_are_written_and_the_others_counted(series: Partition) -> None:
    assert [record(series, n * 1000, note=f"note {n}") for n in range(4)] == ["c", "p", "u", "u"]

    (event,) = series.stored()
    assert event.series == EventSeries(4, at(3000))
    assert (event.message, event.event_time) == ("note 0", at(0))
    assert (event.count, event.first_timestamp, event.last_timestamp, event.source) == (0, None, None, EventSource())
    assert (event.action, event.reporting_component, event.reporting_instance) == ("Binding", "example.com/c", "one")
    assert series.letters() == "AM"
    assert written(series) == [2]
    counters = ("events", "created", "patched", "in_series", "suppressed")
    assert [series.meta(counter) for counter in counters] == [4, 1, 1, 2, 0]


def test_one_call_counts_a_series_once(series: Partition) -> None:
    assert record(series, times=30) == "c" + "p" + "u" * 28
    assert series.letters() == "A"
    assert [event.times_seen for event in series.stored()] == [30]


@pytest.mark.parametrize(
    "other",
    [
        {"controller": "example.com/d"},
        {"instance": "two"},
        {"reason": "Other"},
        {"action": "Scheduling"},
        {"type": "Warning"},
        {"name": "web-1"},
        {"uid": "u2"},
        {"related": "Node/n1"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_events_that_differ_in_this_field_are_of_two_series(series: Partition, other: dict[str, Any]) -> None:
    assert record(series) + record(series, **other) + record(series) == "ccp"


def test_a_series_ends_at_a_full_six_minutes_without_an_event_in_the_six_before(series: Partition) -> None:
    last = FULL_SIX - T0 + 1
    assert record(series) + record(series, last) == "cp"
    assert record(series, last + 12 * MINUTE - 2) == "u"
    last += 12 * MINUTE - 2
    assert record(series, FULL_SIX - T0 + 24 * MINUTE) == "c"

    assert [event.times_seen for event in sorted(series.stored(), key=lambda event: event.event_time or at(0))] == [
        3,
        1,
    ]


def test_an_event_at_a_full_six_minutes_is_none_of_the_six_before(series: Partition) -> None:
    full = FULL_SIX - T0
    assert record(series, full) + record(series, full + 6 * MINUTE) + record(series, full + 18 * MINUTE) == "cpc"


def test_a_batch_that_arrives_late_counts_and_moves_no_time_back(series: Partition) -> None:
    assert record(series, 5000) + record(series, 9000) + record(series, 2000) == "cpu"
    (event,) = series.stored()
    assert event.series == EventSeries(3, at(9000))


def test_the_count_is_written_at_each_half_hour_and_at_the_end(series: Partition) -> None:
    record(series)
    for n in range(1, 200):
        record(series, n * 10_000)
        refresh(series, n * 10_000)
    half = (FULL_HALF_HOUR - T0) // 10_000
    assert written(series) == [half + 1]
    assert [each.letter for each in series.raw_changes() if each.letter != "R"] == ["A", "M", "M"]

    assert refresh(series, 45 * MINUTE) == 1
    assert written(series) == [200]
    assert refresh(series, HOUR) == 0
    assert series.admin.zcard(series.keys.index_refresh) == 0


def test_a_refresh_shows_the_count_before_it_is_written(series: Partition) -> None:
    record(series, times=2)
    record(series, 1000)
    due = series.admin.zrange(series.keys.index_refresh, 0, -1)
    series.admin.zadd(series.keys.index_refresh, {due[0]: T0})

    assert refresh(series, 2000) == 1

    last = series.raw_changes()[-1]
    views = [decode_stored(last.packed, view) for view in (View.SHOWN, View.WRITTEN)]
    assert (last.letter, [event and event.times_seen for event in views]) == ("R", [3, 2])


def test_a_write_at_the_half_hour_lets_a_series_live_on(series: Partition) -> None:
    record(series, times=3)
    series.admin.zadd(series.keys.index_expiry, {key: 1 for key in series.answers()})
    assert record(series, 10 * MINUTE) == "u"
    refresh(series, FULL_HALF_HOUR - T0)
    (score,) = (score for _, score in series.admin.zrange(series.keys.index_expiry, 0, -1, withscores=True))
    assert score == FULL_HALF_HOUR + series.options.event_ttl_s * 1000


def test_an_ended_series_leaves_nothing_when_it_expires_and_a_running_one_its_count(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(event_ttl_s=60)
    partition.client.besides = partition.keys.object + b"*"
    now = time.time_ns() // 1_000_000 - T0
    record(partition, now, name="running", times=3)
    record(partition, now - HOUR, name="ended")
    partition.expire(in_ms=2 * MINUTE)  # the last count is written first
    assert written(partition) == [3]
    partition.expire(in_ms=4 * MINUTE)
    assert [answer.count for answer in partition.answers().values()] == [3]

    assert record(partition, now + 2 * MINUTE, name="running") == "r"
    (event,) = partition.stored()
    assert (event.times_seen, event.event_time) == (4, at(now))


def test_a_deleted_series_comes_back_with_its_count(series: Partition) -> None:
    now = time.time_ns() // 1_000_000 - T0
    record(series, now, times=3)
    (event,) = series.stored()
    series.store.delete(event.metadata.namespace, event.metadata.name)
    assert record(series, now + 1000) == "r"
    assert [event.times_seen for event in series.stored()] == [4]


def test_with_full_memory_no_series_begins_and_running_ones_are_counted(series: Partition) -> None:
    record(series)
    late = series.deliver([make_packed_in_series(T0 + 1000)], [make_packed_in_series(T0 + 1000, name="web-1")])
    with series.memory_full():
        assert series.record_deliveries(late, at_ms=T0 + 1000) == ["p", "m"]
    assert record(series, 2000, name="web-1") == "c"


@pytest.mark.parametrize(
    "corrupt",
    [b"\xc1", b"\x91\x01", b"\x97\xc2\xc2\xc2\xc2\xc2\xa0\x92\x01\x02"],
    ids=["no msgpack", "no set", "a number"],
)
def test_a_corrupt_set_begins_another_series(series: Partition, corrupt: bytes) -> None:
    record(series, times=3)
    (key,) = series.admin.scan_iter(match=series.keys.correlation + b"*", count=10_000)
    series.admin.set(key, corrupt)
    assert record(series, 1000) == "c"
    assert len(series.stored()) == 2


def test_neither_aggregation_nor_the_spam_filter_touches_a_series(make_partition: MakePartition) -> None:
    partition = make_partition(burst=0, max_events=1)
    partition.client.besides = partition.keys.object + b"*"
    assert "".join(record(partition, note=f"note {n}") for n in range(4)) == "cpuu"
    assert events_of(partition) == [("note 0", 4)]


@pytest.mark.parametrize("ahead_ms", [-2 * HOUR, -20 * MINUTE, 2 * HOUR])
def test_a_recorder_with_a_wrong_clock_makes_no_more_writes(series: Partition, ahead_ms: int) -> None:
    for n in range(20):
        packed = make_packed_in_series(T0 + n * 1000 + ahead_ms)
        series.record_deliveries(series.deliver([packed]), at_ms=T0 + n * 1000)
        refresh(series, n * 1000)

    assert series.letters().replace("R", "") == "AM"
    refresh(series, 30 * MINUTE)
    (event,) = series.stored()
    assert event.series == EventSeries(20, at(19_000 + ahead_ms))
    assert written(series) == [20]


def events_of(partition: Partition) -> list[tuple[str, int]]:
    events: list[Event] = partition.stored()
    return [(event.message, event.times_seen) for event in events]
