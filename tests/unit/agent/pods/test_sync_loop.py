"""The agent's loop: one message a turn, nobody starves, nothing ends it."""

from __future__ import annotations

from typing import Any

from eventbus.agent.pods.sync_loop import CHANNELS, CONFIG, HOUSEKEEPING, PLEG, PROBES, SYNC, SyncLoop
from eventbus.testing.clock import FakeClock


class Noting:
    """Handlers that note what they are given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def handlers(self) -> dict[str, Any]:
        return {name: lambda message, name=name: self.seen.append((name, message)) for name in CHANNELS}


def test_a_turn_handles_exactly_one_message() -> None:
    noting, clock = Noting(), FakeClock()
    loop = SyncLoop(noting.handlers(), clock=clock)
    loop.turn()  # the first tick of housekeeping
    loop.offer(CONFIG, 1)
    loop.offer(CONFIG, 2)
    assert loop.turn()
    assert noting.seen == [(HOUSEKEEPING, None), (CONFIG, 1)]


def test_no_channel_starves_behind_one_that_is_always_full() -> None:
    noting, clock = Noting(), FakeClock()
    loop = SyncLoop(noting.handlers(), clock=clock)
    for number in range(50):
        for channel in (CONFIG, PLEG):
            loop.offer(channel, number)
    loop.offer(PROBES, "probe")
    for _ in range(10):
        loop.turn()
    assert (PROBES, "probe") in noting.seen
    kinds = [channel for channel, _ in noting.seen]
    assert abs(kinds.count(CONFIG) - kinds.count(PLEG)) <= 4


def test_a_handler_that_raises_is_counted_and_the_loop_lives() -> None:
    noting, clock = Noting(), FakeClock()
    handlers = noting.handlers() | {PLEG: lambda _message: 1 / 0}
    loop = SyncLoop(handlers, clock=clock)
    loop.offer(PLEG, "x")
    loop.offer(CONFIG, "y")
    while loop.turn():
        pass
    assert loop.failures == {PLEG: 1}
    assert (CONFIG, "y") in noting.seen


def test_ticks_come_every_second_and_every_two_and_missed_ones_are_not_made_up_for() -> None:
    noting, clock = Noting(), FakeClock()
    loop = SyncLoop(noting.handlers(), clock=clock)
    for _ in range(40):
        while loop.turn():
            pass
        clock.advance(0.1)
    kinds = [channel for channel, _ in noting.seen]
    assert (kinds.count(SYNC), kinds.count(HOUSEKEEPING)) == (3, 2)
    clock.advance(60)
    while loop.turn():
        pass
    assert [channel for channel, _ in noting.seen].count(SYNC) == 4


def test_while_the_runtime_is_broken_nothing_is_taken(caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("eventbus.agent.pods.sync_loop.SKIP_S", 0.0)
    noting, clock, errors = Noting(), FakeClock(), ["PLEG is not healthy"]
    loop = SyncLoop(noting.handlers(), clock=clock, runtime_problem=lambda: "; ".join(errors))
    loop.offer(CONFIG, 1)
    assert not loop.turn()
    assert noting.seen == []
    assert "skipping pod synchronization: PLEG is not healthy" in caplog.text
    errors.clear()
    while loop.turn():
        pass
    assert (CONFIG, 1) in noting.seen


def test_the_progress_of_a_turn_counts_from_its_begin() -> None:
    clock = FakeClock()
    since: list[float] = []

    def slow(_message: Any) -> None:
        for _ in range(3):
            clock.advance(60)
            since.append(clock.monotonic() - loop.last_progress)
        loop.stop()

    loop = SyncLoop(Noting().handlers() | {CONFIG: slow}, clock=clock)
    loop.offer(CONFIG, 1)
    loop.run()
    assert since == [60, 120, 180]


def test_a_full_channel_refuses_who_does_not_wait() -> None:
    loop = SyncLoop(Noting().handlers(), clock=FakeClock(), room=1)
    assert loop.offer(PLEG, 1, wait=False)
    assert not loop.offer(PLEG, 2, wait=False)
    loop.stop()
    assert not loop.offer(CONFIG, 1)
