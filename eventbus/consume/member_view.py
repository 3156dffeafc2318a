"""Decides which members of a group live, by their heartbeat counters and the own monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping

from eventbus.broker.health.heartbeats import HEARTBEAT_S
from eventbus.clock import Clock
from eventbus.consume.liveness import LivenessObserver

#: A member whose counter has stood still for so long has no share until it moves. This is shorter than the take-over of
#: a dead worker's entries: its partitions must not wait so long.
STILL_S = 5.0
#: A member whose counter has stood still for so long is removed.
FORGET_S = 60.0


class MemberView:
    """The members of a group as *own* has seen them. Not thread-safe.

    Members that it finds at its first look may have died long ago: they count once their counter moves. A living
    member's counter moves within HEARTBEAT_S; until then there is no answer. Later members count at once.
    """

    def __init__(self, own: str, clock: Clock, *, still_s: float = STILL_S) -> None:
        self._own = own
        self._clock = clock
        self._still_s = still_s
        self._liveness = LivenessObserver(clock, longest_gap_s=HEARTBEAT_S)
        self._began: float | None = None
        self._found: dict[str, str] = {}  #: at the first look; their counters have not moved since
        self.dead: tuple[str, ...] = ()  #: at the last look; to be removed

    def look(self, counters: Mapping[str, str]) -> frozenset[str] | None:
        """Take the current counters. Return the members that live, *own* among them; None: it is too early to say."""
        now = self._clock.monotonic()
        others = {name: counter for name, counter in counters.items() if name != self._own}
        if self._began is None:
            self._began, self._found = now, others
        self._found = {name: counter for name, counter in self._found.items() if others.get(name) == counter}
        still = self._liveness.observe(others)
        self.dead = tuple(name for name, still_s in still.items() if still_s >= FORGET_S)
        if self._found and now - self._began < HEARTBEAT_S:
            return None
        alive = {name for name, still_s in still.items() if still_s < self._still_s and name not in self._found}
        return frozenset(alive | {self._own})
