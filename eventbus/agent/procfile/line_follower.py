"""Follows one line of a Procfile, which is a pod of one container: its output, and the ends of its runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from eventbus.agent.logs.log_tail import LOST, LogTail
from eventbus.agent.runtime.contract import ContainerPhase, ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.util.outcome import Outcome, duration, last_line

#: Blocks of a log that are passed on before others have their turn.
_AT_ONCE: Final = 16
#: Bytes after which a line without an end is passed on as one.
LONGEST_LINE: Final = 65_536


class LineFollower:
    """Passes on the output of a line, whole lines at a time, and reports each of its runs. One thread uses it.

    Args: log: the log of the run with that number.  write: takes a line of its output, and may wait.
          report: prints a line about it.  note: records an event of that type, reason and message about its pod.
    """

    def __init__(
        self,
        name: str,
        *,
        log: Callable[[int], Path],
        write: Callable[[str, bytes], object],
        report: Callable[[str], object],
        note: Callable[[str, str, str], object],
    ) -> None:
        self.name = name
        self.stopping = False  #: it was asked to end
        self.killed = False  #: it did not end in its grace time
        self.exit_code: int | None = None  #: of its newest run; None while that runs
        self._log = log
        self._write = write
        self._report = report
        self._note = note
        self._attempt = -1
        self._tail: LogTail | None = None
        self._rest = b""
        self._said = b""  # its last line with anything in it
        self._waits_told = -1

    def step(self, status: PodRuntimeStatus, waits_after: int = -1, waits: str = "") -> None:
        """Pass on new output. *waits*: why it is not started again now, after the run *waits_after*."""
        runs = sorted(status.containers, key=lambda one: one.attempt)
        if self._tail is not None and self._attempt not in (run.attempt for run in runs) and self._read():
            self._finish()  # its status is forgotten already
        for run in runs:
            if run.attempt > self._attempt and self._tail is None:
                self._begin(run)
            if run.attempt == self._attempt and self._tail is not None:
                read_all = self._read()
                if run.phase is ContainerPhase.EXITED and (read_all or self.stopping):
                    self._end(run, read_all=read_all)
        has_ended = self._attempt == waits_after and self._tail is None
        if has_ended and self._waits_told != waits_after and not self.stopping:
            self._waits_told = waits_after
            self._report(f"{self.name}: {waits}")

    def close(self) -> None:
        """Close the log that is followed, without reading on. Idempotent."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _begin(self, run: ContainerRuntimeStatus) -> None:
        if 0 <= self._attempt < run.attempt - 1:  # the logs of the runs in between are removed
            self._write(self.name, LOST)
        if run.attempt > 0:
            self._report(f"{self.name}: starting it again")
        self._attempt, self.exit_code, self._said = run.attempt, None, b""
        self._tail = LogTail(self._log(run.attempt))

    def _read(self) -> bool:
        """Pass on some of the new output. Returns: True: that was all."""
        assert self._tail is not None
        for _ in range(_AT_ONCE):
            data = self._tail.read()
            if self._tail.missed:
                self._tail.missed = False
                if self._rest:
                    self._pass_on(self._rest)
                    self._rest = b""
                self._write(self.name, LOST)
            if not data:
                return True
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._pass_on(line)
            if len(self._rest) >= LONGEST_LINE:
                self._pass_on(self._rest)
                self._rest = b""
        return False

    def _pass_on(self, line: bytes) -> None:
        if line.strip():
            self._said = line
        self._write(self.name, line)

    def _end(self, run: ContainerRuntimeStatus, *, read_all: bool) -> None:
        if not read_all:  # megabytes of output must not delay the end
            self._write(self.name, LOST)
        self._finish()
        self.exit_code, self.killed = run.exit_code, run.grace_exceeded
        outcome = Outcome(run.exit_code, run.signal, _seconds(run), run.message or last_line(self._said))
        if self.stopping:
            text = f"not done in time: {outcome}" if self.killed else str(outcome) if outcome.failed else "ended"
        else:
            text = str(outcome) if outcome.failed else f"completed after {duration(outcome.ran_s)}"
        self._report(f"{self.name}: {text}")
        if self.stopping and not self.killed:
            return  # the event Killing reports it
        if outcome.failed:
            self._note(WARNING, "Failed", f"{self.name}: {outcome}")
        else:
            self._note(NORMAL, "Completed", f"Completed {self.name} after {duration(outcome.ran_s)}")

    def _finish(self) -> None:
        self.close()
        if self._rest:
            self._pass_on(self._rest)
            self._rest = b""


def _seconds(run: ContainerRuntimeStatus) -> float:
    began: datetime | None = run.started_at
    return (run.finished_at - began).total_seconds() if began is not None and run.finished_at is not None else 0.0
