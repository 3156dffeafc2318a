"""The reflector's back-off: growing pauses with jitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock

#: client-go's numbers: the pauses are 0.8–1.6 s, 1.6–3.2 s, … 30–60 s, so that the watchers of a lost server do not
#: all come back at once.
PAUSES: Final = Backoff(first_s=1.6, last_s=60.0, at_least=0.5)
#: Seconds after which the pauses start with the shortest again.
RESET_AFTER_S: Final = 120.0


class ReflectorBackoff:
    """Computes the pauses. Not thread-safe.

    Args:   chance: returns a random number, 0..1.
    Source: client-go `tools/cache/reflector.go`; the time is counted from the last reset, as there.
    """

    def __init__(self, *, clock: Clock, chance: Callable[[], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._tries = 0
        self._reset_at = clock.monotonic()

    def next_s(self) -> float:
        """Return the seconds to wait now."""
        now = self._clock.monotonic()
        if now - self._reset_at > RESET_AFTER_S:
            self._tries, self._reset_at = 0, now
        self._tries += 1
        return PAUSES.pause_s(self._tries, lambda low, high: low + (high - low) * self._chance())
