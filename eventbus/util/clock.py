"""The clock interface, so that tests can replace the machine's clock."""

from __future__ import annotations

import time
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
