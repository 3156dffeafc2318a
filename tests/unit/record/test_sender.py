"""sender.py and outbox.py over a transport that is none of Redis': everything arrives once, whatever it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

import pytest

from eventbus.broker.bus import Bus
from eventbus.broker.keys import partition_of
from eventbus.broker.transport import BusDescription, PublishReply, PublishRequest, PublishStatus, Transport, nothing
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, unpack_batch, unpack_event
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.packing import Pending
from eventbus.record.spool.adopter import make_spool
from eventbus.settings import FullBuffer, Settings
from eventbus.testing.clock import FakeClock
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.waiting import PATIENCE_S, eventually

PARTITIONS = 3
NOW_NS = 1_763_719_000_000_000_000


class MemoryBus:
    """Keeps what was accepted by partition, and answers as the function `publish` does; a transport to itself."""

    def __init__(self, troubles: Sequence[str] = ()) -> None:
        self.accepted: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self.calls: list[list[PublishRequest]] = []
        self.closed = 0
        self._lasts: dict[str, int] = {}
        self._troubles = list(troubles)

    def describe(self) -> BusDescription:
        return BusDescription(PARTITIONS, 2)

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        self.calls.append(list(requests))
        meanwhile()
        trouble = self._troubles.pop(0) if self._troubles else ""
        if trouble == "no answer":
            raise BusUnavailable("no answer")
        answers = [self._publish(request, trouble) for request in requests]
        if trouble == "answer lost":
            raise BusUnavailable("the answer was lost")
        return answers

    def _publish(self, request: PublishRequest, trouble: str) -> PublishReply | EventBusError:
        if trouble == "partition 1 is full" and request.partition == 1:
            return PublishReply(PublishStatus.FULL, group="log")
        if trouble == "partition 1 fails" and request.partition == 1:
            return BusUnavailable("no way to the node")
        if trouble == "missing":
            return PublishReply(PublishStatus.MISSING)
        last = self._lasts.get(request.producer, 0)
        if request.first + request.events - 1 <= last:
            return PublishReply(PublishStatus.DUP, generation="g")
        if request.first != last + 1:
            return PublishReply(PublishStatus.GAP, last=last)
        self._lasts[request.producer] = last + request.events
        batch = unpack_batch(request.body)
        self.accepted[request.partition] += [unpack_event(event).message for event in batch.events]
        return PublishReply(PublishStatus.OK, generation="g")

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        return [self._lasts.get(producer, 0) for _, producer in producers]

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def record(outbox: Outbox, n: int) -> dict[int, list[str]]:
    """Put *n* events about many objects. Returns the messages of each partition, in order."""
    said: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    for i in range(n):
        about = make_reference(name=f"web-{i % 50}", uid="")
        outbox.put(Pending(("c", "h"), about, "Normal", "Said", str(i), NOW_NS + i))
        said[partition_of(about, PARTITIONS)].append(str(i))
    return said


@pytest.mark.parametrize(
    "troubles",
    [
        [],
        ["no answer", "no answer"],
        ["answer lost"],
        ["missing"],
        ["partition 1 is full", "partition 1 is full"],
        ["partition 1 fails", "answer lost", "missing"],
    ],
    ids=lambda troubles: ", ".join(troubles) or "none",
)
def test_everything_arrives_once_and_in_order_whatever_the_transport_answers(troubles: list[str]) -> None:
    bus, losses = MemoryBus(troubles), Losses(SystemClock())
    outbox = Outbox(connect=lambda: bus, settings=Settings(), clock=SystemClock(), losses=losses)
    said = record(outbox, 1_000)
    assert outbox.flush(60)
    assert bus.accepted == said
    assert outbox.close(5)
    assert not losses.counts
    assert bus.closed


def test_what_was_spooled_before_the_bus_was_reached_is_sent_when_it_is_there_though_nothing_follows(
    tmp_path: Path,
) -> None:
    bus, there, tries, losses = MemoryBus(), Event(), [0], Losses(SystemClock())
    settings = Settings(spool=str(tmp_path / "spool"))

    def connect() -> Transport:
        tries[0] += 1
        if not there.is_set():
            raise BusUnavailable("not yet")
        return bus

    def open_bus() -> Bus:
        raise BusUnavailable("not yet")

    spool = make_spool(
        url="redis://a:1/0", settings=settings, open_bus=open_bus, connect=connect, clock=SystemClock(), losses=losses
    )
    outbox = Outbox(connect=connect, settings=settings, clock=SystemClock(), losses=losses, make_spool=lambda: spool)
    said = record(outbox, 10)
    eventually(lambda: not outbox._items)  # all of it is in the spool
    before = tries[0]
    eventually(lambda: tries[0] > before + 1 or outbox._asleep)
    there.set()
    eventually(lambda: bus.accepted == said)
    assert outbox.close(5)


class SlowBus(MemoryBus):
    """Answers a `publish` once *go* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = Event()

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        self.go.wait(PATIENCE_S)
        return super().publish(requests, meanwhile)


