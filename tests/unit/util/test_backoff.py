"""The back-off of the library: what the pauses are drawn from."""

from __future__ import annotations

import pytest

from eventbus.util.backoff import Backoff


def longest(_low: float, high: float) -> float:
    return high


def shortest(low: float, _high: float) -> float:
    return low


def test_the_pause_doubles_up_to_the_last() -> None:
    backoff = Backoff(first_s=0.1, last_s=1.0)
    assert [backoff.pause_s(n, longest) for n in range(1, 7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_full_jitter_goes_down_to_nothing_and_a_share_does_not() -> None:
    assert Backoff(first_s=2.0, last_s=9.0).pause_s(2, shortest) == 0.0
    assert Backoff(first_s=2.0, last_s=9.0, at_least=0.25).pause_s(2, shortest) == pytest.approx(1.0)


def test_any_number_of_failures_has_a_pause() -> None:
    backoff = Backoff(first_s=0.05, last_s=5.0)
    assert backoff.pause_s(0, longest) == pytest.approx(0.05)
    assert backoff.pause_s(10**9, longest) == 5.0


def test_chance_stays_within_the_bounds() -> None:
    backoff = Backoff(first_s=1.0, last_s=60.0, at_least=0.5)
    pauses = [backoff.pause_s(3) for _ in range(200)]
    assert all(2.0 <= pause <= 4.0 for pause in pauses)
    assert len(set(pauses)) > 100
