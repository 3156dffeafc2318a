"""What an export does while its sink is at a round: keeps the one before, reads and prepares the next, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eventbus.broker.exports import ExportCheckpoint
from eventbus.errors import BusUnavailable, SinkGone, SinkUnreachable
from eventbus.export.exporter import PartitionExporter
from eventbus.export.lease import LeaseLost
from eventbus.export.rules import NOW
from eventbus.export.sink_writer import ExportStopped
from eventbus.export.sinks import SinkAnswer, SinkWrite
from eventbus.model.event import Event
from tests.functions.partition import Partition
from tests.support.exporting import (
    MakeExporter,
    MemoryLaterSink,
    OwnTime,
    about,
    exporters,
    run_until_idle,
    status_of,
)


class NotedSink(MemoryLaterSink):
    """Has what is kept noted in its log as well."""

    def watch(self, exporter: PartitionExporter) -> None:
        kept = exporter._store.settle

        def settle(settled: ExportCheckpoint) -> bool:
            names = {event.metadata.name: event.message for event in self.rows.values()}
            self.log += [f"keep {names[state.name]}" for state in settled.returned.values() if state]
            return kept(settled)

        exporter._store.settle = settle  # type: ignore[method-assign]


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

        def make(sink: NotedSink, **options: Any) -> PartitionExporter:
            exporter = make_one(sink, batch_events=1, **options)
            sink.watch(exporter)
            return exporter

        yield make


def position_of(partition: Partition) -> int:
    (found,) = partition.admin.hmget(partition.keys.export + b"memory", ["position"])
    return int(found)


@pytest.mark.parametrize("listed", [False, True])
def test_a_round_is_kept_while_the_sink_is_at_the_next(
    partition: Partition, exporter_of: MakeExporter, listed: bool
) -> None:
    sink = NotedSink()
    exporter = exporter_of(sink, **({} if listed else {"start": NOW}))
    if not listed:
        assert exporter.acquire()
    for number in range(3):
        partition.record(about(number, "abc"[number]))
    if listed:
        assert exporter.acquire()
    else:
        run_until_idle(exporter)
    first, second, third = (line[-1] for line in sink.log if line.startswith("begin"))
    assert sink.log == [
        f"begin {first}",
        f"answer {first}",
        f"begin {second}",
        f"keep {first}",
        f"answer {second}",
        f"begin {third}",
        f"keep {second}",
        f"answer {third}",
        f"keep {third}",
    ]
    assert len(sink.rows) == 3
    assert set(sink.deliveries.values()) == {1}
    assert position_of(partition) == exporter._store.newest_version()


def test_what_is_written_was_prepared_while_the_sink_was_at_the_round_before(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    seen: list[object] = []

    class Sink(NotedSink):
        def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
            seen.extend(write.prepared for write in writes)
            return super().write(writes)

    exporter = exporter_of(Sink(), start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"), about(2, "b"))
    run_until_idle(exporter)
    assert seen == [None, "prepared b"]


def test_what_is_read_ahead_is_written_by_the_next_step(partition: Partition, exporter_of: MakeExporter) -> None:
    class Sink(NotedSink):
        def begin(self, writes: Sequence[SinkWrite]) -> Callable[[], Sequence[SinkAnswer]]:
            if not self.rows:
                partition.record(about(2, "b"))
            return super().begin(writes)

    sink = Sink()
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"))
    before = exporter._store.newest_version()
    assert exporter.step() == 1
    assert position_of(partition) == before, "what is read ahead is not written yet"
    assert list(sink.counts()) == ["a"]
    assert exporter.step() == 1
    assert list(sink.counts()) == ["a", "b"]
    assert position_of(partition) == exporter._store.newest_version()


def test_an_event_that_is_in_two_rounds_is_chosen_by_what_came_of_the_first(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = NotedSink()
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
    def fail(event: Event) -> None:
        if event.message == "b":
            raise SinkUnreachable("refused")

    class Sink(NotedSink):
        def begin(self, writes: Sequence[SinkWrite]) -> Callable[[], Sequence[SinkAnswer]]:
            if writes[0].event.message == "b":
                raise SinkUnreachable("refused")  # more than is allowed
            return super().begin(writes)

    sink = Sink()
    sink.fail = fail
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
    def fail(event: Event) -> None:
        if event.message == "b":
            raise SinkGone("gone")

    sink = NotedSink()
    sink.fail = fail
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"), about(2, "b"))
    with pytest.raises(SinkGone):
        run_until_idle(exporter)
    assert status_of(partition.bus).written == 1


def test_a_lease_that_is_lost_while_the_sink_writes_leaves_nothing_under_way(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = NotedSink()
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(about(1, "a"), about(2, "b"))
    exporter._store.settle = lambda settled: False  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        run_until_idle(exporter)
    assert not sink.under_way
    assert list(sink.counts()) == ["a", "b"]


def test_redis_that_is_away_while_the_sink_writes_loses_and_doubles_nothing(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = NotedSink()
    exporter = exporter_of(sink, start=NOW)
    assert exporter.acquire()
    partition.record(*[about(number, "abcd"[number]) for number in range(4)])
    real, left = exporter._store.returned, [2]

    def returned(keys: Sequence[str]) -> Any:
        if sink.under_way and left[0]:
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
