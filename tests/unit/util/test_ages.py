"""How old a moment is, whatever is done to the clock on the wall."""

from __future__ import annotations

from eventbus.util.clock import Ages
from tests.support.set_clock import SetClock


def test_an_age_grows_with_the_seconds_that_pass() -> None:
    clock = SetClock()
    ages = Ages(clock)
    moment_s = clock.time_ns() / 1e9 - 5

    assert round(ages.age_s("a", moment_s), 3) == 5
    clock.advance(7)
    assert round(ages.age_s("a", moment_s), 3) == 12


def test_a_clock_that_is_set_changes_no_age() -> None:
    clock = SetClock()
    ages = Ages(clock)
    moment_s = clock.time_ns() / 1e9
    ages.age_s("a", moment_s)
    for hour_s in (3600, -7200):
        clock.set_by(hour_s)
        clock.advance(1)

    assert round(ages.age_s("a", moment_s), 3) == 2


def test_a_moment_lies_between_the_most_and_now() -> None:
    clock = SetClock()
    now_s = clock.time_ns() / 1e9

    assert Ages(clock).age_s("a", now_s + 3600) == 0
    assert Ages(clock).age_s("a", now_s - 3600, most_s=4) == 4


def test_another_moment_under_the_same_key_has_an_age_of_its_own() -> None:
    clock = SetClock()
    ages = Ages(clock)
    ages.age_s("a", clock.time_ns() / 1e9)
    clock.advance(7)

    assert round(ages.age_s("a", clock.time_ns() / 1e9), 3) == 0
