"""command.py: in which order it sees signals and the end of its command."""

from __future__ import annotations

import os
import signal
from collections import deque

from eventbus.cli.process.command import Command
from eventbus.cli.process.signal_queue import Caught, SignalQueue
from eventbus.util.clock import SystemClock

CTRL_C = Caught(signal.SIGINT, from_terminal=True)


class Told(SignalQueue):
    """What came, whatever was asked meanwhile; None: a child has ended."""

    def __init__(self, *came: Caught | None) -> None:
        self.original_mask = set()
        self._came = deque(came)

    def wait(self, timeout_s: float | None = None) -> Caught | None:
        return self._came.popleft() if self._came else None


def test_a_signal_that_ended_it_is_told_though_its_end_is_seen_as_well() -> None:
    told: list[Caught] = []
    signals = Told(CTRL_C, None)
    command = Command(["true"], signals=signals, clock=SystemClock(), read_stderr=False, on_signal=told.append)
    # As late as this process may come: the command has long ended when the signal is looked at.
    outcome = command.run(lambda: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT))
    assert (outcome.code, told, command.asked_to_end) == (0, [CTRL_C], True)
