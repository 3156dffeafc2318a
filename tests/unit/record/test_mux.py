"""The rules of client-go's watch.Broadcaster (its mux_test table), and what ours adds."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

import pytest

from eventbus.errors import BroadcasterStopped
from eventbus.record.mux import FullQueue, Mux, MuxWatcher, WatchEnded
from tests.waiting import PATIENCE_S, eventually

POLICIES = list(FullQueue)
P = ParamSpec("P")
R = TypeVar("R")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(PATIENCE_S)
    assert not [thread.name for thread in left if thread.is_alive()]


class DaemonPool:
    """A thread for each task; a daemon, so that a test that hangs fails instead of hanging the run."""

    def submit(self, task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()

        def run() -> None:
            try:
                future.set_result(task(*args, **kwargs))
            except BaseException as problem:
                future.set_exception(problem)

        threading.Thread(target=run, daemon=True).start()
        return future


@pytest.fixture
def pool() -> DaemonPool:
    return DaemonPool()


def stuck_mux(incoming_length: int) -> tuple[Mux[int], MuxWatcher[int]]:
    """A WAIT mux whose distributor holds item 0 for a watcher that nobody reads; incoming is empty."""
    mux: Mux[int] = Mux(full_queue=FullQueue.WAIT, incoming_length=incoming_length)
    watcher = mux.watch(queue_length=0)
    mux.action(0)
    eventually(lambda: not mux._incoming)
    return mux, watcher


# -- the mux_test table ------------------------------------------------------------------------------------------


def test_every_watcher_gets_every_item_in_order_and_then_the_end(pool: DaemonPool) -> None:
    mux: Mux[str] = Mux(full_queue=FullQueue.WAIT)
    readings = [pool.submit(list, mux.watch(queue_length=0)) for _ in range(2)]
    for item in ("foo", "bar", "baz", "qux"):
        mux.action(item)
    mux.shutdown()
    assert [reading.result() for reading in readings] == [["foo", "bar", "baz", "qux"]] * 2


def test_a_stopped_watcher_ends_and_stopping_it_again_is_harmless() -> None:
    mux: Mux[str] = Mux(full_queue=FullQueue.WAIT)
    first, second = mux.watch(0), mux.watch(0)
    first.stop()
    mux.shutdown()
    for watcher in (first, second):
        with pytest.raises(WatchEnded):
            watcher.get(timeout=0)
    first.stop()
    first.stop()
    second.stop()


def test_watchers_that_stop_each_other_do_not_deadlock_the_distributor(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.WAIT)
    one, two = mux.watch(0), mux.watch(0)

    def stop_the_other(mine: MuxWatcher[int], other: MuxWatcher[int]) -> None:
        with contextlib.suppress(WatchEnded):
            mine.get()
        other.stop()

    # Whoever is served first stops the other, on which the distributor stands or is about to.
    stoppers = [pool.submit(stop_the_other, one, two), pool.submit(stop_the_other, two, one)]
    mux.action(1)
    mux.action(2)
    for stopper in stoppers:
        stopper.result(PATIENCE_S)
    assert mux.shutdown(timeout=PATIENCE_S)


def test_a_handler_stops_the_watcher_the_distributor_is_stuck_on(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.WAIT)
    served, stuck = mux.watch(0), mux.watch(0)

    def stop_stuck_at_the_first_item() -> list[int]:
        seen = [served.get()]
        stuck.stop()
        return seen + list(served)

    reading = pool.submit(stop_stuck_at_the_first_item)
    for item in (1, 2, 3):
        mux.action(item)
    assert mux.shutdown(timeout=PATIENCE_S)
    assert reading.result() == [1, 2, 3]


def test_under_drop_a_full_watcher_misses_what_came_later_and_counts_it() -> None:
    mux: Mux[str] = Mux(full_queue=FullQueue.DROP)
    watchers = [mux.watch(queue_length=1) for _ in range(2)]
    mux.action("first")
    mux.action("second")
    mux.shutdown()
    assert [list(watcher) for watcher in watchers] == [["first"], ["first"]]
    assert [watcher.dropped for watcher in watchers] == [1, 1]


def test_under_drop_a_full_watcher_does_not_make_the_others_miss_anything() -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.DROP)
    small, large = mux.watch(queue_length=1), mux.watch(queue_length=5)
    for item in range(5):
        mux.action(item)
    mux.shutdown()
    assert (list(small), small.dropped) == ([0], 4)
    assert (list(large), large.dropped) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("prefix", [(), (1, 2)], ids=["plain", "with a prefix"])
def test_watching_after_shutdown_is_refused(prefix: tuple[int, ...]) -> None:
    mux: Mux[int] = Mux()
    mux.shutdown()
    with pytest.raises(BroadcasterStopped, match=r"^broadcaster already stopped$"):
        mux.watch(prefix=prefix)


@pytest.mark.parametrize("watched", [False, True], ids=["never watched", "watched"])
def test_sending_after_shutdown_is_refused(watched: bool) -> None:
    mux: Mux[int] = Mux()
    if watched:
        mux.watch()
    mux.shutdown()
    with pytest.raises(BroadcasterStopped, match=r"^broadcaster already stopped$"):
        mux.action(1)
    with pytest.raises(BroadcasterStopped, match=r"^broadcaster already stopped$"):
        mux.action_or_drop(1)


@pytest.mark.parametrize("policy", POLICIES)
def test_stopping_watchers_at_the_moment_of_shutdown_is_harmless(pool: DaemonPool, policy: FullQueue) -> None:
    for _ in range(50):
        mux: Mux[int] = Mux(full_queue=policy)
        watchers = [mux.watch(queue_length=1) for _ in range(4)]
        for item in range(3):
            mux.action_or_drop(item)
        start = threading.Barrier(len(watchers) + 1)

        def meet_and(act: Callable[[], object], start: threading.Barrier = start) -> None:
            start.wait()
            act()

        acts: list[Callable[[], object]] = [mux.shutdown, *(watcher.stop for watcher in watchers)]
        for done in [pool.submit(meet_and, act) for act in acts]:
            done.result(PATIENCE_S)


# -- Watch: nothing from before, everything from after ------------------------------------------------------------


def test_a_watcher_sees_nothing_accepted_before_it_even_if_not_yet_distributed(pool: DaemonPool) -> None:
    mux, stuck = stuck_mux(incoming_length=10)
    for item in (1, 2):
        mux.action(item)
    late = mux.watch()
    for item in (3, 4):
        mux.action(item)
    early_reading = pool.submit(list, stuck)
    mux.shutdown()
    assert early_reading.result() == [0, 1, 2, 3, 4]
    assert list(late) == [3, 4]


def test_a_watch_returns_at_once_while_the_distributor_is_stuck() -> None:
    mux, stuck = stuck_mux(incoming_length=1)
    mux.action(1)
    late = mux.watch()
    stuck.stop()
    mux.action(2)
    mux.shutdown()
    assert list(late) == [2]


def test_the_prefix_comes_first_and_leaves_room_for_one_more() -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.DROP)
    watcher = mux.watch(queue_length=1, prefix=[10, 11, 12])
    mux.action(1)
    mux.action(2)
    mux.shutdown()
    assert list(watcher) == [10, 11, 12, 1]


def test_a_queue_of_length_zero_drops_what_nobody_stands_waiting_for(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.DROP)
    watcher = mux.watch(queue_length=0)
    mux.action(1)
    eventually(lambda: watcher.dropped == 1)
    waiting = pool.submit(watcher.get)
    eventually(lambda: watcher._readers == 1)
    mux.action(2)
    assert waiting.result() == 2
    mux.shutdown()


# -- incoming -----------------------------------------------------------------------------------------------------


def test_without_a_watcher_everything_is_accepted_and_no_thread_is_started() -> None:
    before = threading.active_count()
    mux: Mux[int] = Mux(incoming_length=2)
    assert all(mux.action_or_drop(item) for item in range(1_000))
    for item in range(10):
        mux.action(item)
    assert threading.active_count() == before
    assert mux.dropped == 0
    assert mux.shutdown()


def test_the_distributor_is_a_daemon_with_the_given_name() -> None:
    mux: Mux[int] = Mux(name="eventbus-local-watch")
    mux.watch()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "eventbus-local-watch"]
    assert thread.daemon
    mux.watch()
    assert [thread.name for thread in threading.enumerate()].count("eventbus-local-watch") == 1
    mux.shutdown()


def test_action_or_drop_refuses_and_counts_when_incoming_is_full(pool: DaemonPool) -> None:
    mux, watcher = stuck_mux(incoming_length=3)
    assert [mux.action_or_drop(item) for item in (1, 2, 3, 4, 5)] == [True, True, True, False, False]
    assert mux.dropped == 2
    reading = pool.submit(list, watcher)
    mux.shutdown()
    assert reading.result() == [0, 1, 2, 3]


def test_action_waits_for_room(pool: DaemonPool) -> None:
    mux, watcher = stuck_mux(incoming_length=1)
    mux.action(1)
    waiting = pool.submit(mux.action, 2)
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.05)
    assert watcher.get() == 0
    waiting.result(PATIENCE_S)
    assert [watcher.get(), watcher.get()] == [1, 2]
    mux.shutdown()


def test_an_action_that_waits_for_room_is_refused_by_a_shutdown(pool: DaemonPool) -> None:
    mux, watcher = stuck_mux(incoming_length=1)
    mux.action(1)
    waiting = pool.submit(mux.action, 2)
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.05)
    assert not mux.shutdown(timeout=0)
    with pytest.raises(BroadcasterStopped):
        waiting.result(PATIENCE_S)
    assert list(watcher) == [0, 1]


def test_actions_that_wait_for_room_go_on_when_the_last_watcher_leaves(pool: DaemonPool) -> None:
    mux, watcher = stuck_mux(incoming_length=1)
    mux.action(1)
    waiting = [pool.submit(mux.action, item) for item in range(8)]
    watcher.stop()
    for action in waiting:
        action.result(PATIENCE_S)
    assert mux.shutdown(timeout=PATIENCE_S)


# -- shutdown and stop --------------------------------------------------------------------------------------------


def test_shutdown_distributes_what_is_queued_and_it_can_be_read_afterwards() -> None:
    mux: Mux[int] = Mux()
    watcher = mux.watch()
    for item in range(1_000):
        mux.action(item)
    assert mux.shutdown()
    assert list(watcher) == list(range(1_000))


def test_shutdown_a_second_time_is_a_no_op() -> None:
    mux: Mux[int] = Mux()
    watcher = mux.watch()
    mux.action(1)
    assert mux.shutdown()
    assert mux.shutdown()
    assert list(watcher) == [1]
    assert list(watcher) == []


def test_shutdown_under_wait_lasts_until_the_slow_watcher_has_room_or_stops() -> None:
    mux, watcher = stuck_mux(incoming_length=1)
    assert not mux.shutdown(timeout=0.05)
    watcher.stop()
    assert mux.shutdown(timeout=PATIENCE_S)


def test_what_a_stopped_watcher_holds_can_still_be_read_and_nothing_is_added() -> None:
    mux: Mux[int] = Mux()
    stopped, other = mux.watch(), mux.watch()
    mux.action(1)
    eventually(lambda: len(stopped._buffer) == 1)
    stopped.stop()
    mux.action(2)
    mux.shutdown()
    assert list(stopped) == [1]
    assert list(other) == [1, 2]


def test_stop_wakes_a_reader_that_waits(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux()
    watcher = mux.watch()
    readings: list[Future[list[int]]] = [pool.submit(list, watcher) for _ in range(3)]
    eventually(lambda: watcher._readers == 3)
    watcher.stop()
    assert [reading.result(PATIENCE_S) for reading in readings] == [[], [], []]
    mux.shutdown()


def test_a_handler_may_stop_its_own_watcher_while_the_distributor_waits_for_it(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.WAIT)
    watcher = mux.watch(queue_length=1)

    def stop_at_the_first() -> list[int]:
        seen = []
        for item in watcher:
            seen.append(item)
            watcher.stop()
        return seen

    for item in range(3):
        mux.action(item)
    eventually(lambda: not mux._incoming or len(watcher._buffer) == 1)
    assert pool.submit(stop_at_the_first).result(PATIENCE_S)[0] == 0
    assert mux.shutdown(timeout=PATIENCE_S)


def test_get_gives_up_after_its_timeout() -> None:
    mux: Mux[int] = Mux()
    watcher = mux.watch()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        watcher.get(timeout=0.05)
    assert time.monotonic() - started > 0.04
    mux.action(1)
    assert watcher.get(timeout=PATIENCE_S) == 1
    mux.shutdown()


@pytest.mark.parametrize("make", [lambda: Mux(incoming_length=0), lambda: Mux().watch(queue_length=-1)])
def test_a_length_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="is below"):
        make()


# -- fork and signals ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_gets_an_empty_mux_that_works_even_if_the_locks_were_held() -> None:
    mux, watcher = stuck_mux(incoming_length=3)
    mux.action(1)
    with mux._lock, watcher._lock:
        child = os.fork()
        if child == 0:
            os._exit(_exit_code_of(lambda: _mux_works_anew(mux, watcher)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (watcher.get(), watcher.get()) == (0, 1)
    mux.shutdown()


def _mux_works_anew(mux: Mux[int], inherited: MuxWatcher[int]) -> bool:
    # A thread of its own, so that a lock that was merely inherited as held is not reentered.
    answers = []

    def use() -> None:
        fresh = mux.watch(queue_length=10)
        mux.action(7)
        answers.append((fresh.get(timeout=PATIENCE_S), list(inherited), mux.dropped, mux.shutdown(timeout=PATIENCE_S)))

    mux.reset_after_fork()
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return answers == [(7, [], 0, True)]


def _exit_code_of(check: Callable[[], bool]) -> int:
    try:
        return 0 if check() else 1
    except BaseException:
        return 2


def test_a_mux_that_was_shut_down_stays_so_after_a_reset() -> None:
    mux: Mux[int] = Mux()
    mux.shutdown()
    mux.reset_after_fork()
    with pytest.raises(BroadcasterStopped):
        mux.watch()


def test_a_signal_handler_may_record_while_its_own_thread_is_recording() -> None:
    mux: Mux[int] = Mux(incoming_length=10)
    watcher = mux.watch(queue_length=1)
    handled = []

    def record(*_signal: object) -> None:
        mux.action_or_drop(1)
        handled.append(1)

    former = signal.signal(signal.SIGVTALRM, record)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
    try:
        eventually(lambda: [mux.action_or_drop(0) for _ in range(20_000)] and len(handled) >= 20)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
    watcher.stop()
    assert mux.shutdown(timeout=PATIENCE_S)


# -- under load ---------------------------------------------------------------------------------------------------


def test_under_load_nothing_is_lost_or_reordered_for_a_watcher_that_waits(pool: DaemonPool) -> None:
    producers, each = 4, 500
    mux: Mux[tuple[int, int]] = Mux(full_queue=FullQueue.WAIT, incoming_length=7)
    readings = [pool.submit(list, mux.watch(queue_length=length)) for length in (0, 1, 5)]

    def produce(producer: int) -> None:
        for number in range(each):
            mux.action((producer, number))

    for done in [pool.submit(produce, producer) for producer in range(producers)]:
        done.result()
    mux.shutdown()
    seen = [reading.result() for reading in readings]
    assert seen[0] == seen[1] == seen[2]
    for producer in range(producers):
        assert [number for who, number in seen[0] if who == producer] == list(range(each))


def test_under_load_a_watcher_that_comes_and_goes_sees_an_unbroken_run(pool: DaemonPool) -> None:
    mux: Mux[int] = Mux(full_queue=FullQueue.WAIT, incoming_length=5)
    accepted = [0]
    over = threading.Event()

    def come_and_go() -> int:
        turns = 0
        while not over.is_set():
            before = accepted[0]
            watcher = mux.watch(queue_length=3)
            run = [watcher.get(timeout=PATIENCE_S) for _ in range(4)]
            watcher.stop()
            run += list(watcher)
            assert run == list(range(run[0], run[0] + len(run)))
            assert run[0] >= before
            turns += 1
        return turns

    visitors = [pool.submit(come_and_go) for _ in range(4)]
    number = 0
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline or not all(visitor.done() for visitor in visitors):
        if time.monotonic() >= deadline:
            over.set()
        mux.action(number)
        number += 1
        accepted[0] = number
    assert all(visitor.result(PATIENCE_S) > 0 for visitor in visitors)
    assert mux.shutdown(timeout=PATIENCE_S)
