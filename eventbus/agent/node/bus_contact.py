"""Remembers when the bus was away, as seen by the parts of a process, and reports it once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from eventbus.errors import EventBusError
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: After so many seconds of answers the last absence is no news any more.
LATELY_S = 60.0


class BusContact:
    """Notes whether calls reached the bus. Thread-safe.

    Args: on_change: called with LostRedis and the error, and with Reconnected.
    """

    def __init__(self, clock: Clock, on_change: Callable[[str, str], object] = lambda _reason, _message: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._since: float | None = None  # it is away now
        self._until = -LATELY_S
        self._problem = ""
        self._lasted_s = 0.0

    @property
    def is_away(self) -> bool:
        """The last call got no answer."""
        return self._since is not None

    def lost(self, error: EventBusError) -> None:
        """Note a call that got no answer. The first one is logged and reported."""
        with self._lock:
            self._problem = str(error)
            if self._since is not None:
                return
            self._since = self._clock.monotonic()
        log.warning("lost Redis: %s", error)
        self._on_change("LostRedis", str(error))

    def answered(self) -> bool:
        """Note a call that got an answer. Returns: True if the bus was away, which is logged and reported."""
        with self._lock:
            if self._since is None:
                return False
            self._until = self._clock.monotonic()
            self._lasted_s, self._since = self._until - self._since, None
        log.warning("Redis is back")
        self._on_change("Reconnected", "Redis is back")
        return True

    def lately_away(self) -> str:
        """Describe the last absence of the bus; "" if there was none in the last minute."""
        with self._lock:
            if self._since is not None:
                return self._problem
            if self._clock.monotonic() - self._until < LATELY_S:
                return f"for {self._lasted_s:.0f} s: {self._problem}"
            return ""
