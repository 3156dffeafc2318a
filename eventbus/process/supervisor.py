"""Keeps processes running until a signal, then ends them in reverse order, each stage before the one below it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from eventbus.clock import Clock
from eventbus.process.outcome import Outcome, duration
from eventbus.process.signal_queue import ENDING, SignalQueue
from eventbus.process.supervised import Supervised

NORMAL, WARNING = "Normal", "Warning"
#: How often things that send no signal are looked at, seconds.
LOOK_EVERY_S = 1.0

Tell = Callable[[str], object]


class Note(Protocol):
    """Records an event about the process *name*."""

    def __call__(self, name: str, event_type: str, reason: str, message: str) -> object: ...


class Supervisor:
    """Runs *stages* of processes: started in their order, ended in reverse, a stage when the one above it is gone.

    Args: tell: prints a line.  note: records an event.  look: called about once a second.  on_stop: called when `run`
    begins to end.  before_stage: called before a stage is ended.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Supervised]],
        *,
        signals: SignalQueue,
        clock: Clock,
        tell: Tell,
        note: Note,
        look: Callable[[], object],
        on_stop: Callable[[], object],
        before_stage: Callable[[], object],
    ) -> None:
        self._stages = stages
        self._all = [process for stage in stages for process in stage]
        self._signals = signals
        self._clock = clock
        self._tell = tell
        self._note = note
        self._look = look
        self._on_stop = on_stop
        self._before_stage = before_stage
        self._stop_asked = False

    def run(self, drain_s: float) -> bool:
        """Run until a signal that asks to end, then end everything; *drain_s* is each stage's longest time.

        Returns: whether every process ended by itself; False: some had to be killed.
        Raises:  KeyboardInterrupt: a second signal; everything was killed.
        """
        for process in self._all:
            self._start(process)
        while not self._stop_asked:
            self._wait_for_something()
            self._settle()
            self._start_due()
            self._look()
        self._on_stop()
        well = True
        for stage in reversed(self._stages):
            self._before_stage()
            well = self._end(stage, drain_s) and well
        return well

    def stop(self) -> None:
        """Have `run` begin to end. Any thread."""
        self._stop_asked = True
        self._signals.wake()

    def kill_all(self) -> None:
        """End what is left, without asking."""
        for process in reversed(self._all):
            process.signal(signal.SIGKILL)

    def _wait_for_something(self) -> None:
        now = self._clock.monotonic()
        due = [process.due - now for process in self._all if process.due is not None]
        caught = self._signals.wait(max(0.0, min([LOOK_EVERY_S, *due])))
        if caught and caught.number in ENDING:
            self._stop_asked = True

    def _start(self, process: Supervised) -> None:
        if outcome := process.start():
            self._after(process, outcome)
        else:
            self._note(process.name, NORMAL, "Started", f"Started {process.name}")

    def _settle(self) -> None:
        for process in self._all:
            if outcome := process.ended():
                self._after(process, outcome)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for process in self._all:
            if process.due is not None and process.due <= now and not self._stop_asked:
                self._tell(f"{process.name}: starting it again")
                self._start(process)

    def _after(self, process: Supervised, outcome: Outcome) -> None:
        self._note_end(process, outcome)
        if not outcome.failed:
            self._tell(f"{process.name}: completed after {duration(outcome.ran_s)}")
            return
        pause_s = process.back_off(outcome)
        self._tell(f"{process.name}: {outcome}; back-off {pause_s:g}s")
        self._note(process.name, WARNING, "BackOff", f"Back-off {pause_s:g}s restarting {process.name}")

    def _note_end(self, process: Supervised, outcome: Outcome) -> None:
        if outcome.failed:
            self._note(process.name, WARNING, "Failed", f"{process.name}: {outcome}")
        else:
            self._note(process.name, NORMAL, "Completed", f"Completed {process.name} after {duration(outcome.ran_s)}")

    def _end(self, stage: Sequence[Supervised], drain_s: float) -> bool:
        """Ask every process of *stage* to end, the last started first; kill what is there after *drain_s*."""
        for process in reversed(stage):
            if process.running:
                self._note(process.name, NORMAL, "Killing", f"Stopping {process.name}")
                process.signal(signal.SIGTERM)
        if self._gone(stage, self._clock.monotonic() + drain_s):
            return True
        for process in reversed(stage):
            if process.running:
                self._tell(f"{process.name}: not done within {duration(drain_s)}: killed")
                process.signal(signal.SIGKILL)
        self._gone(stage, self._clock.monotonic() + drain_s)
        return False

    def _gone(self, stage: Sequence[Supervised], deadline: float) -> bool:
        """Wait until all of *stage* have ended; False: not before *deadline*."""
        while True:
            for process in stage:
                if outcome := process.ended():
                    self._tell(f"{process.name}: {outcome if outcome.failed else 'ended'}")
                    if outcome.by_signal != signal.SIGTERM:  # which was ours; Killing has said so
                        self._note_end(process, outcome)
            left = deadline - self._clock.monotonic()
            if not any(process.running for process in stage):
                return True
            if left <= 0:
                return False
            caught = self._signals.wait(left)
            if caught and caught.number in ENDING:
                self.kill_all()
                raise KeyboardInterrupt
