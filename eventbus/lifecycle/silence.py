"""Measures how long nodes are silent, and detects that the observer's own connection may be the cause."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec

from eventbus.util.clock import Clock

#: After a `restart`, a node with a longer grace period keeps its counted silence, but has at least this many seconds
#: left. Otherwise a minute without Redis would start a period of a day again.
LEAST_LEFT_S = 600.0


class _Heartbeat(msgspec.Struct):
    at: float
    grace_s: float
    renewed: bool = False


class SilenceObserver:
    """Measures which nodes have sent no heartbeat for their grace period. One thread.

    After an outage of the observer, call `restart`: it may have missed heartbeats.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heartbeats: dict[str, _Heartbeat] = {}

    def expect(self, name: str, grace_s: float, silent_s: float = 0.0) -> None:
        """Watch *name*. Its last heartbeat was *silent_s* ago. If it is watched already, set its grace period."""
        heartbeat = self._heartbeats.get(name)
        if heartbeat is None:
            self._heartbeats[name] = _Heartbeat(self._clock.monotonic() - _kept(grace_s, silent_s), grace_s)
        else:
            heartbeat.grace_s = grace_s

    def heard(self, name: str, grace_s: float) -> None:
        """Note a heartbeat of *name*."""
        known = name in self._heartbeats
        self._heartbeats[name] = _Heartbeat(self._clock.monotonic(), grace_s, known)

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._heartbeats.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but *names*."""
        self._heartbeats = {name: heartbeat for name, heartbeat in self._heartbeats.items() if name in names}

    def restart(self) -> None:
        """Restart every grace period; see LEAST_LEFT_S."""
        now = self._clock.monotonic()
        for heartbeat in self._heartbeats.values():
            heartbeat.at = now - _kept(heartbeat.grace_s, now - heartbeat.at)
            heartbeat.renewed = False

    def has_renewed(self, name: str) -> bool:
        """Return True if a heartbeat of *name* was observed after its first observation and the last `restart`."""
        heartbeat = self._heartbeats.get(name)
        return heartbeat is not None and heartbeat.renewed

    def silent_s(self, name: str) -> float:
        """Return the seconds since its last heartbeat, its first observation, or the last `restart`."""
        heartbeat = self._heartbeats.get(name)
        return 0.0 if heartbeat is None else self._clock.monotonic() - heartbeat.at

    def is_silent(self, name: str) -> bool:
        """Return True if *name* has sent no heartbeat for its grace period."""
        heartbeat = self._heartbeats.get(name)
        return heartbeat is not None and self._clock.monotonic() - heartbeat.at >= heartbeat.grace_s

    def silent(self, names: Iterable[str]) -> list[str]:
        """Return the silent nodes of *names*, the longest silent first."""
        return sorted(filter(self.is_silent, names), key=lambda name: (-self.silent_s(name), name))


def _kept(grace_s: float, silent_s: float) -> float:
    return min(silent_s, max(0.0, grace_s - LEAST_LEFT_S))


#: Nodes that fall silent within this time are one disruption. Seconds.
WINDOW_S = 60.0
#: So few silent nodes are no disruption, as in kube's controller.
FEW = 2
#: In a disruption, the seconds between two nodes that are marked as lost. Kubernetes' --node-eviction-rate is 0.1.
ONE_EVERY_S = 10.0


class Disruption:
    """Limits how fast nodes are marked as lost. One thread.

    If most nodes fall silent at once, the cause is probably the observer's own connection.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_on = False
        self.fallen = 0
        self._clock = clock
        self._marked_at: dict[str, float] = {}  # within the window
        self._lost: set[str] = set()  # marked in this disruption, and not back
        self._last = -math.inf

    def allowed(self, silent: Sequence[str], total: int) -> Sequence[str]:
        """Return the nodes of *silent* that may be marked as lost now, of *total* nodes.

        Args: silent: nodes that are not marked yet, the longest silent first.

        Sets `is_on`: whether there is a disruption; `fallen`: the nodes that fell silent in the window before it began.
        """
        now = self._clock.monotonic()
        self._marked_at = {name: at for name, at in self._marked_at.items() if now - at < WINDOW_S}
        if self.is_on:
            self.is_on = bool(silent) and 2 * (len(silent) + len(self._lost)) > total
        else:
            self._lost.clear()
            self.fallen = len({*silent, *self._marked_at})
            self.is_on = bool(silent) and self.fallen > FEW and 2 * self.fallen > total
            self._last = now if self.is_on else self._last
        if not self.is_on:
            return silent
        return silent[:1] if now - self._last >= ONE_EVERY_S else ()

    def marked(self, name: str) -> None:
        """Note that *name* was marked as lost."""
        self._last = self._clock.monotonic()
        self._marked_at[name] = self._last
        if self.is_on:
            self._lost.add(name)

    def is_back(self, name: str) -> None:
        """Note that a lost node is back."""
        self._lost.discard(name)
