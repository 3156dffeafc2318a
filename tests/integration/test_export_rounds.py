"""The rounds of an export: each is stored before the next is chosen, also if the sink or Redis fails in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eventbus.errors import BusUnavailable, SinkGone, SinkUnreachable
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import NOW
from eventbus.export.sink_writer import ExportStopped
from eventbus.model.event import Event
from tests.functions.partition import Partition
from tests.support.exporting import (
    MakeExporter,
    MemoryBatchSink,
    OwnTime,
    about,
    exporters,
    run_until_idle,
    status_of,
)


@pytest.fixture
def partition(embedded_url: str, prefix: str) -> Iterator[Partition]:
    made = Partition(embedded_url, prefix, burst=1_000, max_events=1_000)
    yield made
    made.close()


@pytest.fixture
def time() -> OwnTime:
    return OwnTime()


@pytest.fixture
def exporter_of(partition: Partition, time: OwnTime) -> Iterator[MakeExporter]:
    with exporters(partition.bus, time) as make_one:

        def make(sink: MemoryBatchSink, **options: Any) -> PartitionExporter:
            return make_one(sink, batch_events=1, **options)

        yield make


def failing_at_b(error: Exception) -> Callable[[Event], None]:
    def fail(event: Event) -> None:
        if event.message == "b":
            raise error

    return fail


def test_an_event_that_is_in_two_rounds_is_chosen_by_what_came_of_the_first(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    exporter = exporter_of(sink, start=NOW, outage="count")
    assert exporter.acquire()
    for _ in range(3):
        partition.record(about(1, "a"))
    run_until_idle(exporter)
    assert sink.verbs() == ["create", "patch", "patch"]
    assert [patch.version for patch in sink.patches] == ["theirs-1", "theirs-2"]


def test_what_the_sink_has_is_kept_before_it_is_waited_for(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemoryBatchSink()
    sink.fail = failing_at_b(SinkUnreachable("refused"))
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"), about(2, "b"))
    time.end_s = 100.0
    with pytest.raises(ExportStopped):
        run_until_idle(exporter)
    assert status_of(partition.bus).written == 1
    assert list(sink.counts()) == ["a"]


def test_a_sink_that_is_gone_in_the_second_round_leaves_the_first_kept(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    sink.fail = failing_at_b(SinkGone("gone"))
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"), about(2, "b"))
    with pytest.raises(SinkGone):
        run_until_idle(exporter)
    assert status_of(partition.bus).written == 1


def test_redis_that_is_away_between_two_rounds_loses_and_doubles_nothing(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(*[about(number, "abcd"[number]) for number in range(4)])
    real, left = exporter._store.returned, [2]

    def returned(keys: Sequence[str]) -> Any:
        if sink.rows and left[0]:
            left[0] -= 1
            raise BusUnavailable("Connection refused")
        return real(keys)

    exporter._store.returned = returned  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(BusUnavailable):
            run_until_idle(exporter)
        exporter._let_go()
        assert exporter.acquire()
    run_until_idle(exporter)
    assert sink.counts() == dict.fromkeys("abcd", 1)
    assert set(sink.deliveries.values()) == {1}
