"""Waiting until the worker that had a partition has let go of it, so that the order of each object is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eventbus.broker.health.heartbeats import HEARTBEAT_S
from eventbus.clock import Clock

#: How long is waited for one that lives and does not let go: its handler takes long, and the partition must go on.
HAND_OVER_S = 15.0


class HandOver:
    """Looks at the heartbeats of a partition's workers until nobody works it but those it is *shared* with.

    A counter that does not move is a dead worker's.
    """

    def __init__(self, clock: Clock, shared: Collection[str]) -> None:
        self._clock = clock
        self._shared = shared
        self._until = clock.monotonic() + HAND_OVER_S
        self._noted: dict[str, str] = {}
        self._noted_at = clock.monotonic()

    def is_over(self, counters: Mapping[str, str]) -> bool:
        """Take what the counters of the other workers are now. True: begin."""
        now = self._clock.monotonic()
        others = {name: counter for name, counter in counters.items() if name not in self._shared}
        if not others or now >= self._until:
            return True
        if any(self._noted.get(name) != counter for name, counter in others.items()):
            self._noted, self._noted_at = others, now
        return now - self._noted_at >= HEARTBEAT_S
