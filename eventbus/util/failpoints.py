"""Named places where a test may kill or freeze this process. In normal runs each is a call that does nothing.

`EVENTBUS_CRASH=kill:recorded:3` kills the process when it reaches `recorded` for the third time; `stop:` freezes it
(SIGSTOP) instead; `kill:decoded@MARK` kills it each time that the processed data contains the bytes MARK. The places
are in the write path, in the notifier, in the agent's sync of a pod (`kill:pod:volumes`), and in shims and their zygote
(`kill:shim:made`). Each process, such as a shim or a worker, has its own count. To list the places: `grep failpoint`.
"""

from __future__ import annotations

import os
import signal
import time


def _pass_by(_place: str, _about: bytes = b"") -> None:
    pass


class _Armed:
    """Ends or freezes the process at one place."""

    def __init__(self, order: str) -> None:
        action, _, where = order.partition(":")
        where, _, mark = where.partition("@")
        place, _, count = where.rpartition(":")
        self._place, count = (place, count) if count.isdecimal() else (where, "1")
        self._signal = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action]
        self._mark = mark.encode()
        import threading  # not at the top: shims do not need it, and fork from a process with these imports

        self._left = int(count)
        self._lock = threading.Lock()

    def __call__(self, place: str, about: bytes = b"") -> None:
        if place != self._place or self._mark not in about:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0 or self._mark:
                os.kill(os.getpid(), self._signal)
                time.sleep(0.1)  # a stop may reach this thread a moment late


# At import, unlike every setting: a place that asked at each call would cost something in normal runs.
failpoint = _Armed(order) if (order := os.environ.get("EVENTBUS_CRASH", "")) else _pass_by
