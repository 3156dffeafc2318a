"""Limits how many events a second go to a sink."""

from __future__ import annotations

import threading

from eventbus.util.clock import Clock


class RateLimit:
    """A token bucket of one second's events, full at first. *per_s* 0: no limit. Thread-safe."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._tokens = per_s
        self._lock = threading.Lock()
        self._last = clock.monotonic()

    def take(self, events: int) -> float:
        """Take *events* and return how many seconds to wait first; more than there are tokens are lent."""
        if self._per_s <= 0:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(max(self._per_s, 1.0), self._tokens + (now - self._last) * self._per_s) - events
            self._last = now
            return max(0.0, -self._tokens / self._per_s)
