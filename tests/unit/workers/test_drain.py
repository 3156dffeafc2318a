"""A worker that is told to end finishes what it has begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from eventbus.consume.heartbeat import LoopHealth
from eventbus.workers.worker import drain
from tests.waiting import PATIENCE_S


class Begun:
    """A part that has finished when *done* is set, and not sooner."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def start(self) -> None:
        pass

    def stop(self, timeout_s: float) -> None:
        self.done.wait(timeout_s)

    def loop_health(self) -> Sequence[LoopHealth]:
        return ()


@pytest.mark.parametrize("late_s", [0.0, 0.2])
def test_what_has_not_finished_is_never_taken_for_drained(late_s: float) -> None:
    part = Begun()
    assert not drain(part, time.monotonic() + late_s)
    part.done.set()


def test_what_has_finished_is_not_waited_for() -> None:
    part = Begun()
    part.done.set()
    assert drain(part, time.monotonic() + PATIENCE_S)
