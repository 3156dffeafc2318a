"""The rate of events is limited for each user, and a rejection says when to retry."""

from __future__ import annotations

import pytest

from eventbus.api import limits
from eventbus.api.limits import EventRate
from eventbus.api.status import ApiError
from eventbus.testing.clock import FakeClock


def refusals(rate: EventRate, user: str, times: int) -> int:
    refused = rate.refused
    for _ in range(times):
        try:
            rate.admit(user)
        except ApiError:
            continue
    return rate.refused - refused


def test_a_burst_passes_and_tokens_come_back_with_time() -> None:
    clock = FakeClock()
    rate = EventRate(per_s=2, burst=3, clock=clock)
    assert refusals(rate, "ann", 5) == 2
    assert refusals(rate, "bob", 3) == 0
    clock.advance(1)
    assert refusals(rate, "ann", 3) == 1


def test_a_large_batch_is_accepted_whole_and_the_next_request_waits() -> None:
    clock = FakeClock()
    rate = EventRate(per_s=2, burst=4, clock=clock)
    rate.admit("ann", 10)
    with pytest.raises(ApiError, match="user ann writes more than 2 events a second") as refused:
        rate.admit("ann")
    assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "4")  # six on credit, and one more
    rate.admit("bob")
    clock.advance(3.5)
    rate.admit("ann", 3)


def test_a_request_that_is_refused_takes_no_token() -> None:
    clock = FakeClock()
    rate = EventRate(per_s=1, burst=1, clock=clock)
    assert refusals(rate, "ann", 20) == 19
    clock.advance(1)
    assert refusals(rate, "ann", 1) == 0


def test_the_bucket_used_longest_ago_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USERS", 2)
    rate = EventRate(per_s=1, burst=1, clock=FakeClock())
    assert [refusals(rate, user, 1) for user in ("a", "b", "c", "a", "a")] == [0, 0, 0, 0, 1]
