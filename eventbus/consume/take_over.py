"""Decides whose deliveries a worker takes over: those of workers that left, or whose heartbeat stands still."""

from __future__ import annotations

import random
from collections.abc import Mapping

from eventbus.clock import Clock
from eventbus.consume.liveness import LivenessObserver

#: A worker whose counter has stood still for so long, by the observer's monotonic clock, is dead.
TAKE_OVER_S = 15.0
#: A worker without a counter has removed it and left; a living worker would write it again within a second.
LEFT_S = 2.0
LOOK_EVERY_S = 3.0


class TakeOver:
    """One worker's decision about the other workers of its partition. Not thread-safe.

    Args: after_s: how long a counter stands still before its worker is dead.
          block_ms: how long a read may delay the next look.
    """

    def __init__(self, clock: Clock, *, after_s: float, block_ms: int) -> None:
        self._clock = clock
        self._after_s = after_s
        self._look_every_s = min(LOOK_EVERY_S, after_s / 5)
        self._liveness = LivenessObserver(clock, longest_gap_s=2 * self._look_every_s + block_ms / 1000)
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Return True if it is time to look at the other workers, and set the next time."""
        now = self._clock.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + self._look_every_s * random.uniform(0.7, 1.3)
        return True

    def dead(self, beats: Mapping[str, str]) -> dict[str, str]:
        """Return the counters in *beats*, by name, whose worker is dead or has left. '': it has no counter."""
        still = self._liveness.observe(beats)
        left_s = min(LEFT_S, self._after_s)
        return {name: count for name, count in beats.items() if still[name] >= (self._after_s if count else left_s)}
