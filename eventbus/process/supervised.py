"""One process under supervision: its own session, its output by lines, its pauses between runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from eventbus.clock import Clock
from eventbus.process.crash_backoff import Backoff
from eventbus.process.outcome import BY_SIGNAL, NOT_RUNNABLE, Outcome
from eventbus.process.prefixed import PrefixedOutput


class Supervised:
    """A program that is started again after a pause when it fails. One thread uses it.

    It has a session of its own: a terminal's Ctrl-C does not reach it, and a signal goes to all it has started.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        environ: Mapping[str, str],
        output: PrefixedOutput,
        clock: Clock,
        backoff: Backoff,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._words = words
        self._environ = environ
        self._output = output
        self._clock = clock
        self._backoff = backoff
        self._pass_fds = pass_fds
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._began = 0.0
        #: When to start it again, on the clock; None: it is running, or done for good.
        self.due: float | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> Outcome | None:
        """Start it. Returns the outcome if it could not even be started, else None."""
        self.due = None
        self._began = self._clock.monotonic()
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(self._environ),
                start_new_session=True,
                pass_fds=self._pass_fds,
            )
        except OSError as error:
            return Outcome(NOT_RUNNABLE, last_line=f"cannot be started: {error.strerror}")
        assert self._process.stdout is not None
        # A daemon: what it leaves in the background may hold its output for ever.
        self._reader = threading.Thread(
            target=self._output.copy, args=(self.name, self._process.stdout), name=f"output-{self.name}", daemon=True
        )
        self._reader.start()
        return None

    def ended(self) -> Outcome | None:
        """Return its outcome, once; None while it runs. What it has left running in its session is asked to end."""
        process = self._process
        if process is None:
            return None
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        self.signal(signal.SIGTERM)  # not reaped yet: the number of its group is still its own
        code = process.wait()
        if self._reader:
            self._reader.join(0.2)
        self._process = None
        ran_s = self._clock.monotonic() - self._began
        said = self._output.take_last_line(self.name)
        return Outcome(BY_SIGNAL - code, -code, ran_s, said) if code < 0 else Outcome(code, 0, ran_s, said)

    def back_off(self, outcome: Outcome) -> float:
        """Schedule its next start after the pause that is due; return the pause in seconds."""
        pause_s = self._backoff.pause_after(outcome.ran_s)
        self.due = self._clock.monotonic() + pause_s
        return pause_s

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to it and all that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
