"""Measures how long a counter was watched standing still, on a clock of the test's."""

from __future__ import annotations

from eventbus.consume.heartbeat import LivenessObserver
from eventbus.testing.clock import FakeClock


def test_a_counter_stands_still_from_the_first_look_at_it_until_it_moves() -> None:
    clock = FakeClock()
    liveness = LivenessObserver(clock, longest_gap_s=5)
    assert liveness.observe({"a": "1"}) == {"a": 0}
    clock.advance(3)
    assert liveness.observe({"a": "1", "b": "1"}) == {"a": 3, "b": 0}
    clock.advance(2)
    assert liveness.observe({"a": "1", "b": "2"}) == {"a": 5, "b": 0}


def test_a_gap_counts_for_no_more_than_the_longest() -> None:
    clock = FakeClock()
    liveness = LivenessObserver(clock, longest_gap_s=5)
    liveness.observe({"a": "1"})
    clock.advance(600)
    assert liveness.observe({"a": "1"}) == {"a": 5}


def test_who_was_gone_begins_anew() -> None:
    clock = FakeClock()
    liveness = LivenessObserver(clock, longest_gap_s=5)
    for counters in ({"a": "1"}, {}, {"a": "1"}):
        clock.advance(3)
        assert liveness.observe(counters) == dict.fromkeys(counters, 0)
