"""The clock interface, so that tests can replace the machine's clock, and ages that a set clock does not change."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Protocol


class Clock(Protocol):
    """The clock that the rest of the package uses."""

    def time_ns(self) -> int:
        """Return nanoseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for intervals only."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for *seconds*."""
        ...


class SystemClock:
    """The machine's clock."""

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class Ages:
    """Ages of wall-clock times, measured on the monotonic clock, because the wall clock may be set.

    The wall clock is read once for each time. Any thread; one key, one thread at a time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, float]] = {}  # key → the moment, and when it was on the monotonic clock

    def age_s(self, key: Hashable, moment_s: float, most_s: float = float("inf")) -> float:
        """Return the seconds since *moment_s* (since 1970), which is no longer ago than *most_s*, nor to come."""
        now = self._clock.monotonic()
        seen = self._seen.get(key)
        if seen is None or seen[0] != moment_s:
            age_s = min(max(0.0, self._clock.time_ns() / 1e9 - moment_s), most_s)
            seen = self._seen[key] = moment_s, now - age_s
        return now - seen[1]

    def forget(self, key: Hashable) -> None:
        """Forget the moment under *key*, if there is one."""
        self._seen.pop(key, None)
