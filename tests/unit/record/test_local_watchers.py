"""The rules of client-go's watch.Broadcaster as far as local watchers need them, and what ours adds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventbus.errors import ConfigError
from eventbus.model.event import Event
from eventbus.record.local_watchers import LocalWatcher, LocalWatchers
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.waiting import PATIENCE_S, eventually

NOW_NS = 1_763_719_000_000_000_000
ABOUT = make_reference(name="web-0")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(PATIENCE_S)
    assert not [thread.name for thread in left if thread.is_alive()]


def make(*, counts_refused: bool = True) -> tuple[LocalWatchers, Losses]:
    losses = Losses(SystemClock())
    return LocalWatchers(losses=losses, counts_refused=counts_refused), losses


def pending(message: object) -> Pending:
    return Pending(("c", "h"), ABOUT, "Normal", "Said", message, NOW_NS)  # type: ignore[arg-type]


class Slow:
    """A handler that stands in its first event until *go*."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def __call__(self, event: Event) -> None:
        self.inside.set()
        self.go.wait(PATIENCE_S)
        self.seen.append(event.message)


def stuck(watchers: LocalWatchers, queue_length: int) -> tuple[LocalWatcher, Slow]:
    """A watcher whose handler stands in the event `first`; its queue is empty."""
    slow = Slow()
    watcher = watchers.start(slow, queue_length)
    eventually(lambda: watcher._waiting)
    watchers.put(pending("first"))
    assert slow.inside.wait(PATIENCE_S)
    return watcher, slow


def into(seen: list[Any]) -> Callable[[Event], None]:
    return lambda event: seen.append(event.message)


def end(*watching: LocalWatcher) -> None:
    for watcher in watching:
        watcher.stop(PATIENCE_S)
        assert watcher.ended


def test_every_watcher_gets_every_event_in_order_and_then_the_end() -> None:
    watchers, losses = make()
    seen: list[list[str]] = [[], []]
    watching = [watchers.start(into(each), 10) for each in seen]
    for message in ("foo", "bar", "baz", "qux"):
        assert watchers.put(pending(message))
    watchers.close()
    end(*watching)
    assert seen == [["foo", "bar", "baz", "qux"]] * 2
    assert not losses.counts


def test_all_watchers_get_events_of_many_threads_in_one_order() -> None:
    watchers, losses = make()
    seen: list[list[str]] = [[], [], []]
    watching = [watchers.start(into(each), 2_000) for each in seen]
    threads = [
        threading.Thread(target=lambda name=name: [watchers.put(pending(f"{name} {i}")) for i in range(200)])
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    watchers.close()
    end(*watching)
    assert seen[0] == seen[1] == seen[2]
    for name in "abcd":
        assert [message for message in seen[0] if message[0] == name] == [f"{name} {i}" for i in range(200)]
    assert not losses.counts


def test_a_full_watcher_misses_what_came_later_counted_and_the_others_get_it() -> None:
    watchers, losses = make()
    watcher, slow = stuck(watchers, queue_length=2)
    seen: list[str] = []
    other = watchers.start(into(seen), 100)
    for message in "abcd":
        watchers.put(pending(message))
    assert watcher.missed == 2
    assert losses.counts == {"missed": 2}
    slow.go.set()
    end(watcher, other)
    assert slow.seen == ["first", "a", "b"]
    assert (seen, other.missed) == (list("abcd"), 0)


def test_a_queue_without_room_is_refused() -> None:
    watchers, _ = make()
    with pytest.raises(ConfigError, match="not 0"):
        watchers.start(print, 0)
    assert not watchers.running


def test_a_stopped_watcher_handles_what_it_holds_and_gets_no_more() -> None:
    watchers, _ = make()
    watcher, slow = stuck(watchers, queue_length=10)
    watchers.put(pending("held"))
    watcher.stop(0)
    watcher.stop(0)
    watchers.put(pending("late"))
    assert not watcher.ended
    slow.go.set()
    end(watcher)
    assert slow.seen == ["first", "held"]


def test_a_handler_may_stop_its_own_watcher_and_another_whose_queue_is_full() -> None:
    watchers, _ = make()
    other, slow = stuck(watchers, queue_length=1)
    seen: list[str] = []

    def handle(event: Event) -> None:
        seen.append(event.message)
        other.stop(0)
        own.stop()

    own = watchers.start(handle, 10)
    watchers.put(pending("a"))
    eventually(lambda: own.ended)
    watchers.put(pending("b"))
    slow.go.set()
    end(other)
    assert seen == ["a"]
    assert slow.seen == ["first", "a"]


def test_after_the_end_nothing_is_taken_and_no_watcher_stays() -> None:
    watchers, _ = make()
    watchers.close()
    watchers.close()
    assert not watchers.put(pending("late"))
    end(watchers.start(print, 10))
    assert not watchers.running


@pytest.mark.parametrize("counts_refused", [True, False])
def test_an_event_that_cannot_be_built_is_counted_once_unless_the_outbox_does(counts_refused: bool) -> None:
    watchers, losses = make(counts_refused=counts_refused)
    seen: list[list[str]] = [[], []]
    watching = [watchers.start(into(each), 10) for each in seen]
    watchers.put(pending(7))
    watchers.put(pending("good"))
    end(*watching)
    assert seen == [["good"]] * 2
    assert losses.counts == ({"refused": 1} if counts_refused else {})


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_no_watchers_and_can_start_some_even_if_the_lock_was_held() -> None:
    watchers, _ = make()
    watcher, slow = stuck(watchers, queue_length=10)
    watchers.put(pending("the parent's"))
    with watchers._lock, watchers._build_lock:
        child = os.fork()
        if child == 0:
            os._exit(_exit_code_of(lambda: _works_anew(watchers, watcher)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    slow.go.set()
    end(watcher)
    assert slow.seen == ["first", "the parent's"]


def _works_anew(watchers: LocalWatchers, inherited: LocalWatcher) -> bool:
    seen: list[Any] = []

    def use() -> None:  # in another thread, so that a lock that was inherited as held is not reentered
        fresh = watchers.start(into(seen), 10)
        watchers.put(pending("the child's"))
        fresh.stop(PATIENCE_S)
        seen.append(fresh.ended)

    watchers.reset_after_fork()
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return seen == ["the child's", True] and inherited.ended and not inherited._queue


def _exit_code_of(check: Callable[[], bool]) -> int:
    try:
        return 0 if check() else 1
    except BaseException:
        return 2


def test_a_signal_handler_may_record_while_its_own_thread_is_recording() -> None:
    watchers, _ = make()
    watcher = watchers.start(lambda _event: None, 1)
    handled = []

    def record(*_signal: object) -> None:
        watchers.put(pending("signal"))
        handled.append(1)

    former = signal.signal(signal.SIGVTALRM, record)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
    item = pending("0")
    try:
        eventually(lambda: [watchers.put(item) for _ in range(5_000)] and len(handled) >= 20)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
    end(watcher)
