"""Tracks the partitions that back off because their node is away or their stream is full."""

from __future__ import annotations

import math

from eventbus.backoff import Backoff
from eventbus.clock import Clock

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.05, 1.0
BACKOFF = Backoff(first_s=FIRST_BACKOFF_S, last_s=LAST_BACKOFF_S, at_least=0.25)


class PartitionWaits:
    """A back-off with jitter for each partition that failed; the other partitions are not affected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def failed(self, partition: int, *, soon: bool = False) -> None:
        """Note a failure of *partition*, which is tried again later. *soon*: after the first back-off at most."""
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        self._until[partition] = self._clock.monotonic() + BACKOFF.pause_s(1 if soon else failures)

    def succeeded(self, partition: int) -> None:
        """Note a success of *partition*: it does not back off any more."""
        if partition in self._failures:
            del self._failures[partition], self._until[partition]

    def has_failed(self, partition: int) -> bool:
        """Return True from a failure of *partition* to its next success."""
        return partition in self._failures

    def holds(self, partition: int) -> bool:
        """Return True while *partition* backs off."""
        return bool(self._until) and self._until.get(partition, -math.inf) > self._clock.monotonic()

    def due_in_s(self) -> float:
        """Return the seconds until the next partition is to be tried again, 0 or more; inf: none waits."""
        return max(0.0, min(self._until.values(), default=math.inf) - self._clock.monotonic())
