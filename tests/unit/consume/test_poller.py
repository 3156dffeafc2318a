"""One thread for several partitions: what is ready is worked, and nobody is taken for silent whose reply has come."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from eventbus.consume.consumer import Consumer
from eventbus.consume.poller import ConsumerPoller
from eventbus.errors import EventBusError
from eventbus.testing.clock import FakeClock
from tests.waiting import eventually


class ScriptedConsumer:
    """What a poller asks of a consumer, with a socket that the test writes to. Notes what it was told."""

    def __init__(self, partition: int, on_finish: Callable[[], None] = lambda: None) -> None:
        self.partition = partition
        self.steps = 0
        self.withdrawn = False
        self.told: list[str] = []
        self.others_beat: dict[str, str] = {}
        self._on_finish = on_finish
        self._ours, self.server = socket.socketpair()

    def others(self) -> dict[str, str]:
        return self.others_beat

    def announce(self) -> None:
        self.told.append("announce")

    def begin(self) -> float:
        self.told.append("begin")
        return 0.0

    def finish(self) -> float:
        self._ours.recv(1)
        self.told.append("finish")
        self._on_finish()
        return 0.0

    def fail(self, _error: EventBusError) -> float:
        self.told.append("fail")
        return 1000.0

    def fileno(self) -> int:
        return self._ours.fileno()

    def stop(self) -> None:
        self.told.append("stop")
        self.server.send(b"\0")  # the read comes to its end

    def close(self, *, moved: bool) -> None:
        self.told.append(f"close moved={moved}")
        self.abandon()

    def abandon(self) -> None:
        self._ours.close()
        self.server.close()


@contextmanager
def running(clock: FakeClock) -> Iterator[ConsumerPoller]:
    poller = ConsumerPoller(clock=clock, block_ms=100, lock=threading.Lock(), on_stop=lambda: None)
    thread = threading.Thread(target=poller.run)
    thread.start()
    try:
        yield poller
    finally:
        poller.stop()
        thread.join(30)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def give(poller: ConsumerPoller, consumer: ScriptedConsumer) -> None:
    poller.take(cast(Consumer, consumer))


def test_a_reply_that_came_while_another_partition_was_worked_is_read(clock: FakeClock) -> None:
    other = ScriptedConsumer(1)

    def take_long() -> None:
        eventually(lambda: "begin" in other.told)
        other.server.send(b"\0")
        clock.advance(60)

    slow = ScriptedConsumer(0, take_long)
    with running(clock) as poller:
        give(poller, slow)
        give(poller, other)
        eventually(lambda: "begin" in slow.told and "begin" in other.told)
        slow.server.send(b"\0")
        eventually(lambda: "finish" in other.told)
        assert "fail" not in other.told


def test_a_read_that_is_never_answered_is_given_up(clock: FakeClock) -> None:
    silent = ScriptedConsumer(0)
    with running(clock) as poller:
        give(poller, silent)
        eventually(lambda: "begin" in silent.told)
        clock.advance(60)
        poller.give_up(5)  # wakes it
        eventually(lambda: "fail" in silent.told)


def test_what_is_given_up_is_let_go_of_behind_its_read_before_it_is_taken_again(clock: FakeClock) -> None:
    first, again = ScriptedConsumer(3), ScriptedConsumer(3)
    with running(clock) as poller:
        give(poller, first)
        eventually(lambda: poller.beating() == {3})
        poller.give_up(3)
        give(poller, again)
        eventually(lambda: "begin" in again.told)
        assert first.told[-2:] == ["finish", "close moved=True"]


def test_the_end_closes_all_and_ends_the_heartbeats(clock: FakeClock) -> None:
    consumers: list[Any] = [ScriptedConsumer(number) for number in range(3)]
    with running(clock) as poller:
        for consumer in consumers:
            give(poller, consumer)
        eventually(lambda: poller.beating() == {0, 1, 2})
    assert poller.beating() == frozenset()
    assert not poller.hangs
    assert not poller.runs
    assert [consumer.told[-1] for consumer in consumers] == ["close moved=False"] * 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_poller_that_dies_counts_as_one_that_hangs(clock: FakeClock) -> None:
    def fault() -> None:
        raise SystemExit

    dying = ScriptedConsumer(0, fault)
    with running(clock) as poller:
        give(poller, dying)
        eventually(lambda: "begin" in dying.told)
        dying.server.send(b"\0")
        eventually(lambda: poller.hangs)
        assert poller.beating() == frozenset()


def test_a_partition_that_another_still_works_waits(clock: FakeClock) -> None:
    waiting = ScriptedConsumer(0)
    waiting.others_beat = {"other": "1"}
    with running(clock) as poller:
        give(poller, waiting)
        eventually(lambda: poller._slots)
        assert "begin" not in waiting.told
        waiting.others_beat = {}
        clock.advance(1)
        poller.give_up(5)  # wakes it
        eventually(lambda: "begin" in waiting.told)


def test_a_partition_that_its_consumer_has_withdrawn_from_gets_no_heartbeats(clock: FakeClock) -> None:
    """Or nobody would take over what it has left there."""
    consumers = [ScriptedConsumer(number) for number in range(2)]
    with running(clock) as poller:
        for consumer in consumers:
            give(poller, consumer)
        eventually(lambda: poller.beating() == {0, 1})
        consumers[1].withdrawn = True
        assert poller.withdrawn == {1}
        assert poller.beating() == {0}
