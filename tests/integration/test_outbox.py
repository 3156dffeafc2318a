"""The outbox from outside: what was recorded is in the stream exactly once, or counted; nobody waits for Redis."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.broker.connection import plain_client
from eventbus.broker.connection.connect import make_client
from eventbus.broker.keys import Keys, partition_of
from eventbus.model.event import ObjectReference
from eventbus.record import resend
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.outbox import Outbox
from eventbus.record.recorder import EventRecorder
from eventbus.settings import MIB, FullBuffer, Settings
from tests.builders import make_reference
from tests.support.harness import (
    bus_with,
    frozen,
    kill_server,
    messages,
    own_server,
    read_incoming,
    settings_of,
    uids,
)
from tests.waiting import PATIENCE_S, eventually

POD = make_reference()
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def settings(prefix: str) -> Settings:
    return settings_of(prefix, flush_s=PATIENCE_S)


@pytest.fixture
def open_broadcaster() -> Iterator[Callable[..., EventBroadcaster]]:
    """Makes broadcasters that are shut down at the end of the test, whatever becomes of it."""
    made: list[EventBroadcaster] = []

    def make(url: str, settings: Settings) -> EventBroadcaster:
        made.append(EventBroadcaster(url, settings=settings))
        return made[-1]

    yield make
    for broadcaster in made:
        broadcaster.shutdown(0.2)


def record(recorder: EventRecorder, n: int, start: int = 0, about: ObjectReference = POD) -> None:
    for i in range(start, start + n):
        recorder.eventf(about, "Normal", "Counted", "%d", i)


def numbers(n: int, start: int = 0) -> list[str]:
    return [str(i) for i in range(start, start + n)]


# -- the straight way --------------------------------------------------------------------------------------------


def test_64_threads_lose_and_double_nothing_and_each_objects_order_is_kept(embedded_url: str, prefix: str) -> None:
    settings = settings_of(prefix, partitions=4, flush_s=PATIENCE_S)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        about = [make_reference(name=f"web-{n}", uid="") for n in range(64)]
        threads = [threading.Thread(target=record, args=(recorder, 100, 0, pod)) for pod in about]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read_incoming(embedded_url, settings)
    assert len(set(uids(events))) == len(events) == 6_400
    for pod in about:
        assert messages([event for event in events if event.involved_object == pod]) == numbers(100)
    with make_client(embedded_url) as client:
        filled = [client.xlen(Keys(prefix, p).incoming) > 0 for p in range(4)]
    assert all(filled)


# -- bad input, on its way ----------------------------------------------------------------------------------------


def test_what_the_flusher_refuses_is_counted_and_its_neighbours_arrive(embedded_url: str, settings: Settings) -> None:
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1, 0)
        recorder.event(POD, "Normal", "R" * 129, "too long")
        recorder.event(ObjectReference("Pod", "default", ""), "Normal", "Nameless", "no name")
        recorder.event(POD, "Normal", "Broken", "a\udcff\0b")
        record(recorder, 1, 1)
    assert messages(read_incoming(embedded_url, settings)) == ["0", "a��b", "1"]
    assert broadcaster.losses.counts == {"refused": 2}


# -- Redis away ----------------------------------------------------------------------------------------------------


def test_recording_does_not_wait_for_a_redis_that_stands_still(
    short_path: Path,
    settings: Settings,
    open_broadcaster: Callable[..., EventBroadcaster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_client, "REPLY_S", 3_600)  # so that the test's own timeout ends it if anybody waits
    with own_server(short_path) as server:
        broadcaster = open_broadcaster(server.url or "", settings)
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1)
        assert broadcaster.flush(60)
        with frozen(server.pid):
            record(recorder, 5_000, 1)
            assert not broadcaster.flush(0.05)
        assert broadcaster.flush(60)
        assert messages(read_incoming(server.url or "", settings)) == numbers(5_001)


def test_an_unreachable_redis_is_told_in_one_line_that_says_what_to_do(
    settings: Settings, open_broadcaster: Callable[..., EventBroadcaster], caplog: pytest.LogCaptureFixture
) -> None:
    broadcaster = open_broadcaster(NOWHERE, settings)
    record(broadcaster.new_recorder("c"), 3)
    eventually(lambda: "nothing listens there" in caplog.text)
    assert not broadcaster.flush(0.5)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "eventbus"]
    assert "nothing listens there: start the server or correct EVENTBUS_REDIS_URL" in line
    assert "events wait" in line


# -- exactly once --------------------------------------------------------------------------------------------------


def test_an_idle_producer_finds_out_that_redis_was_flushed_and_sends_again(
    short_path: Path, settings: Settings
) -> None:
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        record(broadcaster.new_recorder("c"), 100)
        assert broadcaster.flush(60)
        with make_client(server.url or "") as client:
            client.flushall()
        eventually(lambda: messages(read_incoming(server.url or "", settings)) == numbers(100))
        assert not broadcaster.losses.counts


@pytest.mark.parametrize("way", ["flush", "shutdown"])
def test_who_wants_to_be_sure_has_redis_asked(
    short_path: Path, settings: Settings, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        record(broadcaster.new_recorder("c"), 100)
        assert broadcaster.flush(60)
        eventually(lambda: broadcaster._outbox._asleep)
        with make_client(server.url or "") as client:
            client.flushall()
        monkeypatch.setattr(resend, "FIRST_S", 0.0)  # as if it had been a while ago, and no question had come yet
        assert getattr(broadcaster, way)(60)
        assert messages(read_incoming(server.url or "", settings)) == numbers(100)
        assert not broadcaster.losses.counts


def test_what_redis_lost_of_an_idle_partition_comes_back_while_the_others_are_busy(
    short_path: Path, prefix: str
) -> None:
    settings = settings_of(prefix, partitions=2)
    about = [make_reference(name=f"web-{n}", uid="") for n in range(64)]
    quiet, busy = (next(each for each in about if partition_of(each, 2) == partition) for partition in (0, 1))
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        record(recorder, 3, about=quiet)
        assert broadcaster.flush(60)
        incoming = Keys(prefix, 0).incoming
        with make_client(server.url or "") as client:
            client.delete(*client.keys(f"{prefix}:{{0}}:producer:*"))
            client.xdel(incoming, *(entry for entry, _ in client.xrange(incoming)))

            def comes_back() -> bool:
                record(recorder, 1, about=busy)  # always sooner than any question would come if it waited for this
                return bool(client.xlen(incoming))

            eventually(comes_back)
        assert not broadcaster.losses.counts


def test_a_redis_that_came_back_with_an_older_state_gets_its_tail_again(short_path: Path, settings: Settings) -> None:
    """A kill with `everysec` or a failover leaves such a state; here the append-only file is cut by hand."""
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        record(recorder, 10)
        assert broadcaster.flush(60)
        (log,) = short_path.glob("*/appendonlydir/*.incr.aof")
        begun = log.stat().st_size  # most of it is the library
        for start in range(10, 1_000, 10):
            record(recorder, 10, start)
            assert broadcaster.flush(60)
        server.stop()
        os.truncate(log, begun + (log.stat().st_size - begun) // 2)
        server.start()
        assert 0 < len(read_incoming(server.url or "", settings)) < 1_000
        record(recorder, 10, 1_000)
        assert broadcaster.flush(60)
        events = read_incoming(server.url or "", settings)
        assert messages(events) == numbers(1_010)
        assert len(set(uids(events))) == 1_010
        assert not broadcaster.losses.counts


# -- full ----------------------------------------------------------------------------------------------------------


def test_a_full_stream_keeps_events_in_the_buffer_names_who_holds_it_and_goes_on_when_there_is_room(
    embedded_url: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    bus = bus_with(embedded_url, settings, incoming_bytes=MIB)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        for i in range(200):
            recorder.event(POD, "Normal", "Large", f"{i:03}" + os.urandom(4_000).hex())
        eventually(lambda: "group 'sink' holds it; start its workers" in caplog.text)
        held = len(read_incoming(embedded_url, settings))
        assert 100 < held < 140  # 1 MiB of 8 KB each
        assert not broadcaster.losses.counts
        with make_client(embedded_url) as client:
            # What a sink worker and its housekeeping do in the end: all is acknowledged and trimmed.
            client.xgroup_setid(bus.keys[0].incoming, "sink", "$")
            bus.functions(client, 0).trim(bus.options)
        assert broadcaster.flush(60)
        assert len(read_incoming(embedded_url, settings)) == 200 - held


def test_a_full_buffer_drops_the_newest_and_counts_each(short_path: Path, prefix: str) -> None:
    settings = settings_of(prefix, buffer_events=1_000)
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1)
        assert broadcaster.flush(60)
        with frozen(server.pid):
            record(recorder, 5_000, 1)
        assert broadcaster.flush(60)
        kept = messages(read_incoming(server.url or "", settings))
        dropped = broadcaster.losses.counts["dropped"]
        assert len(kept) + dropped == 5_001
        assert kept[:1_001] == numbers(1_001)  # never an old one for a new one
        # The buffer, and what the flusher has in hand: a round trip's worth on its way, and the next one.
        assert len(kept) <= 1_001 + 2 * 8 * 64


@pytest.mark.parametrize(("bounds", "length"), [({"buffer_events": 50}, 1), ({"buffer_bytes": 100_000}, 15_000)])
def test_waiting_for_room_loses_nothing_and_ends_as_soon_as_there_is_some(
    embedded_url: str, prefix: str, bounds: dict[str, int], length: int
) -> None:
    settings = settings_of(prefix, **bounds, buffer_full=FullBuffer.WAIT, buffer_wait_s=3_600)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")

        def fill() -> None:
            for _ in range(100):
                recorder.event(POD, "Normal", "Said", "x" * length)

        threads = [threading.Thread(target=fill) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # who waited for a deadline would never come
    assert len(read_incoming(embedded_url, settings)) == 800
    assert not broadcaster.losses.counts


def test_waiting_for_room_has_a_deadline_and_then_drops(
    prefix: str, open_broadcaster: Callable[..., EventBroadcaster]
) -> None:
    settings = settings_of(prefix, buffer_events=10, buffer_full=FullBuffer.WAIT, buffer_wait_s=0.2)
    broadcaster = open_broadcaster(NOWHERE, settings)
    recorder = broadcaster.new_recorder("c")
    record(recorder, 10)
    began = time.perf_counter()
    record(recorder, 1, 10)
    assert time.perf_counter() - began > 0.15
    assert broadcaster.losses.counts == {"dropped": 1}


def test_shutdown_frees_those_who_wait_for_room(prefix: str, open_broadcaster: Callable[..., EventBroadcaster]) -> None:
    settings = settings_of(prefix, buffer_events=10, buffer_full=FullBuffer.WAIT, buffer_wait_s=60)
    broadcaster = open_broadcaster(NOWHERE, settings)
    recorder = broadcaster.new_recorder("c")
    record(recorder, 10)
    waiter = threading.Thread(target=record, args=(recorder, 1, 10))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    broadcaster.shutdown(0.1)
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()
    counts = broadcaster.losses.counts
    assert sum(counts.values()) == 11


# -- flush and close -----------------------------------------------------------------------------------------------


def test_flush_ends_while_others_go_on_recording(embedded_url: str, prefix: str) -> None:
    """Large events make many batches, so that something is always under way."""
    settings = settings_of(prefix, partitions=4)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        done = threading.Event()
        recorded = [0] * 4

        def go_on(n: int) -> None:
            while not done.is_set():
                recorder.event(make_reference(name=f"web-{n}"), "Normal", "Large", "x" * 10_000)
                recorded[n] += 1

        threads = [threading.Thread(target=go_on, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: min(recorded) > 100)
            recorder.event(POD, "Normal", "Marked", "")
            assert broadcaster.flush(PATIENCE_S)
        finally:
            done.set()
            for thread in threads:
                thread.join()


def test_a_shutdown_that_gives_up_ends_the_flush_of_another_thread(short_path: Path, settings: Settings) -> None:
    with own_server(short_path) as server:
        broadcaster = EventBroadcaster(server.url, settings=settings)
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1)
        assert broadcaster.flush(60)
        kill_server(server)
        record(recorder, 1, 1)
        flushed: list[bool] = []
        flushing = threading.Thread(target=lambda: flushed.append(broadcaster.flush(3_600)), daemon=True)
        flushing.start()
        eventually(lambda: broadcaster._outbox._marks)
        assert not broadcaster.shutdown(0.2)
        flushing.join(PATIENCE_S)
        assert flushed == [False]


def test_a_second_shutdown_says_what_the_first_said(settings: Settings) -> None:
    broadcaster = EventBroadcaster(NOWHERE, settings=settings)
    record(broadcaster.new_recorder("c"), 1)
    assert [broadcaster.shutdown(0.1), broadcaster.shutdown()] == [False, False]
    broadcaster.flush(3_600)  # else the test's own timeout ends it


def test_nothing_is_flushed_and_shut_down_at_once_without_redis(settings: Settings) -> None:
    idle = EventBroadcaster(NOWHERE, settings=settings)
    assert [idle.flush(3_600), idle.shutdown(3_600), idle.shutdown()] == [True] * 3


def test_closing_counts_what_never_reached_a_redis_that_is_unreachable(settings: Settings) -> None:
    broadcaster = EventBroadcaster(NOWHERE, settings=settings)
    record(broadcaster.new_recorder("c"), 700)
    assert not broadcaster.shutdown(0.3)
    assert broadcaster.losses.counts == {"unsent": 700}


def test_a_flush_is_true_within_its_time_if_nothing_but_an_answer_is_missing(
    short_path: Path, settings: Settings, open_broadcaster: Callable[..., EventBroadcaster]
) -> None:
    with own_server(short_path) as server:
        broadcaster = open_broadcaster(server.url or "", settings)
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1)
        assert broadcaster.flush(60)
        with frozen(server.pid):
            eventually(lambda: broadcaster._outbox._sender.check_under_way)
            assert broadcaster.flush(0.1)
            record(recorder, 1, 1)
            assert not broadcaster.flush(0.1)


@pytest.mark.parametrize("way", ["flush", "shutdown"])
def test_who_only_wants_to_be_sure_does_not_wait_for_a_redis_that_stands_still(
    short_path: Path, settings: Settings, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_client, "REPLY_S", 3_600)  # so that the test's own timeout ends it if anybody waits
    with own_server(short_path) as server:
        broadcaster = EventBroadcaster(server.url, settings=settings)
        record(broadcaster.new_recorder("c"), 1)
        assert broadcaster.flush(60)
        outbox = broadcaster._outbox
        with frozen(server.pid):
            eventually(lambda: outbox._sender.check_under_way)  # the idle ask by themselves
            assert getattr(broadcaster, way)(3_600)
            assert broadcaster.shutdown(3_600)
            assert not _outbox_threads()
        assert not broadcaster.losses.counts


def test_threads_that_record_during_shutdown_lose_nothing_uncounted(embedded_url: str, settings: Settings) -> None:
    """client-go's NonRacyShutdown, without the waiting."""
    broadcaster = EventBroadcaster(embedded_url, settings=settings)
    recorder = broadcaster.new_recorder("c")
    recorded = [0] * 8
    problems: list[BaseException] = []

    def go_on(n: int) -> None:
        try:
            while not broadcaster.losses.counts.get("refused", 0):
                record(recorder, 20, recorded[n])
                recorded[n] += 20
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=go_on, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: min(recorded) > 100)
    broadcaster.shutdown()
    for thread in threads:
        thread.join()
    assert not problems
    accepted = len(read_incoming(embedded_url, settings))
    assert accepted + sum(broadcaster.losses.counts.values()) == sum(recorded)


