"""A latch: it is set once, and other threads wait for it. Safe in signal handlers, unlike `threading.Event`.

An Event has a lock inside: a signal handler that interrupts `Event.set` and calls it as well waits for itself for ever.
"""

from __future__ import annotations

import threading


class Latch:
    """*happened* is False until `set`, and True from then on. Any thread, any signal handler."""

    __slots__ = ("_gate", "happened")

    def __init__(self) -> None:
        self.happened = False
        self._gate = threading.Lock()  # held until it has happened; each waiter that gets it releases it for the next
        self._gate.acquire()

    def set(self) -> None:
        """Set the latch. Idempotent."""
        self.happened = True
        self._open()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, at most *timeout_s*. False: it is not."""
        if not self.happened and self._gate.acquire(timeout=max(0.0, timeout_s)):
            self._open()
        return self.happened

    def _open(self) -> None:
        try:  # noqa: SIM105  # `suppress` is Python code, which a signal may interrupt half-way
            self._gate.release()
        except RuntimeError:
            pass  # it is open
