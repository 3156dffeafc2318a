"""Distinguishes the loss of a few nodes from that of most, which is more likely a broken link of the observer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eventbus.util.clock import Clock

#: Nodes that fall silent within so many seconds are one disruption.
WINDOW_S = 60.0
#: With at most this many nodes the two cases cannot be distinguished, as in kube's controller.
FEW = 2
#: In a disruption one node is given up in so many seconds; kube's --node-eviction-rate is 0.1 a second.
ONE_EVERY_S = 10.0


class Disruption:
    """Paces the judgement of nodes. One thread."""

    def __init__(self, clock: Clock) -> None:
        self.is_on = False
        self._clock = clock
        self._judged: list[float] = []  # when, of those within the window
        self._given_up: set[str] = set()  # in this disruption
        self._last = -math.inf

    def allowed(self, silent: Sequence[str], total: int) -> Sequence[str]:
        """Choose those of *silent* that may be judged now, of *total* nodes: not yet judged, the longest silent first.

        `is_on` says afterwards whether there is a disruption.
        """
        now = self._clock.monotonic()
        self._judged = [at for at in self._judged if now - at < WINDOW_S]
        if self.is_on:
            self.is_on = bool(silent) and 2 * (len(silent) + len(self._given_up)) > total
        else:
            self._given_up.clear()
            fallen = len(silent) + len(self._judged)
            self.is_on = bool(silent) and fallen > FEW and 2 * fallen > total
            self._last = now if self.is_on else self._last
        if not self.is_on:
            return silent
        return silent[:1] if now - self._last >= ONE_EVERY_S else ()

    def judged(self, name: str) -> None:
        """*name* was given up."""
        self._last = self._clock.monotonic()
        self._judged.append(self._last)
        if self.is_on:
            self._given_up.add(name)

    def is_back(self, name: str) -> None:
        """*name* has given a sign again."""
        self._given_up.discard(name)
