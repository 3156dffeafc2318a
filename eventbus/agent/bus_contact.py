"""Remembers when the bus was away, as the parts of an agent have met it."""

from __future__ import annotations

import threading

from eventbus.clock import Clock

#: After so many seconds of answers the last absence is no news any more.
LATELY_S = 60.0


class BusContact:
    """Notes what renewals and status writes have seen of the bus. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None  # it is away now
        self._until = -LATELY_S
        self._problem = ""
        self._lasted_s = 0.0

    @property
    def is_away(self) -> bool:
        """The last call got no answer."""
        return self._since is not None

    def lost(self, problem: str) -> bool:
        """A call got no answer. Returns: True if that is news."""
        with self._lock:
            self._problem = problem
            if self._since is not None:
                return False
            self._since = self._clock.monotonic()
            return True

    def answered(self) -> bool:
        """A call got an answer. Returns: True if that is news."""
        with self._lock:
            if self._since is None:
                return False
            self._until = self._clock.monotonic()
            self._lasted_s, self._since = self._until - self._since, None
            return True

    def lately_away(self) -> str:
        """Describe the last absence of the bus; "" if there was none in the last minute."""
        with self._lock:
            if self._since is not None:
                return self._problem
            if self._clock.monotonic() - self._until < LATELY_S:
                return f"for {self._lasted_s:.0f} s: {self._problem}"
            return ""
