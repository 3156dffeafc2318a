"""Runs a command once: starts it, passes on every signal that comes, waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from eventbus.clock import Clock
from eventbus.process.outcome import NOT_FOUND, NOT_RUNNABLE, Outcome
from eventbus.process.signal_queue import ENDING, Caught, SignalQueue
from eventbus.process.stderr_relay import StderrRelay

#: Python ignores them, and what is ignored stays so in a child; the command gets them as they usually are.
_IGNORED_BY_PYTHON = [signal.SIGPIPE, *([signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else [])]


class CannotStart(Exception):
    """The command is not there, or is no program. *outcome* has the code that shells use for it."""

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(getattr(error, "strerror", None) or "No such command")
        code = NOT_FOUND if isinstance(error, (FileNotFoundError, ValueError)) else NOT_RUNNABLE
        self.outcome = Outcome(code, last_line=f"cannot be started: {self}")


class Command:
    """A command that is run once or again and again, in this process's own group, with its terminal and streams.

    Args: read_stderr: read along with standard error, for its last line; else it is handed over as it is.
          on_signal: told of each signal that asks the command to end, once the command has it.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        signals: SignalQueue,
        clock: Clock,
        read_stderr: bool,
        on_signal: Callable[[Caught], object],
    ) -> None:
        self._words = list(words)
        self._signals = signals
        self._clock = clock
        self._read_stderr = read_stderr
        self._on_signal = on_signal
        self._relay: StderrRelay | None = None
        #: A signal that asks programs to end has come; whoever sent it does not want another run.
        self.asked_to_end = False

    def run(self, on_start: Callable[[], object]) -> Outcome:
        """Run it to its end, and call *on_start* as soon as it is under way. Main thread.

        Raises: CannotStart.
        """
        self._relay = self._make_relay()
        began = self._clock.monotonic()
        pid = self._start()
        on_start()
        status = self._wait(pid)
        ran_s = self._clock.monotonic() - began
        return Outcome.of_status(status, ran_s, self._finish_relay())

    def _make_relay(self) -> StderrRelay | None:
        if self._read_stderr:
            with contextlib.suppress(OSError):
                return StderrRelay(done=self._signals.wake)
        return None

    def _start(self) -> int:
        relay = self._relay
        try:
            pid = os.posix_spawnp(
                self._words[0],
                self._words,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, relay.child_end, stream) for stream in relay.streams]
                if relay
                else [],
                setsigmask=self._signals.original_mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except (OSError, ValueError) as error:  # ValueError: it is called ''
            if relay:
                relay.abandon()
            raise CannotStart(error) from error
        if relay:
            relay.start()
        return pid

    def _wait(self, pid: int) -> int:
        while True:
            if caught := self._signals.wait():
                self._pass_on(pid, caught)
                continue
            # Only when nothing has come before its end: what ended it is to be told.
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return status

    def _pass_on(self, pid: int, caught: Caught) -> None:
        if caught.number == signal.SIGWINCH and self._relay:
            self._relay.resize()
        if caught.number in ENDING:
            self.asked_to_end = True
        # What the terminal sends, the command had at the same moment; a second one would mean more to it.
        if not caught.from_terminal:
            try:
                os.kill(pid, caught.number)
            except PermissionError:  # it has become somebody else, as sudo does
                return
        if caught.number in ENDING:
            self._on_signal(caught)
        if caught.number == signal.SIGTSTP:
            self._signals.suspend()

    def _finish_relay(self) -> str:
        """Wait until all it said is where it belongs, as the command itself would have; the last line."""
        if not self._relay:
            return ""
        self._relay.finish()
        while not self._relay.finished:
            caught = self._signals.wait()
            if caught and caught.number in ENDING:
                self.asked_to_end = True
                break
        return self._relay.last_line
