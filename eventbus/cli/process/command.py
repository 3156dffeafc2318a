"""Runs a command once: starts it, passes on every signal that comes, waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

from eventbus.cli.process.signal_queue import ENDING, Caught, SignalQueue
from eventbus.cli.process.stderr_relay import StderrRelay
from eventbus.util.clock import Clock
from eventbus.util.outcome import NOT_FOUND, NOT_RUNNABLE, Outcome

#: Python ignores these signals, and a child inherits that; the command gets their default actions.
_IGNORED_BY_PYTHON = [signal.SIGPIPE, *([signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else [])]


class CannotStart(Exception):
    """The command does not exist or is no program. *outcome* has the exit code of shells for this."""

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(getattr(error, "strerror", None) or "No such command")
        code = NOT_FOUND if isinstance(error, (FileNotFoundError, ValueError)) else NOT_RUNNABLE
        self.outcome = Outcome(code, last_line=f"cannot be started: {self}")


def become(words: Sequence[str], mask: set[signal.Signals | int]) -> NoReturn:
    """Replace this process by the command, with this signal mask. Raises: CannotStart."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(words[0], [*words])
    except (OSError, ValueError) as error:  # ValueError: it is called ''
        raise CannotStart(error) from error


class Command:
    """A command that runs once or repeatedly in this process's group, with its terminal and streams.

    Args: read_stderr: relay standard error to know its last line; else the command inherits it.
          on_signal: called for each signal that asks the command to end, after the command has received it.
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
        #: True after a signal that asks programs to end: do not run the command again.
        self.asked_to_end = False

    def run(self, on_start: Callable[[], object]) -> Outcome:
        """Run it to its end, and call *on_start* once it has started. Main thread only.

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
            relay.hand_over()
        return pid

    def _wait(self, pid: int) -> int:
        while True:
            if caught := self._signals.wait():
                self._pass_on(pid, caught)
                continue
            # Only if no signal came before its end: a signal that ended it must be reported first.
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status

    def _pass_on(self, pid: int, caught: Caught) -> None:
        if caught.number == signal.SIGWINCH and self._relay:
            self._relay.resize()
        if caught.number in ENDING:
            self.asked_to_end = True
        # The command has received the terminal's signals itself; a second one could mean more to it.
        if not caught.from_terminal:
            try:
                os.kill(pid, caught.number)
            except PermissionError:  # it runs as another user now, as with sudo
                return
        if caught.number in ENDING:
            self._on_signal(caught)
        if caught.number == signal.SIGTSTP:
            self._signals.suspend()

    def _finish_relay(self) -> str:
        """Wait until its standard error is relayed, and return the last line."""
        if not self._relay:
            return ""
        self._relay.finish()
        while not self._relay.finished:
            caught = self._signals.wait()
            if caught and caught.number in ENDING:
                self.asked_to_end = True
                break
        return self._relay.last_line
