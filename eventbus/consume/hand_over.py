"""Waits until a partition's former worker has given it up, so that the order of each object is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eventbus.broker.health.heartbeats import HEARTBEAT_S
from eventbus.clock import Clock

#: The longest wait for a worker that lives and does not give the partition up: its handler is slow.
HAND_OVER_S = 15.0


class HandOver:
    """Watches the heartbeats of a partition's workers until only those it is *shared* with remain.

    A worker whose counter does not move is dead.
    """

    def __init__(self, clock: Clock, shared: Collection[str]) -> None:
        self._clock = clock
        self._shared = shared
        self._until = clock.monotonic() + HAND_OVER_S
        self._noted: dict[str, str] = {}
        self._noted_at = clock.monotonic()

    def is_over(self, counters: Mapping[str, str]) -> bool:
        """Take the current counters of the other workers. True: begin."""
        now = self._clock.monotonic()
        others = {name: counter for name, counter in counters.items() if name not in self._shared}
        if not others or now >= self._until:
            return True
        if any(self._noted.get(name) != counter for name, counter in others.items()):
            self._noted, self._noted_at = others, now
        return now - self._noted_at >= HEARTBEAT_S
