"""The pauses between runs of a container that ends again and again: the kubelet's table."""

from __future__ import annotations

import pytest

from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.testing.clock import FakeClock
from tests.support.set_clock import SetClock


def pauses(runs_s: list[float]) -> list[float]:
    """The pause after each of *runs_s*."""
    clock, found = FakeClock(), []
    backoff = RestartBackoff(clock)
    for ran_s in runs_s:
        clock.advance(ran_s)
        ended_s = clock.time_ns() / 1e9
        found.append(round(backoff.left_s("a", ended_s), 3))
        clock.advance(found[-1])
        backoff.next("a", ended_s)
    return found


def test_pauses_double_up_to_five_minutes() -> None:
    assert pauses([1.0] * 9) == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_long_run_begins_the_table_anew() -> None:
    assert pauses([1.0, 1.0, 1.0, 601.0, 1.0, 1.0]) == [0, 10, 20, 0, 10, 20]


def test_a_pause_counts_from_the_end_of_the_run() -> None:
    clock = FakeClock()
    backoff = RestartBackoff(clock)
    ended_s = clock.time_ns() / 1e9
    backoff.next("a", ended_s)
    clock.advance(4.0)

    assert backoff.left_s("a", ended_s) == 6.0
    assert backoff.left_s("b", ended_s) == 0.0
    backoff.forget("a")
    assert backoff.left_s("a", ended_s) == 0.0


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_a_clock_that_is_set_neither_prolongs_a_pause_nor_ends_it(set_by_s: float) -> None:
    clock = SetClock()
    backoff = RestartBackoff(clock)
    backoff.next("a", clock.time_ns() / 1e9)
    clock.advance(1.0)
    ended_s = clock.time_ns() / 1e9
    before_s = backoff.left_s("a", ended_s)
    clock.set_by(set_by_s)
    clock.advance(4.0)

    assert (before_s, round(backoff.left_s("a", ended_s), 3)) == (10.0, 6.0)
    backoff.next("a", ended_s)
    assert backoff.pause_s("a") == 20.0, "a run of a second does not begin the table anew"


def test_a_clock_that_is_set_between_an_end_and_the_look_at_it_is_worth_no_pause() -> None:
    clock = SetClock()
    backoff = RestartBackoff(clock)
    backoff.next("a", clock.time_ns() / 1e9)
    clock.advance(1.0)
    ended_s = clock.time_ns() / 1e9
    clock.set_by(3600)

    assert backoff.left_s("a", ended_s) >= 9.0
