"""The reflector's back-off: pauses that grow each time and are never the same for two."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from eventbus.clock import Clock

#: client-go's numbers: with its jitter the pauses are 0.8–1.6 s, 1.6–3.2 s, … 30–60 s.
FIRST_S: Final = 0.8
LONGEST_S: Final = 30.0
FACTOR: Final = 2.0
#: A share of the pause that chance adds, so that watchers that lost one server do not come back at one time.
JITTER: Final = 1.0
#: Seconds after which the pauses begin with the shortest again.
RESET_AFTER_S: Final = 120.0


class Backoff:
    """Gives pauses. Not thread-safe.

    Args:   chance: gives 0..1.
    Source: client-go `tools/cache/reflector.go`; the time is counted from the last reset, as there.
    """

    def __init__(self, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._chance = chance
        self._next_s = FIRST_S
        self._reset_at = clock.monotonic()

    def next_s(self) -> float:
        """Return the seconds to wait now."""
        now = self._clock.monotonic()
        if now - self._reset_at > RESET_AFTER_S:
            self._next_s, self._reset_at = FIRST_S, now
        pause_s = self._next_s
        self._next_s = min(pause_s * FACTOR, LONGEST_S)
        return pause_s + pause_s * JITTER * self._chance()
