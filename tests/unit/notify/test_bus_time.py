"""The time of the bus, if one of two clocks is wrong or Redis was away."""

from __future__ import annotations

import pytest

from eventbus.notify.bus_time import CLOCKS_DIFFER_MS, LONGEST_PAUSE_S, BusTime
from eventbus.testing.clock import FakeClock

HOUR_MS = 3_600_000


def machine_ms(clock: FakeClock) -> int:
    return clock.time_ns() // 1_000_000


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, 0, HOUR_MS])
def test_a_deadline_passes_at_the_earlier_time_and_an_event_arrives_at_the_later(wrong_ms: int) -> None:
    clock = FakeClock()
    time = BusTime(clock, machine_ms(clock) + wrong_ms)
    clock.advance(60)
    right_ms = machine_ms(clock)
    assert time.bus_ms == right_ms + wrong_ms
    assert time.earliest_ms == min(right_ms, right_ms + wrong_ms)
    assert time.latest_ms == max(right_ms, right_ms + wrong_ms)


def test_a_machine_whose_clock_is_far_off_does_not_count() -> None:
    clock = FakeClock()
    time = BusTime(clock, machine_ms(clock) + CLOCKS_DIFFER_MS + 1)
    assert time.earliest_ms == time.latest_ms == time.bus_ms


def test_a_long_pause_between_replies_begins_a_new_steady_time() -> None:
    clock = FakeClock()
    time = BusTime(clock, machine_ms(clock))
    for _ in range(5):
        clock.advance(LONGEST_PAUSE_S)
        time.take_reply(machine_ms(clock))
    assert time.steady_s == 5 * LONGEST_PAUSE_S
    clock.advance(LONGEST_PAUSE_S + 1)
    time.take_reply(machine_ms(clock))
    assert time.steady_s == 0
