"""Losses: every one counted, each cause told at most once in ten seconds, with the number."""

from __future__ import annotations

import logging
import signal
import threading

import pytest

from eventbus.record.losses import Losses
from eventbus.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def losses(clock: FakeClock) -> Losses:
    return Losses(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_flood_of_losses_is_one_line_in_ten_seconds_with_their_number(
    losses: Losses, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1_000):
        losses.count("dropped", 1, "the outbox is full")
        clock.advance(0.0099)
    clock.advance(0.2)
    losses.count("dropped", 1, "the outbox is full")
    assert lines(caplog) == ["1 event dropped: the outbox is full", "1000 events dropped: the outbox is full"]
    assert losses.counts == {"dropped": 1_001}


def test_each_cause_has_a_line_of_its_own(losses: Losses, caplog: pytest.LogCaptureFixture) -> None:
    for cause in ("dropped", "refused", "dropped", "refused", "lost"):
        losses.count(cause, 2)
    assert lines(caplog) == ["2 events dropped", "2 events refused", "2 events lost"]
    assert losses.counts == {"dropped": 4, "refused": 4, "lost": 2}


def test_closing_tells_what_no_line_has_told(losses: Losses, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        losses.count("dropped")
    losses.close()
    losses.close()
    assert lines(caplog) == ["1 event dropped", "2 events dropped"]


def test_the_first_mistake_of_each_kind_is_told_at_once(losses: Losses, caplog: pytest.LogCaptureFixture) -> None:
    losses.count("refused", 1, "reason: is empty", mistake="reason")
    losses.count("refused", 1, "type: is Info", mistake="type")
    losses.count("refused", 1, "type: is Fatal", mistake="type")
    assert lines(caplog) == ["1 event refused: reason: is empty", "1 event refused: type: is Info"]


def test_of_several_reasons_the_last_is_told_as_that(
    losses: Losses, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for detail in ("no name", "no kind", "no reason"):
        losses.count("refused", 1, detail)
    clock.advance(10)
    losses.count("refused", 1, "no reason")
    losses.count("refused", 2, "no type")
    losses.close()
    assert lines(caplog) == [
        "1 event refused: no name",
        "3 events refused, the last: no reason",
        "2 events refused: no type",
    ]


def test_a_line_that_counts_nothing_is_held_back_likewise(
    losses: Losses, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    losses.log("unavailable", "no reply (1 waits)")
    losses.log("unavailable", "no reply (2 wait)")
    clock.advance(10)
    losses.log("unavailable", "no reply (3 wait)")
    assert lines(caplog) == ["no reply (1 waits)", "no reply (3 wait)"]
    assert losses.counts == {}


@pytest.mark.parametrize("detail", ["two\nlines", "\x1b[31mred", "a\u2028b", "\u202egnol", "x" * 100_000, "%s %d"])
def test_a_detail_of_the_callers_stays_one_short_line(
    losses: Losses, caplog: pytest.LogCaptureFixture, detail: str
) -> None:
    losses.count("refused", 1, detail)
    (line,) = lines(caplog)
    assert line.isprintable()
    assert len(line) < 1000


def test_what_redis_has_been_told_is_not_told_it_again(losses: Losses) -> None:
    losses.count("dropped", 2)
    losses.count("refused")
    assert dict(losses.take_unreported()) == {"dropped": 2, "refused": 1}
    assert losses.take_unreported() == ()
    losses.count("dropped", 3)
    assert dict(losses.take_unreported()) == {"dropped": 3}


def test_threads_count_without_losing_count(losses: Losses) -> None:
    def count() -> None:
        for _ in range(2_000):
            losses.count("dropped")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses.counts == {"dropped": 16_000}


def test_a_signal_handler_may_count_while_its_own_thread_counts() -> None:
    """The clock is asked inside the lock, so the signal comes in the worst moment."""

    class Interrupting(FakeClock):
        def monotonic(self) -> float:
            if not handled:
                handled.append(0)
                signal.raise_signal(signal.SIGUSR1)
            return super().monotonic()

    handled: list[int] = []
    losses = Losses(Interrupting())
    before = signal.signal(signal.SIGUSR1, lambda *_: losses.count("refused"))
    try:
        losses.count("dropped")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert losses.counts == {"dropped": 1, "refused": 1}


def test_a_log_filter_that_raises_is_nothing_to_who_counts(losses: Losses) -> None:
    def raises(_record: logging.LogRecord) -> bool:
        raise ValueError("no such field")

    logger = logging.getLogger("eventbus")
    logger.addFilter(raises)
    try:
        losses.count("dropped", 2)
        losses.log("unavailable", "nothing listens there")
    finally:
        logger.removeFilter(raises)
    assert losses.counts == {"dropped": 2}
    assert losses.lines_left() == []


def test_what_only_local_watchers_missed_is_logged_and_not_reported_to_the_bus(
    losses: Losses, caplog: pytest.LogCaptureFixture
) -> None:
    losses.count("missed", 3)
    losses.count("dropped", 2)
    assert [record.message for record in caplog.records] == ["3 events missed", "2 events dropped"]
    assert losses.counts == {"missed": 3, "dropped": 2}
    assert losses.take_unreported() == (("dropped", 2),)
