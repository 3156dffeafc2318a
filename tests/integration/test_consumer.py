"""Workers of a group: they survive what happens to Redis and to each other, and nothing is counted twice or lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.keys import SINK_GROUP
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.consume import consumer as consumer_module
from eventbus.consume import heartbeat
from eventbus.consume.consumer import Consumer, consumer_name
from eventbus.consume.group_runner import GroupRunner
from eventbus.correlate.store_recorded_events import StoreSink, sink_worker
from eventbus.errors import EventBusError
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.testing.clock import FakeClock
from eventbus.util.backoff import Backoff
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.starting import STRICT, Process, start_piped
from tests.support.harness import (
    CuttingProxy,
    bus_with,
    kill_server,
    own_server,
    pass_time,
    stored_events,
)
from tests.waiting import PATIENCE_S, eventually

POD = make_reference()


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(consumer_module, "BEAT_EVERY_S", 0.05)
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.05)


def open_for(url: str, settings: Settings) -> Bus:
    return bus_with(url, settings, burst=1_000_000)


@contextmanager
def sink_running(bus: Bus, **more: Any) -> Iterator[GroupRunner]:
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20, **more)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


@contextmanager
def consuming(bus: Bus, handle: Callable[..., Sequence[bytes]], **more: Any) -> Iterator[Consumer]:
    """A consumer of the group `sink` with a handler of the test's."""
    made: dict[str, Any] = {"name": consumer_name(), "group": SINK_GROUP, "clock": SystemClock(), "block_ms": 20} | more
    consumer = Consumer(bus=bus, partition=0, handle=handle, handle_alone=lambda *_given: True, **made)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield consumer
    finally:
        consumer.stop()
        thread.join(30)


def record(broadcaster: EventBroadcaster, n: int, *, batch: int = 10) -> None:
    """*n* events in entries of at most *batch*."""
    recorder = broadcaster.new_recorder("c")
    for i in range(n):
        recorder.eventf(POD, "Normal", "Counted", "%d", i % 7)
        if i % batch == batch - 1:
            assert broadcaster.flush(60)
    assert broadcaster.flush(60)


def counted(bus: Bus) -> int:
    return sum(event.count for event in stored_events(bus))


def nothing_waits(bus: Bus) -> bool:
    with bus.client() as client:
        infos: Any = client.xinfo_groups(bus.keys[0].incoming)
    return all(info["pending"] == 0 and info["last-delivered-id"] != b"0-0" for info in infos)


# -- Redis comes and goes ------------------------------------------------------------------------------------------


def test_a_worker_that_loses_redis_waits_goes_on_and_says_so_once(short_path: Path, settings: Settings) -> None:
    with own_server(short_path, appendfsync="always") as server:
        bus = open_for(server.url or "", settings)
        changes: list[str] = []
        with (
            EventBroadcaster(server.url, settings=settings) as broadcaster,
            sink_running(bus, on_change=lambda reason, _message: changes.append(reason)),
        ):
            record(broadcaster, 100)
            eventually(lambda: counted(bus) == 100)
            kill_server(server)
            eventually(lambda: changes == ["LostRedis"])
            server.start()
            record(broadcaster, 100)
            eventually(lambda: counted(bus) == 200)
            eventually(lambda: changes == ["LostRedis", "Reconnected"])  # said behind the round that recorded


