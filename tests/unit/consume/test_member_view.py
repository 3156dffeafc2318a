"""Who counts as a living member of a group, and when a partition's former worker has let go. Time is the test's."""

from __future__ import annotations

import pytest

from eventbus.broker.health.status import HEARTBEAT_S
from eventbus.consume.poller import HAND_OVER_S, HandOver
from eventbus.consume.rebalancer import FORGET_S, STILL_S, MemberView
from eventbus.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def just(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.fixture
def view(clock: FakeClock) -> MemberView:
    return MemberView("me", clock)


def test_who_is_alone_says_so_at_once(view: MemberView) -> None:
    assert view.look({"me": "1"}) == just("me")
    assert MemberView("me", FakeClock()).look({}) == just("me"), "its own counter may have been flushed"


def test_whom_it_finds_counts_when_his_counter_moves(view: MemberView, clock: FakeClock) -> None:
    assert view.look({"a": "7", "dead": "9"}) is None
    clock.advance(0.5)
    assert view.look({"a": "8", "dead": "9"}) is None
    clock.advance(HEARTBEAT_S)
    assert view.look({"a": "8", "dead": "9"}) == just("me", "a")
    clock.advance(1)
    assert view.look({"a": "9", "dead": "10"}) == just("me", "a", "dead"), "it lives after all"


def test_it_is_never_too_early_when_all_that_were_found_live(view: MemberView, clock: FakeClock) -> None:
    assert view.look({"a": "7"}) is None
    clock.advance(0.5)
    assert view.look({"a": "8"}) == just("me", "a")


def test_who_comes_later_counts_at_once_and_who_leaves_no_more(view: MemberView, clock: FakeClock) -> None:
    view.look({"me": "1"})
    clock.advance(1)
    assert view.look({"a": "1"}) == just("me", "a")
    clock.advance(1)
    assert view.look({}) == just("me")


def test_who_stands_still_is_dead_until_he_moves(view: MemberView, clock: FakeClock) -> None:
    view.look({})
    view.look({"a": "1"})
    seen = []
    for _ in range(int(STILL_S) + 1):
        clock.advance(1)
        seen.append(view.look({"a": "1"}) == just("me", "a"))
    assert seen == [True] * (int(STILL_S) - 1) + [False] * 2
    clock.advance(1)
    assert view.look({"a": "2"}) == just("me", "a")


def test_what_was_not_watched_does_not_count(view: MemberView, clock: FakeClock) -> None:
    """Redis was away: nobody could beat."""
    view.look({})
    view.look({"a": "1"})
    clock.advance(100)
    assert view.look({"a": "1"}) == just("me", "a")


def test_the_dead_are_forgotten_after_a_minute(view: MemberView, clock: FakeClock) -> None:
    view.look({"a": "1"})
    for _ in range(int(FORGET_S)):
        assert view.dead == ()
        clock.advance(1)
        view.look({"a": "1"})
    assert view.dead == ("a",)


def test_a_partition_that_nobody_works_is_begun_at_once(clock: FakeClock) -> None:
    assert HandOver(clock, ()).is_over({})
    assert HandOver(clock, {"b"}).is_over({"b": "3"}), "it is shared with him"


def test_a_partition_is_begun_when_its_worker_has_let_go(clock: FakeClock) -> None:
    over = HandOver(clock, ())
    for beats in range(8):
        assert not over.is_over({"a": str(beats)})
        clock.advance(1)
    assert over.is_over({})


def test_a_dead_one_is_waited_for_no_longer_than_a_living_one_beats(clock: FakeClock) -> None:
    over = HandOver(clock, ())
    assert not over.is_over({"a": "3", "never": ""})
    clock.advance(HEARTBEAT_S)
    assert over.is_over({"a": "3", "never": ""})


def test_one_who_lives_and_does_not_let_go_is_not_waited_for_for_ever(clock: FakeClock) -> None:
    over = HandOver(clock, ())
    beats = 0
    while not over.is_over({"a": str(beats)}):
        beats += 1
        clock.advance(1)
    assert beats == HAND_OVER_S
