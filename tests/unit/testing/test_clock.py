"""The clock that tests own."""

from __future__ import annotations

import threading

import pytest

from eventbus.testing.clock import FakeClock
from eventbus.util.clock import Clock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time_ns=1_000_000_000)


def test_time_stands_still_until_it_is_advanced(clock: FakeClock) -> None:
    fits: Clock = clock

    assert (fits.time_ns(), fits.monotonic()) == (1_000_000_000, 0.0)
    clock.advance(1.5)
    assert (fits.time_ns(), fits.monotonic()) == (2_500_000_000, 1.5)


def test_a_sleeper_wakes_when_its_time_has_come_and_not_before(clock: FakeClock) -> None:
    awake = threading.Event()

    def sleep() -> None:
        clock.sleep(2)
        awake.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    clock.wait_for_sleepers()
    clock.advance(1.999)
    assert not awake.wait(0.05)
    clock.advance(0.001)
    assert awake.wait(30)
    thread.join()


def test_a_sleeper_whose_time_has_come_is_not_waited_for_again(clock: FakeClock) -> None:
    thread = threading.Thread(target=clock.sleep, args=(1,))
    thread.start()
    clock.wait_for_sleepers()
    clock.advance(1)

    with pytest.raises(TimeoutError, match="0 threads sleep"):
        clock.wait_for_sleepers(timeout_s=0.01)
    thread.join()


def test_no_sleep_returns_at_once(clock: FakeClock) -> None:
    clock.sleep(0)
    clock.sleep(-1)


def test_time_does_not_go_back(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_sleeper_that_nobody_wakes_fails(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.testing.clock.PATIENCE_S", 0.01)

    with pytest.raises(AssertionError, match=r"the clock was not advanced by 3 s"):
        clock.sleep(3)
