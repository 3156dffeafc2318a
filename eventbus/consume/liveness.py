"""Measures how long each peer's heartbeat counter has stood still, counting only time that was observed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eventbus.clock import Clock


class LivenessObserver:
    """One observer's record of the counters of its peers, by name. Not thread-safe.

    A pause of the machine stops the observer and its peers alike, so a gap between two looks counts for at most
    *longest_gap_s*.
    """

    def __init__(self, clock: Clock, *, longest_gap_s: float) -> None:
        self._clock = clock
        self._longest_gap_s = longest_gap_s
        self._looked_at = -math.inf
        self._seen: dict[str, tuple[str, float]] = {}  # the counter, and for how many seconds it stood still

    def observe(self, counters: Mapping[str, str]) -> Mapping[str, float]:
        """Take the current counters of all peers. Return for each how many seconds it has stood still."""
        now = self._clock.monotonic()
        watched_s = min(now - self._looked_at, self._longest_gap_s)
        self._looked_at, before = now, self._seen
        self._seen = {}
        for name, counter in counters.items():
            last, still_s = before.get(name, (None, 0.0))
            self._seen[name] = (counter, still_s + watched_s if counter == last else 0.0)
        return {name: still_s for name, (_, still_s) in self._seen.items()}
