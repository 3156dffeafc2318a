"""Ends this process by signals: the first requests a graceful shutdown, the second ends it at once."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType


class Signals:
    """Handles SIGTERM and SIGINT, and internal requests to exit. Used by the main thread.

    A signal handler can interrupt any code, so it must not take a lock: it writes to a pipe.

    Args: at_once: called at the second signal, before the process exits; must not take a lock either.
    """

    def __init__(self, at_once: Callable[[], object] = lambda: None) -> None:
        self._at_once = at_once
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._exit_code: int | None = None
        self._asked = False
        #: While there is nothing to drain, the first signal ends the process like the second.
        self.idle = True

    def install(self) -> None:
        """Install the handlers. Call it in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def end(self, exit_code: int) -> None:
        """Request an exit with *exit_code*, from any thread. The first request decides."""
        if self._exit_code is None:
            self._exit_code = exit_code
            self._wake()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None until an exit is requested."""
        return self._exit_code

    def wait(self, seconds: float) -> bool:
        """Wait for *seconds*, or until an exit is requested. Returns: an exit was requested."""
        if self._exit_code is None:
            select.select([self._read], [], [], seconds)
        return self._exit_code is not None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            try:
                self._at_once()
            finally:
                os._exit(128 + number)
        self._asked = True
        self.end(0)
        if self.idle:
            raise SystemExit(0)

    def _wake(self) -> None:
        try:
            os.write(self._write, b"x")
        except BlockingIOError:
            return  # the pipe is full of wake-ups
