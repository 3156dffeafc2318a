"""Occurrences a minute, as the sink workers count them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbus.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.store.occurrences import Occurrences, OccurrencesRead, read_occurrences
from tests.builders import make_reference
from tests.support.harness import bus_with, settings_of
from tests.waiting import eventually


def total(found: OccurrencesRead) -> int:
    return sum(row.count for row in found.rows)


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_occurrence_is_counted_in_its_minute_also_what_is_held_back(
    embedded_url: str, prefix: str, partitions: int
) -> None:
    settings = settings_of(prefix, partitions=partitions)
    bus = bus_with(embedded_url, settings)
    before = datetime.now(UTC)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster, bus.client() as client:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("c")
        for number in range(60):
            recorder.event(make_reference(name=f"web-{number % 3}"), "Normal", "Said", "the same")
        recorder.event(ObjectReference("Node", "", "n1"), "Warning", "NotReady", "gone")
        assert broadcaster.flush(5)
        eventually(lambda: total(read_occurrences(bus, client, before, datetime.now(UTC))) == 61)
        found = read_occurrences(bus, client, before - timedelta(days=1), datetime.now(UTC) + timedelta(days=1))
        earlier = read_occurrences(bus, client, before - timedelta(hours=2), before - timedelta(hours=1))
    sums: dict[tuple[str, ...], int] = {}
    for row in found.rows:
        assert before.replace(second=0, microsecond=0) <= row.minute <= datetime.now(UTC)
        words = (row.namespace, row.kind, row.type, row.reason)
        sums[words] = sums.get(words, 0) + row.count
    assert sums == {("default", "Pod", "Normal", "Said"): 60, ("default", "Node", "Warning", "NotReady"): 1}
    assert earlier.rows == ()
    assert timedelta(hours=5, minutes=58) < before - found.begins <= timedelta(hours=6)


def test_rows_are_summed_over_partitions_and_what_has_no_name_is_one_row(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix, partitions=2), occurrences_s=600)
    now = datetime.now(UTC)
    minute = int(now.timestamp()) // 60
    with bus.client() as client:
        for keys in bus.keys:
            client.hset(
                keys.occurrences + b"%d" % minute, mapping={"a\0Pod\0Normal\0R": "2", "other": "5", "x\0y": "1"}
            )
            client.hset(keys.occurrences + b"%d" % (minute - 1), mapping={"a\0Pod\0Normal\0R": "1", "b\0P\0N\0R": "?"})
            client.hset(keys.occurrences + b"%d" % (minute - 30), mapping={"too\0old\0to\0tell": "1"})
        found = read_occurrences(bus, client, now - timedelta(hours=1), now)
    this = datetime.fromtimestamp(minute * 60, UTC)
    assert found.rows == (
        Occurrences(this - timedelta(minutes=1), "a", "Pod", "Normal", "R", 2),
        Occurrences(this - timedelta(minutes=1), "b", "P", "N", "R", 0),
        Occurrences(this, "", "", "", "", 12),
        Occurrences(this, "a", "Pod", "Normal", "R", 4),
    )


def test_a_bus_that_counts_none_has_none(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix), occurrences_s=0)
    now = datetime.now(UTC)
    with bus.client() as client:
        found = read_occurrences(bus, client, now - timedelta(hours=1), now)
    assert found.rows == ()
    assert now - found.begins < timedelta(minutes=1, seconds=1)
