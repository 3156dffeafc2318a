"""What was lost, and why: counted by cause, told at most once in ten seconds a cause."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from eventbus.clock import Clock
from eventbus.text import cut_bytes, printable

log = logging.getLogger("eventbus")

#: One line a cause in so many seconds: a flood of losses must not become a flood of lines.
TELL_EVERY_S = 10.0
#: bytes of a line's detail: enough for the field, what is wrong and the cure
DETAIL_BYTES = 300


class Losses:
    """Counts by cause, and tells. Thread-safe; `count` costs a lock and, rarely, a line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin at nothing: at birth, and in a child after fork, where another thread may have held the lock."""
        # Reentrant: a signal handler may record an event while its own thread counts one.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._unreported: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}

    def count(self, cause: str, n: int = 1, detail: str = "") -> None:
        """Count *n* events lost for *cause* (`dropped`, `refused`, …) and tell when it is time."""
        with self._lock:
            self._counts[cause] += n
            self._untold[cause] += n
            self._unreported[cause] += n
            now = self._clock.monotonic()
            if cause in self._told_at and now - self._told_at[cause] < TELL_EVERY_S:
                return
            self._told_at[cause] = now
            untold = self._untold.pop(cause)
        _tell(cause, untold, detail)

    def take_unreported(self) -> tuple[tuple[str, int], ...]:
        """What was counted since this was last asked: the outbox tells it to Redis with its next batch."""
        if not self._unreported:
            return ()
        with self._lock:
            unreported, self._unreported = self._unreported, Counter()
        return tuple(unreported.items())

    def tell(self, cause: str, line: str) -> None:
        """Log *line*, at most once in ten seconds a *cause*; nothing is counted."""
        with self._lock:
            now = self._clock.monotonic()
            if cause in self._told_at and now - self._told_at[cause] < TELL_EVERY_S:
                return
            self._told_at[cause] = now
        log.error("%s", line)

    @property
    def counts(self) -> dict[str, int]:
        """All that was counted so far."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Tell what was counted since the last line of each cause."""
        with self._lock:
            untold, self._untold = self._untold, Counter()
        for cause, n in untold.items():
            _tell(cause, n, "")


def _tell(cause: str, n: int, detail: str) -> None:
    # Details quote callers: a newline in one must not become a second line.
    detail = f": {cut_bytes(printable(detail), DETAIL_BYTES)}" if detail else ""
    log.error("%d event%s %s%s", n, "" if n == 1 else "s", cause, detail)
