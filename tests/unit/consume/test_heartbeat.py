"""Signs of life while there is work, and none for work that hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eventbus.consume import heartbeat as heartbeat_module
from eventbus.consume.heartbeat import Heartbeat
from eventbus.errors import BusUnavailable
from eventbus.testing.clock import FakeClock
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "EVERY_S", 0.001)


class Signs:
    def __init__(self) -> None:
        self.given = 0
        self.error: Exception | None = None

    def give(self) -> None:
        self.given += 1
        if self.error:
            raise self.error

    def more(self) -> None:
        """Wait for two more: the first may have been under way."""
        before = self.given
        eventually(lambda: self.given > before + 1)


@pytest.fixture
def signs() -> Signs:
    return Signs()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def steps() -> list[int]:
    return []


@pytest.fixture
def heart(signs: Signs, clock: FakeClock, steps: list[int]) -> Iterator[Heartbeat]:
    made = Heartbeat(signs.give, clock=clock, hung_s=10.0, progress=lambda: len(steps))
    yield made
    made.stop()


def test_signs_are_given_while_there_is_work_only(heart: Heartbeat, signs: Signs) -> None:
    with heart.working():
        signs.more()
    given = signs.given
    woken = threading.Event()
    woken.wait(0.02)  # twenty times what lies between two signs
    assert signs.given == given


def test_work_that_hangs_gives_none_until_it_gets_on(
    heart: Heartbeat, signs: Signs, clock: FakeClock, steps: list[int]
) -> None:
    with heart.working():
        signs.more()
        clock.advance(10.0)
        with heart._lock:  # one that was under way has ended
            given = signs.given
        threading.Event().wait(0.02)
        assert signs.given == given
        steps.append(1)
        signs.more()


@pytest.mark.parametrize("error", [BusUnavailable("away"), RuntimeError("a fault of ours")])
def test_a_sign_that_fails_is_not_the_last(heart: Heartbeat, signs: Signs, error: Exception) -> None:
    signs.error = error
    with heart.working():
        signs.more()


def test_a_heartbeat_that_never_worked_has_no_thread(signs: Signs, clock: FakeClock) -> None:
    heart = Heartbeat(signs.give, clock=clock, hung_s=10.0)
    heart.stop()
    heart.stop()
