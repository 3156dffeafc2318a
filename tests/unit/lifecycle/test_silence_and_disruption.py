"""The two rules by which nodes are judged, on a clock of the test's own."""

from __future__ import annotations

from eventbus.lifecycle.silence import Disruption, SilenceObserver
from eventbus.testing.clock import FakeClock


def test_who_is_silent_for_his_grace_is_found_and_the_longest_silent_comes_first() -> None:
    clock = FakeClock()
    silence = SilenceObserver(clock)
    silence.expect("a", 40)
    clock.advance(10)
    silence.expect("b", 20)
    clock.advance(29)
    assert silence.silent(["a", "b", "stranger"]) == ["b"]
    clock.advance(1)
    assert silence.silent(["a", "b"]) == ["a", "b"]
    silence.heard("a", 40)
    assert silence.silent(["a", "b"]) == ["b"]
    assert (silence.has_renewed("a"), silence.has_renewed("b")) == (True, False)


def test_after_a_restart_every_grace_begins_anew_and_nobody_counts_as_moved() -> None:
    clock = FakeClock()
    silence = SilenceObserver(clock)
    silence.expect("a", 40)
    silence.heard("a", 40)
    clock.advance(100)
    silence.restart()
    assert not silence.is_silent("a")
    assert not silence.has_renewed("a")
    clock.advance(40)
    assert silence.is_silent("a")


def test_a_grace_of_a_day_goes_on_after_a_restart_with_ten_minutes_left_at_the_least() -> None:
    clock = FakeClock()
    silence = SilenceObserver(clock)
    silence.expect("a", 86_400)
    clock.advance(43_200)
    silence.restart()
    assert silence.silent_s("a") == 43_200
    clock.advance(43_190)
    silence.restart()
    clock.advance(599)
    assert not silence.is_silent("a")
    clock.advance(1)
    assert silence.is_silent("a")


def test_half_of_the_nodes_or_two_are_no_disruption() -> None:
    assert list(Disruption(FakeClock()).allowed(["a", "b"], 2)) == ["a", "b"]
    assert list(Disruption(FakeClock()).allowed(list("abcde"), 10)) == list("abcde")


def test_most_nodes_within_a_minute_are_let_go_one_by_one() -> None:
    clock = FakeClock()
    disruption = Disruption(clock)
    silent = list("abcdef")
    assert list(disruption.allowed(silent, 10)) == []
    assert disruption.is_on
    clock.advance(10)
    assert list(disruption.allowed(silent, 10)) == ["a"]
    disruption.marked("a")
    assert list(disruption.allowed(silent[1:], 10)) == []
    clock.advance(10)
    assert list(disruption.allowed(silent[1:], 10)) == ["b"]
    assert list(disruption.allowed(["c"], 10)) == ["c"]  # the others are back
    assert not disruption.is_on


def test_nodes_that_fall_silent_over_minutes_are_no_disruption() -> None:
    clock = FakeClock()
    disruption = Disruption(clock)
    for name in "abcdefgh":
        assert list(disruption.allowed([name], 10)) == [name]
        disruption.marked(name)
        clock.advance(45)
    assert not disruption.is_on
