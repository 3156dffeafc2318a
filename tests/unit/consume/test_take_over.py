"""Whose deliveries are taken over, and after how long."""

from __future__ import annotations

import pytest

from eventbus.consume.consumer import CHECK_EVERY_S, LEFT_S, TAKE_OVER_S, TakeOver
from eventbus.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("counter", "after_s"),
    [("7", TAKE_OVER_S), ("", LEFT_S)],
    ids=["a counter that stands still", "a counter that was taken away"],
)
def test_who_is_dead_is_taken_over_as_soon_as_it_is_certain(counter: str, after_s: float) -> None:
    clock = FakeClock()
    others = TakeOver(clock, after_s=TAKE_OVER_S, block_ms=1000)
    found, watched_s = others.dead({"left": counter}), 0.0
    while watched_s < after_s:
        assert found == {}
        clock.advance(CHECK_EVERY_S / 3)
        watched_s += CHECK_EVERY_S / 3
        found = others.dead({"left": counter})
    assert found == {"left": counter}


def test_who_lost_its_counter_and_beats_again_lives() -> None:
    clock = FakeClock()
    others = TakeOver(clock, after_s=TAKE_OVER_S, block_ms=1000)
    for counter in ("7", "", "1", "", "1"):
        assert others.dead({"lives": counter}) == {}
        clock.advance(CHECK_EVERY_S)
