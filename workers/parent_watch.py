"""Ties a worker to the `eventbus up` that started it: when that is gone, however it went, the worker drains and ends.

It is a pipe: `up` alone holds one end, the worker reads the other, and reads its end when nobody holds it any more.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

#: Which descriptor the worker is to read.
VARIABLE = "EVENTBUS_LIFELINE"


class ParentPipe:
    """The end that `up` holds, until `close` or its own end. *passed* is the descriptor for the workers."""

    def __init__(self) -> None:
        self.passed, self._held = os.pipe()

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variable by which a worker finds the pipe."""
        return {VARIABLE: str(self.passed)}

    def close(self) -> None:
        os.close(self.passed)
        os.close(self._held)


def follow_starter(end: Callable[[], object]) -> None:
    """Have *end* called, in a thread, when the `up` that started this process is gone; nothing where none did."""
    text = os.environ.pop(VARIABLE, "")
    if not text.isdecimal():
        return
    descriptor = int(text)
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
    except OSError:
        return
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_follow, args=(descriptor, end), name="eventbus-lifeline", daemon=True).start()


def _follow(descriptor: int, end: Callable[[], object]) -> None:
    while os.read(descriptor, 1):
        continue  # nobody writes to it
    end()


__all__ = ["VARIABLE", "ParentPipe", "follow_starter"]