def test_a_round_that_begins_as_the_spools_thread_falls_asleep_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flusher goes on only when the thread has fallen asleep after the wake-up, or has written."""
    bus, losses, clock = SlowBus(), Losses(SystemClock()), SystemClock()
    settings = Settings(spool=str(tmp_path / "spool"))
    spool, adopter = make_spool(
        url="redis://a:1/0",
        settings=settings,
        open_bus=lambda: pytest.fail("nothing is left to adopt"),
        connect=lambda: bus,
        clock=clock,
        losses=losses,
    )
    outbox = Outbox(
        connect=lambda: bus, settings=settings, clock=clock, losses=losses, make_spool=lambda: (spool, adopter)
    )
    writer = outbox._spool_writer
    assert writer
    wake = writer.watch

    def wake_early() -> None:
        wake()
        eventually(lambda: writer._asleep or spool.in_use)

    monkeypatch.setattr(writer, "watch", wake_early)
    said = record(outbox, 10)
    try:
        eventually(lambda: spool.in_use)
    finally:
        bus.go.set()
        assert outbox.close(60)
    assert bus.accepted == said


def test_a_round_has_as_many_batches_of_a_partition_as_the_bus_allows_and_all_partitions() -> None:
    bus = MemoryBus()
    outbox = Outbox(connect=lambda: bus, settings=Settings(), clock=SystemClock(), losses=Losses(SystemClock()))
    for item in range(2_000):
        about = make_reference(name=f"web-{item % 50}", uid="")
        outbox._items.append(Pending(("c", "h"), about, "Normal", "Said", str(item), NOW_NS))
    assert outbox.flush(60)
    assert outbox.close(5)
    for call in bus.calls:
        by_partition = [request.partition for request in call]
        assert all(by_partition.count(partition) <= 2 for partition in range(PARTITIONS))
        assert all(request.events <= MAX_BATCH_EVENTS for request in call)
    assert {request.partition for request in bus.calls[0]} == set(range(PARTITIONS))


def test_while_the_bus_works_the_next_round_trip_is_packed_and_what_fills_no_batch_is_left() -> None:
    bus, losses = MemoryBus(), Losses(SystemClock())
    outbox = Outbox(connect=lambda: bus, settings=Settings(), clock=SystemClock(), losses=losses)
    a_round = 2 * MAX_BATCH_EVENTS
    about = make_reference()
    outbox._items.extend(Pending(("c", "h"), about, "Normal", "Said", str(i), NOW_NS) for i in range(2 * a_round - 1))
    outbox._round()
    assert sum(request.events for request in bus.calls[0]) == a_round
    assert outbox._sender.pending == a_round - MAX_BATCH_EVENTS
    assert len(outbox._items) == MAX_BATCH_EVENTS - 1
    outbox._round()
    assert outbox._sender.idle
    assert sum(map(len, bus.accepted.values())) == 2 * a_round - 1


def test_what_is_held_for_a_partition_that_fails_does_not_grow_with_each_try() -> None:
    bus, losses, clock = MemoryBus(["partition 1 is full"] * 20), Losses(SystemClock()), FakeClock()
    settings = Settings(buffer_bytes=16_384)
    outbox = Outbox(connect=lambda: bus, settings=settings, clock=clock, losses=losses)
    sender = outbox._sender
    about = next(one for i in range(50) if partition_of(one := make_reference(name=f"web-{i}"), PARTITIONS) == 1)
    for _ in range(10 * MAX_BATCH_EVENTS):
        outbox._items.append(Pending(("c", "h"), about, "Normal", "Said", os.urandom(256).hex(), NOW_NS))
    outbox._round()
    held = sender.pending
    assert sum(batch.size for batch in sender.producers[1].waiting) > settings.buffer_bytes
    for tries in range(2, 6):
        clock.advance(60)  # it is due
        outbox._round()
        assert len(bus.calls) == tries
        assert sender.pending == held


def test_a_partition_that_works_again_leaves_the_whole_buffer_to_what_is_recorded_next() -> None:
    bus, losses = MemoryBus(["partition 1 is full"]), Losses(SystemClock())
    outbox = Outbox(connect=lambda: bus, settings=Settings(buffer_events=10), clock=SystemClock(), losses=losses)
    about = next(one for i in range(50) if partition_of(one := make_reference(name=f"web-{i}"), PARTITIONS) == 1)
    for number in range(20):
        outbox.put(Pending(("c", "h"), about, "Normal", "Said", str(number), NOW_NS))
        if number % 10 == 9:
            assert outbox.flush(60)
    assert outbox.close(5)
    assert losses.counts == {}
    assert len(bus.accepted[1]) == 20


@pytest.mark.parametrize("buffer_events", [1, 16])
def test_all_threads_that_wait_for_room_get_it(buffer_events: int) -> None:
    bus, losses = MemoryBus(), Losses(SystemClock())
    settings = Settings(buffer_events=buffer_events, buffer_full=FullBuffer.WAIT, buffer_wait_s=3600)
    outbox = Outbox(connect=lambda: bus, settings=settings, clock=SystemClock(), losses=losses)
    threads = [Thread(target=record, args=(outbox, 50), daemon=True) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert outbox.close(60)
    assert sum(map(len, bus.accepted.values())) == 500
    assert losses.counts == {}


def test_a_close_wakes_all_threads_that_wait_for_room() -> None:
    bus, losses = MemoryBus(["no answer"] * 10_000), Losses(SystemClock())
    settings = Settings(buffer_events=2, buffer_full=FullBuffer.WAIT, buffer_wait_s=3600)
    outbox = Outbox(connect=lambda: bus, settings=settings, clock=SystemClock(), losses=losses)
    threads = [Thread(target=record, args=(outbox, 2_000), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: outbox._waiters == 3)
    outbox.close(0)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_round_wakes_one_thread_while_the_buffer_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(
        connect=lambda: pytest.fail("no bus here"),
        settings=Settings(buffer_events=4),
        clock=SystemClock(),
        losses=Losses(SystemClock()),
    )
    woken: list[str] = []
    monkeypatch.setattr(outbox._room, "notify", lambda: woken.append("one"))
    monkeypatch.setattr(outbox._room, "notify_all", lambda: woken.append("all"))
    outbox._waiters = 2
    for events in range(1, 5):
        outbox._items.append(Pending(("c", "h"), make_reference(), "Normal", "Said", str(events), NOW_NS))
        outbox._notify_room()
    assert woken == ["all", "all", "one", "one"]


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_what_the_first_event_logs_holds_no_lock_that_an_event_of_another_thread_needs(closed: bool) -> None:
    """A logging handler has a lock of its own, and may record an event while it holds it."""

    def log_and_wait(*_: object) -> None:
        other = Thread(target=record, args=(outbox, 1), daemon=True)
        if not recorded.is_set():
            recorded.set()
            other.start()
            other.join(PATIENCE_S)
            ended.append(not other.is_alive())

    class LoggingLosses(Losses):
        def count(self, cause: str, n: int = 1, detail: str = "", mistake: str = "") -> None:
            log_and_wait()

    recorded, ended = Event(), list[bool]()
    outbox = Outbox(
        connect=MemoryBus,
        settings=Settings(),
        clock=SystemClock(),
        losses=LoggingLosses(SystemClock()),
        on_start=log_and_wait,
    )
    if closed:
        outbox.close(PATIENCE_S)
    record(outbox, 1)
    assert ended == [True]
    outbox.close(PATIENCE_S)
