"""How long each node has been silent, and whether a few nodes are lost or the observer's own link."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec

from eventbus.util.clock import Clock

#: A grace that is longer than this goes on after a restart, with so much left of it: a day's silence is not to be
#: forgotten because Redis was away for a minute. Seconds.
LEAST_LEFT_S = 600.0


class _Sign(msgspec.Struct):
    at: float
    grace_s: float
    moved: bool = False


class SilenceObserver:
    """Observes which nodes have been silent for longer than their grace. One thread.

    If the observer was cut off, the nodes may have been cut off too: after `restart` every grace period starts again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signs: dict[str, _Sign] = {}

    def expect(self, name: str, grace_s: float, silent_s: float = 0.0) -> None:
        """Watch *name*, which another worker has seen silent for *silent_s*; if it is watched, only set its grace."""
        sign = self._signs.get(name)
        if sign is None:
            self._signs[name] = _Sign(self._clock.monotonic() - _kept(grace_s, silent_s), grace_s)
        else:
            sign.grace_s = grace_s

    def heard(self, name: str, grace_s: float) -> None:
        """Note a heartbeat of *name*."""
        known = name in self._signs
        self._signs[name] = _Sign(self._clock.monotonic(), grace_s, known)

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._signs.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but *names*."""
        self._signs = {name: sign for name, sign in self._signs.items() if name in names}

    def restart(self) -> None:
        """Restart every grace period; see LEAST_LEFT_S."""
        now = self._clock.monotonic()
        for sign in self._signs.values():
            sign.at = now - _kept(sign.grace_s, now - sign.at)
            sign.moved = False

    def has_moved(self, name: str) -> bool:
        """Return True if its last heartbeat was observed, and it was watched before that."""
        sign = self._signs.get(name)
        return sign is not None and sign.moved

    def silent_s(self, name: str) -> float:
        """Return the seconds since its last heartbeat, its first observation, or the last `restart`."""
        sign = self._signs.get(name)
        return 0.0 if sign is None else self._clock.monotonic() - sign.at

    def is_silent(self, name: str) -> bool:
        """For at least its grace."""
        sign = self._signs.get(name)
        return sign is not None and self._clock.monotonic() - sign.at >= sign.grace_s

    def silent(self, names: Iterable[str]) -> list[str]:
        """Those of *names* that are, the longest silent first."""
        return sorted(filter(self.is_silent, names), key=lambda name: (-self.silent_s(name), name))


def _kept(grace_s: float, silent_s: float) -> float:
    return min(silent_s, max(0.0, grace_s - LEAST_LEFT_S))


#: Nodes that fall silent within this time are one disruption. Seconds.
WINDOW_S = 60.0
#: With at most this many nodes the two cases cannot be distinguished, as in kube's controller.
FEW = 2
#: In a disruption, the seconds between two nodes that are given up. Kubernetes' --node-eviction-rate is 0.1.
ONE_EVERY_S = 10.0


class Disruption:
    """Paces the judgement of nodes. One thread.

    The loss of most nodes at once is more likely a broken link of the observer than the loss of a few is.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_on = False
        self._clock = clock
        self._judged: list[float] = []  # when, of those within the window
        self._given_up: set[str] = set()  # in this disruption
        self._last = -math.inf

    def allowed(self, silent: Sequence[str], total: int) -> Sequence[str]:
        """Return the nodes of *silent* that may be judged now, of *total* nodes.

        Args: silent: nodes that are not judged yet, the longest silent first.

        Sets `is_on`: whether there is a disruption.
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
        """Note a heartbeat of a node that was given up."""
        self._given_up.discard(name)