def test_a_reply_that_is_lost_on_its_way_to_a_worker_loses_no_event(short_path: Path, settings: Settings) -> None:
    """The batch stays pending for the worker that never got it, and is handled after the reconnect."""
    handled: list[bytes] = []
    cuts = iter([False] * 12 + [True])
    cutting = False

    def handle(_reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        handled.extend(delivery.id for delivery in deliveries)
        return [delivery.id for delivery in deliveries]

    with (
        own_server(short_path) as server,
        CuttingProxy(server.url or "", lambda: cutting and next(cuts, False)) as proxy,
    ):
        bus = open_for(proxy.url, settings)
        with EventBroadcaster(server.url, settings=settings) as broadcaster, consuming(bus, handle):
            cutting = True
            for _ in range(60):
                record(broadcaster, 1)
            eventually(lambda: proxy.cuts == 1)
            eventually(lambda: len(handled) >= 60)
            eventually(lambda: nothing_waits(bus))
        with make_client(server.url or "") as client:
            entries: Any = client.xrange(bus.keys[0].incoming)
    assert handled == [entry_id for entry_id, _ in entries]


@pytest.mark.parametrize("destroy", ["the group", "the stream", "everything", "the functions"])
def test_a_worker_lives_on_when_something_is_destroyed_under_it(
    short_path: Path, settings: Settings, destroy: str
) -> None:
    with own_server(short_path) as server:
        bus = open_for(server.url or "", settings)
        incoming = bus.keys[0].incoming
        with (
            EventBroadcaster(server.url, settings=settings) as broadcaster,
            sink_running(bus),
            make_client(server.url or "") as client,
        ):
            record(broadcaster, 100)
            eventually(lambda: counted(bus) == 100)
            bus.functions(client, 0).trim(bus.options)  # what housekeeping does each second: the floor moves up
            match destroy:
                case "the group":
                    client.xgroup_destroy(incoming, SINK_GROUP)
                case "the stream":
                    client.delete(incoming)
                case "everything":
                    client.flushall()  # the producer sends its ring again, so that the count is what it was
                case "the functions":
                    client.function_flush()
            record(broadcaster, 100)
            eventually(lambda: counted(bus) >= 200)
            eventually(lambda: nothing_waits(bus))
            assert counted(bus) == 200


# -- workers come and go -------------------------------------------------------------------------------------------

#: Reads as a sink worker does and says so; then does what the first line of its input says.
HOLDER = """
import sys
from eventbus.broker.bus import open_bus
from eventbus.util.clock import SystemClock
from eventbus.errors import EventBusError
from eventbus.consume import consumer
from eventbus.correlate.store_recorded_events import StoreSink
from eventbus.settings import Settings

bus = open_bus(sys.argv[1], Settings(prefix=sys.argv[2]))
sink = StoreSink(bus, 0)

def handle(reader, deliveries):
    half = len(deliveries) // 2
    sink.handle(reader, deliveries[:half])
    print("holds", len(deliveries) - half, flush=True)
    sys.stdin.readline()
    return sink.handle(reader, deliveries[half:])

consumer.HUNG_S = 0  # as if it had been standing there for ten minutes
worker = consumer.Consumer(
    bus=bus, partition=0, group="sink", name="holder", handle=handle, handle_alone=sink.handle_alone,
    clock=SystemClock(),
)
worker.run()
"""


@contextmanager
def holder(url: str, settings: Settings) -> Iterator[tuple[Process, int]]:
    """A worker process that stands in the middle of its work: half is recorded, half, so many entries, is only read."""
    command = [sys.executable, "-c", HOLDER, url, settings.prefix]
    with start_piped(command, env=os.environ | STRICT) as (process, _, stdout, _):
        try:
            said, held = stdout.readline().split()
            assert said == b"holds"
            yield process, int(held)
        finally:
            process.send_signal(signal.SIGKILL)


def test_what_a_killed_worker_had_begun_is_finished_by_another_and_counted_once(
    embedded_url: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_for(embedded_url, settings)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        record(broadcaster, 400)
    with holder(embedded_url, settings) as (process, held):
        assert 0 < counted(bus) < 400
        process.send_signal(signal.SIGKILL)
        process.wait()
        with sink_running(bus, take_over_s=0.3):
            eventually(lambda: counted(bus) == 400)
            eventually(lambda: nothing_waits(bus))
            eventually(lambda: "holder" not in _workers(bus) and _workers(bus) == _consumers(bus))
    assert f"took over {held} batches from holder" in caplog.text
    assert counted(bus) == 400


def slow_once(handled: list[bytes], done: threading.Event) -> Callable[..., Sequence[bytes]]:
    """A handler that is not through with the first batch anybody gives it before *done*."""

    def handle(_reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        first = not handled
        handled.extend(delivery.id for delivery in deliveries)
        if first:
            done.wait(2 * PATIENCE_S)  # longer than anybody waits for what must not happen
        return [delivery.id for delivery in deliveries]

    return handle


def test_a_slow_handler_is_not_a_dead_one(embedded_url: str, settings: Settings) -> None:
    bus = open_for(embedded_url, settings)
    handled: list[bytes] = []
    clock, done = FakeClock(), threading.Event()
    handle = slow_once(handled, done)
    with (
        EventBroadcaster(embedded_url, settings=settings) as broadcaster,
        consuming(bus, handle, take_over_s=0.5, clock=clock),
        consuming(bus, handle, take_over_s=0.5, clock=clock),
    ):
        eventually(lambda: len(_workers(bus)) == 2)
        record(broadcaster, 1)
        eventually(lambda: handled)
        pass_time(clock, bus, 2, step_s=0.06)
        done.set()
        eventually(lambda: nothing_waits(bus))
        with bus.client() as client:
            assert not client.exists(bus.keys[0].attempts + b"sink")
    assert len(handled) == 1


def test_a_handler_that_hangs_is_taken_over(
    embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "HUNG_S", 0.2)
    bus = open_for(embedded_url, settings)
    handled: list[bytes] = []
    done = threading.Event()
    handle = slow_once(handled, done)
    with (
        EventBroadcaster(embedded_url, settings=settings) as broadcaster,
        consuming(bus, handle, take_over_s=0.3),
        consuming(bus, handle, take_over_s=0.3),
    ):
        record(broadcaster, 1)
        eventually(lambda: len(handled) >= 2)
        eventually(lambda: nothing_waits(bus))
        done.set()


def test_workers_that_could_all_not_work_for_long_take_nothing_from_each_other(
    embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hinders one often hinders all: none of them beats, and the first to come back must not think them dead."""
    monkeypatch.setattr(consumer_module, "BACKOFF", Backoff(first_s=0.1, last_s=0.1))
    monkeypatch.setattr(consumer_module, "BEAT_EVERY_S", 0.5)  # mostly, the last look saw the last beat
    bus, broken, held = open_for(embedded_url, settings), threading.Event(), set[str]()
    clock = FakeClock()
    broken.set()

    def handle(reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        held.add(reader.consumer)
        if broken.is_set():
            raise EventBusError("nobody can work now")
        return [delivery.id for delivery in deliveries]

    with (
        EventBroadcaster(embedded_url, settings=settings) as broadcaster,
        consuming(bus, handle, take_over_s=1.5, clock=clock) as one,
        consuming(bus, handle, take_over_s=1.5, clock=clock) as two,
    ):
        eventually(lambda: len(_workers(bus)) == 2)
        pass_time(clock, bus, 1, step_s=0.6)
        clock.advance(0.2)
        eventually(
            lambda: min(one._take_over._next_check, two._take_over._next_check) > clock.monotonic()
        )  # each has seen the other alive
        record(broadcaster, 1)
        eventually(lambda: len(held) == 1)
        record(broadcaster, 1)  # one that fails reads nothing new: this is the other's
        eventually(lambda: len(held) == 2)
        clock.advance(2)
        broken.clear()
        eventually(lambda: nothing_waits(bus))
        pass_time(clock, bus, 1, step_s=0.6)
        assert [each.loop_health().counts["taken_over_batches"] for each in (one, two)] == [0, 0]


def test_two_workers_share_and_count_each_event_once(embedded_url: str, settings: Settings) -> None:
    bus = open_for(embedded_url, settings)
    with (
        EventBroadcaster(embedded_url, settings=settings) as broadcaster,
        sink_running(bus),
        sink_running(bus),
        sink_running(bus),
    ):
        record(broadcaster, 3_000, batch=20)
        eventually(lambda: counted(bus) >= 3_000)
        assert counted(bus) == 3_000
        assert len(stored_events(bus)) == 7


def test_what_a_server_never_heard_was_done_is_done_again(embedded_url: str, settings: Settings) -> None:
    """So it is with a replica that takes over between two calls: the client connects again, and no error tells."""
    bus = open_for(embedded_url, settings)
    handled: list[bytes] = []

    def handle(_reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        ids = [delivery.id for delivery in deliveries]
        handled.extend(ids)
        return ids

    with (
        EventBroadcaster(embedded_url, settings=settings) as broadcaster,
        consuming(bus, handle, name="one"),
        bus.client() as client,
    ):
        record(broadcaster, 10)
        eventually(lambda: nothing_waits(bus))
        before = list(handled)
        client.xclaim(bus.keys[0].incoming, SINK_GROUP, "one", 0, before, force=True)
        eventually(lambda: handled == before * 2 and nothing_waits(bus))


def test_a_fault_in_the_handler_is_logged_and_the_same_entries_are_tried_again(
    embedded_url: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_for(embedded_url, settings)
    sink = StoreSink(bus, 0)
    calls: list[int] = []

    def handle(reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        calls.append(len(deliveries))
        if len(calls) < 3:
            raise RuntimeError("a fault of ours")
        return sink.handle(reader, deliveries)

    with EventBroadcaster(embedded_url, settings=settings) as broadcaster, consuming(bus, handle):
        record(broadcaster, 10)
        eventually(lambda: counted(bus) == 10)
    assert "a fault of ours" in caplog.text


def _consumers(bus: Bus) -> set[str]:
    with bus.client() as client:
        infos: Any = client.xinfo_consumers(bus.keys[0].incoming, SINK_GROUP)
    return {info["name"].decode() for info in infos}


def _workers(bus: Bus) -> set[str]:
    with bus.client() as client:
        beats: Any = client.hgetall(bus.keys[0].workers)
    return {field.decode().partition("/")[2] for field in beats}
