"""Sees which members of a group live, by their heartbeat counters and its own monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping

from eventbus.broker.health.heartbeats import HEARTBEAT_S
from eventbus.clock import Clock
from eventbus.consume.liveness import LivenessObserver

#: A member that was watched standing still for so long has no share until its counter moves: its partitions must not
#: wait for as long as what a dead worker had in hand does.
STILL_S = 5.0
#: One that stands still for so long is taken out.
FORGET_S = 60.0


class MemberView:
    """The members of a group as *own* has seen them. Not thread-safe.

    Whom it finds when it begins may have died long ago: they count from when their counter is seen to move, and
    for HEARTBEAT_S, in which that of a living one does, it says nothing. Who comes later counts at once.
    """

    def __init__(self, own: str, clock: Clock, *, still_s: float = STILL_S) -> None:
        self._own = own
        self._clock = clock
        self._still_s = still_s
        self._liveness = LivenessObserver(clock, longest_gap_s=HEARTBEAT_S)
        self._began: float | None = None
        self._found: dict[str, str] = {}  #: at the first look, and not seen to move since
        self.dead: tuple[str, ...] = ()  #: at the last look, for so long that they are to be forgotten

    def look(self, counters: Mapping[str, str]) -> frozenset[str] | None:
        """Take what the counters are now. Returns: those who live, *own* among them; None: it is too early to say."""
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
