"""latch.py: it happens once, all who wait are freed, and a signal handler may use it at any moment."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from eventbus.record.latch import Latch
from tests.waiting import PATIENCE_S


@pytest.fixture
def alarms() -> Iterator[list[Latch]]:
    """Every 50 µs a signal handler sets each latch in the list, and waits for it."""
    latches: list[Latch] = []

    def handle(*_: object) -> None:
        for latch in latches:
            latch.set()
            assert latch.wait(PATIENCE_S)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00005)
    yield latches
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_it_has_not_happened_until_it_is_set_and_setting_it_again_changes_nothing() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(-1)
    latch.set()
    latch.set()
    assert latch.happened
    assert latch.wait(0)
    assert latch.wait(PATIENCE_S)


def test_all_who_wait_are_freed() -> None:
    latch, freed = Latch(), []
    threads = [threading.Thread(target=lambda: freed.append(latch.wait(PATIENCE_S))) for _ in range(16)]
    for thread in threads:
        thread.start()
    latch.set()
    for thread in threads:
        thread.join()
    assert freed == [True] * 16


def test_a_handler_that_interrupts_setting_and_waiting_waits_for_nobody(alarms: list[Latch]) -> None:
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        latch = Latch()
        alarms[:] = [latch]
        latch.set()
        assert latch.wait(PATIENCE_S)
        alarms.clear()
