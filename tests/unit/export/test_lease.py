"""The lease as who stands by sees it: when its holder is dead, and what is said. Time is the test's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from eventbus.broker.exports import ExportHold, ExportStore
from eventbus.errors import BusUnavailable
from eventbus.export.lease import ExportLease
from eventbus.testing.clock import FakeClock

TAKE_OVER_S = 25.0
LOOK_S = 3.0


class OthersLease:
    """Does what export_acquire does, for a worker that has not got the lease. *away*: Redis is."""

    def __init__(self) -> None:
        self.holder, self.beats, self.away = "one", 1, False

    def acquire(self, holder: str = "", beats: str = "") -> ExportHold:
        if self.away:
            raise BusUnavailable("refused")
        if self.holder in ("", "two") or (holder, beats) == (self.holder, str(self.beats)):
            self.holder = "two"
            return ExportHold(True, 7)
        return ExportHold(False, None, self.holder, str(self.beats))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> OthersLease:
    return OthersLease()


@pytest.fixture
def lease(store: OthersLease, clock: FakeClock) -> ExportLease:
    return ExportLease(cast(ExportStore, store), clock=clock, take_over_s=TAKE_OVER_S, title="export:x")


def looks(lease: ExportLease, clock: FakeClock, seconds: float, each: Callable[[], Any] = lambda: None) -> list[bool]:
    """Look every 3 s for *seconds*, and tell at which it was had."""
    found = []
    for _ in range(int(seconds / LOOK_S)):
        clock.advance(LOOK_S)
        each()
        found.append(lease.acquire() is not None)
    return found


def test_a_holder_that_was_watched_standing_still_is_dead(lease: ExportLease, clock: FakeClock) -> None:
    assert lease.acquire() is None
    assert looks(lease, clock, 27) == [False] * 8 + [True]


def test_a_holder_that_beats_now_and_then_lives(lease: ExportLease, clock: FakeClock, store: OthersLease) -> None:
    def beat() -> None:
        store.beats += clock.monotonic() % 24 == 0

    assert lease.acquire() is None
    assert not any(looks(lease, clock, 300, beat))


def test_redis_that_was_away_kept_the_holder_from_beating_too(
    lease: ExportLease, clock: FakeClock, store: OthersLease
) -> None:
    assert lease.acquire() is None
    store.away = True
    for _ in range(6):
        clock.advance(10)
        with pytest.raises(BusUnavailable):
            lease.acquire()
    clock.advance(3)
    store.away = False
    assert lease.acquire() is None, "this worker is back before the holder"
    assert not any(looks(lease, clock, 18)), "who has nearly as long as ever to come back"
    store.beats += 1
    assert not any(looks(lease, clock, 24))


def test_who_was_frozen_himself_has_not_seen_the_holder_stand_still(lease: ExportLease, clock: FakeClock) -> None:
    assert lease.acquire() is None
    clock.advance(600)
    assert lease.acquire() is None
    assert looks(lease, clock, 21) == [False] * 6 + [True]


def test_who_stands_by_says_once_for_whom_and_when_no_more(
    lease: ExportLease, clock: FakeClock, store: OthersLease, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventbus")

    def beat() -> None:
        store.beats += 1

    assert lease.acquire() is None
    looks(lease, clock, 60, beat)
    assert caplog.messages == ["export:x stands by: one writes"]
    store.holder = "three"
    looks(lease, clock, 60, beat)
    assert caplog.messages[1:] == ["export:x stands by: three writes"]
    store.holder = ""
    assert lease.acquire()
    assert caplog.messages[2:] == ["export:x acquired the lease, which was free"]


def test_a_worker_that_takes_over_says_from_whom_and_one_that_is_alone_says_nothing(
    lease: ExportLease, clock: FakeClock, store: OthersLease, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventbus")
    lease.acquire()
    looks(lease, clock, 27)
    assert caplog.messages == ["export:x stands by: one writes", "export:x: took over from one"]
    caplog.clear()
    assert lease.acquire()
    assert caplog.messages == []
