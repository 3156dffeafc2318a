"""An export of a bus with many partitions: few threads, what one of them waits for, and leases that live on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from eventbus import EventBroadcaster, ObjectReference
from eventbus.broker.bus import Bus
from eventbus.broker.keys import partition_of
from eventbus.consume.poller import POLLERS
from eventbus.errors import SinkUnreachable, UnexpectedReply
from eventbus.export import worker
from eventbus.export.rules import ExportOptions
from eventbus.export.worker import ExportRunner
from eventbus.model.event import Event
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from tests.support.exporting import MemorySink
from tests.support.harness import settings_of
from tests.thin import one
from tests.waiting import eventually

PARTITIONS = 16
#: The pollers, a thread each for signs of life, housekeeping, the look for sink workers, and the test's own outbox.
MOST_THREADS = 2 * POLLERS + 3
OBJECTS = 100

MakeRunner = Callable[..., ExportRunner]


@pytest.fixture
def settings(prefix: str) -> Settings:
    return settings_of(prefix, partitions=PARTITIONS)


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, bus: Bus) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(embedded_url, settings=settings) as made:
        made.start_recording_to_sink()
        yield made


@pytest.fixture
def runner(bus: Bus) -> Iterator[MakeRunner]:
    """Starts a worker of a sink; ended behind the test."""
    with ExitStack() as stack:

        def make(sink: MemorySink, **options: float) -> ExportRunner:
            made = ExportRunner(
                bus=bus,
                make_sink=lambda: sink,
                clock=SystemClock(),
                options=ExportOptions(**options),  # type: ignore[arg-type]
                block_ms=200,
            )
            stack.callback(made.stop, 60)
            made.start()
            return made

        yield make


def web(number: int) -> ObjectReference:
    return ObjectReference("Pod", "default", f"web-{number}", uid=str(number))


def holds(runner: ExportRunner) -> int:
    """The partitions whose lease it has."""
    return sum(exporter.figures.holds for exporter in runner.exporters)


def signs(runner: ExportRunner) -> list[float]:
    """When each partition last gave a sign of life."""
    return [exporter.loop_health().last_progress for exporter in runner.exporters]


def says(broadcaster: EventBroadcaster, *numbers: int) -> None:
    recorder = broadcaster.new_recorder("test")
    for number in numbers:
        recorder.event(web(number), "Normal", "Tested", f"m {number}")


def test_many_partitions_are_exported_in_a_few_threads(broadcaster: EventBroadcaster, runner: MakeRunner) -> None:
    sink, before = MemorySink(), set(threading.enumerate())
    writing = runner(sink)
    for _ in range(2):
        says(broadcaster, *range(OBJECTS))
    eventually(lambda: sink.counts() == {f"m {number}": 2 for number in range(OBJECTS)})
    ours = [each.name for each in threading.enumerate() if each not in before and "export" in each.name]
    assert len(ours) <= POLLERS + 1, ours
    assert threading.active_count() - len(before) <= MOST_THREADS
    eventually(lambda: holds(writing) == PARTITIONS)
    assert {health.partition for health in writing.loop_health()} == set(range(PARTITIONS))


def test_a_sink_that_hangs_for_one_partition_holds_up_its_poller_alone_and_all_leases_live_on(
    broadcaster: EventBroadcaster, runner: MakeRunner
) -> None:
    sink, hangs, go_on = MemorySink(), threading.Event(), threading.Event()
    stuck = partition_of(web(0), PARTITIONS)

    def hang(event: Event) -> None:
        if event.message == "m 0":
            hangs.set()
            assert go_on.wait(3600)

    sink.fail = hang
    writing = runner(sink)
    try:
        eventually(lambda: holds(writing) == PARTITIONS)
        says(broadcaster, 0)
        assert hangs.wait(60)
        others = [n for n in range(1, OBJECTS) if partition_of(web(n), PARTITIONS) % POLLERS != stuck % POLLERS]
        says(broadcaster, *others)
        eventually(lambda: set(sink.counts()) >= {f"m {number}" for number in others})
        before = signs(writing)
        eventually(lambda: all(map(float.__gt__, signs(writing), before)))
        assert holds(writing) == PARTITIONS
    finally:
        go_on.set()
    says(broadcaster, *range(1, OBJECTS))
    eventually(lambda: set(sink.counts()) == {f"m {number}" for number in range(OBJECTS)})


@pytest.mark.parametrize(
    "error",
    one([pytest.param(SinkUnreachable("away"), id="away"), pytest.param(UnexpectedReply("odd"), id="tried again")]),
)
def test_a_partition_that_waits_for_its_event_to_be_taken_holds_up_no_other_of_its_poller(
    broadcaster: EventBroadcaster, runner: MakeRunner, error: Exception
) -> None:
    sink, refused, mended = MemorySink(), threading.Event(), threading.Event()
    stuck = partition_of(web(0), PARTITIONS)

    def fail(event: Event) -> None:
        if event.message == "m 0" and not mended.is_set():
            refused.set()
            raise error

    sink.fail = fail
    writing = runner(sink)
    eventually(lambda: holds(writing) == PARTITIONS)
    says(broadcaster, 0)
    assert refused.wait(60)
    neighbours = [n for n in range(1, OBJECTS) if shares_a_poller(stuck, web(n))]
    says(broadcaster, *neighbours)
    eventually(lambda: set(sink.counts()) >= {f"m {number}" for number in neighbours})
    assert "m 0" not in sink.counts()
    mended.set()
    eventually(lambda: "m 0" in sink.counts())


def shares_a_poller(partition: int, about: ObjectReference) -> bool:
    """Return True for another partition of the same poller."""
    own = partition_of(about, PARTITIONS)
    return own != partition and own % POLLERS == partition % POLLERS


@pytest.mark.volume
def test_all_partitions_together_keep_to_the_rate(broadcaster: EventBroadcaster, runner: MakeRunner) -> None:
    """A worker that is slower than it may be keeps to it too: this bound is one that a busy machine cannot break."""
    sink, times, rate = MemorySink(), list[float](), 100
    sink.fail = lambda _event: times.append(time.monotonic())
    writing = runner(sink, rate_per_s=rate)
    eventually(lambda: holds(writing) == PARTITIONS)
    begun = time.monotonic()
    says(broadcaster, *range(OBJECTS))
    eventually(lambda: len(sink.counts()) == OBJECTS)
    for number, when in enumerate(sorted(times), 1):
        assert number <= rate * (when - begun + 1) + 1, "never more than a second ahead"


@pytest.mark.volume
def test_control_without_signs_of_life_from_beside_the_leases_of_the_poller_are_taken_over(
    broadcaster: EventBroadcaster, runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.ExportPoller, "_beat", lambda _self: None)
    sink, hangs, go_on = MemorySink(), threading.Event(), threading.Event()

    def hang(_event: Event) -> None:
        hangs.set()
        assert go_on.wait(3600)

    sink.fail = hang
    writing = runner(sink, take_over_s=2.0)
    try:
        eventually(lambda: holds(writing) == PARTITIONS)
        says(broadcaster, 0)
        assert hangs.wait(60)
        standing_by = runner(MemorySink(), take_over_s=2.0)
        eventually(lambda: holds(standing_by) >= PARTITIONS // POLLERS)
    finally:
        go_on.set()
