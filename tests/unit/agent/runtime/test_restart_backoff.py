"""The pauses between runs of a container that ends again and again: the kubelet's table."""

from __future__ import annotations

from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.testing.clock import FakeClock


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