def _outbox_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "eventbus-outbox"]


def test_a_signal_handler_may_record_while_its_own_thread_records_the_first_event(
    embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes in the worst moment: while the flusher is being started."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "eventbus-outbox":
            signal.raise_signal(signal.SIGUSR1)
        start(thread)

    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        before = signal.signal(signal.SIGUSR1, lambda *_: record(recorder, 1, 1))
        try:
            monkeypatch.setattr(threading.Thread, "start", interrupted)
            record(recorder, 1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert broadcaster.flush(60)
        assert len(_outbox_threads()) == 1
    assert messages(read_incoming(embedded_url, settings)) == numbers(2)


def test_a_logging_handler_of_the_flusher_may_shut_everything_down(settings: Settings) -> None:
    broadcaster = EventBroadcaster(NOWHERE, settings=settings)
    ended = threading.Event()

    class ShutsDown(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            if threading.current_thread().name == "eventbus-outbox":
                broadcaster.shutdown(0.1)
                ended.set()

    handler = ShutsDown()
    logging.getLogger("eventbus").addHandler(handler)
    try:
        record(broadcaster.new_recorder("c"), 1)
        assert ended.wait(PATIENCE_S)
        eventually(lambda: not _outbox_threads())
        assert broadcaster.losses.counts == {"unsent": 1}
    finally:
        logging.getLogger("eventbus").removeHandler(handler)


class Raises(logging.Filter):
    """A fault in an application's own code of its log."""

    raised = 0

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def filter(self, _record: logging.LogRecord) -> bool:
        self.raised += 1
        raise self._error


@pytest.fixture(params=[ValueError("no such field"), SystemExit(1)], ids=["an error", "an exit"])
def raises(request: pytest.FixtureRequest) -> Iterator[Raises]:
    found = Raises(request.param)
    logger = logging.getLogger("eventbus")
    logger.addFilter(found)
    yield found
    logger.removeFilter(found)


def test_a_log_filter_that_raises_does_not_end_the_flusher(
    short_path: Path, prefix: str, raises: Raises, open_broadcaster: Callable[..., EventBroadcaster]
) -> None:
    settings = settings_of(prefix, buffer_events=100, buffer_full=FullBuffer.WAIT, buffer_wait_s=3_600)
    with own_server(short_path) as server:
        url = server.url or ""
        broadcaster = open_broadcaster(url, settings)
        recorder = broadcaster.new_recorder("c")
        record(recorder, 1)
        assert broadcaster.flush(PATIENCE_S)
        kill_server(server)
        record(recorder, 1, 1)
        eventually(lambda: raises.raised)
        server.start()
        record(recorder, 300, 2)
        assert broadcaster.flush(PATIENCE_S)
        assert messages(read_incoming(url, settings))[-300:] == numbers(300, 2)


def test_an_unforeseen_error_and_a_log_filter_that_raises_do_not_end_the_flusher(
    embedded_url: str,
    settings: Settings,
    raises: Raises,
    monkeypatch: pytest.MonkeyPatch,
    open_broadcaster: Callable[..., EventBroadcaster],
) -> None:
    whole = Outbox._round

    def fails_at_first(self: Outbox) -> bool:
        if not raises.raised:
            raise AttributeError("unforeseen")
        return whole(self)

    monkeypatch.setattr(Outbox, "_round", fails_at_first)
    broadcaster = open_broadcaster(embedded_url, settings)
    record(broadcaster.new_recorder("c"), 3)
    assert broadcaster.flush(PATIENCE_S)
    assert messages(read_incoming(embedded_url, settings)) == numbers(3)


# -- the end of the process ----------------------------------------------------------------------------------------

TOO_LATE = """
import sys
from eventbus import EventBroadcaster, ObjectReference, Settings

class Ends:
    def __init__(self):
        self.again, self.about = self, ObjectReference("Pod", "default", "web-0")
        settings = Settings(prefix=sys.argv[2], flush_s=3_600)
        self.recorder = EventBroadcaster(sys.argv[1], settings=settings).new_recorder("c")
        self.recorder.event(self.about, "Normal", "Counted", "0")
    def __del__(self):
        self.recorder.event(self.about, "Normal", "Counted", "1")

ends = Ends()
"""


def _run(program: str, url: str, prefix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, url, prefix],
        check=False,
        timeout=150,
        capture_output=True,
        text=True,
    )


def test_an_event_of_a_destructor_that_runs_when_nothing_can_be_imported_any_more_is_counted_at_once(
    embedded_url: str, settings: Settings
) -> None:
    ran = _run(TOO_LATE, embedded_url, settings.prefix)
    assert (ran.returncode, ran.stderr) == (0, "1 event unsent: closed before Redis had them\n")
    assert messages(read_incoming(embedded_url, settings)) == ["0"]


def test_events_are_sent_even_if_no_thread_can_start_any_more(
    embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that is shutting down starts no threads."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    broadcaster = EventBroadcaster(embedded_url, settings=settings)
    monkeypatch.setattr(threading, "Thread", NoThread)
    record(broadcaster.new_recorder("c"), 100)
    assert broadcaster.shutdown(60)
    monkeypatch.undo()
    assert messages(read_incoming(embedded_url, settings)) == numbers(100)
