"""How long each node has been silent, as one observer has seen it, on his own monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eventbus.clock import Clock


class _CachedKeys(msgspec.Struct):
    at: float
    grace_s: float
    moved: bool = False


class SilenceObserver:
    """Who has said nothing for longer than his grace. One thread.

    What kept the observer from looking may have kept the others from speaking: after `restart` every grace begins anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, _CachedKeys] = {}

    def expect(self, name: str, grace_s: float) -> None:
        """Watch *name* from now on, if it is not watched; its grace is *grace_s* from now on."""
        found = self._heard.get(name)
        if found is None:
            self._heard[name] = _CachedKeys(self._clock.monotonic(), grace_s)
        else:
            found.grace_s = grace_s

    def heard(self, name: str, grace_s: float) -> None:
        """*name* has just given a sign."""
        known = name in self._heard
        self._heard[name] = _CachedKeys(self._clock.monotonic(), grace_s, known)

    def forget(self, name: str) -> None:
        """It is gone, and nobody waits for it."""
        self._heard.pop(name, None)

    def restart(self) -> None:
        """Every grace begins anew."""
        now = self._clock.monotonic()
        for found in self._heard.values():
            found.at = now

    def has_moved(self, name: str) -> bool:
        """True if its last sign was seen, and it was watched before that."""
        found = self._heard.get(name)
        return found is not None and found.moved

    def silent_s(self, name: str) -> float:
        """Since its last sign, or since it is watched, or the last `restart`."""
        found = self._heard.get(name)
        return 0.0 if found is None else self._clock.monotonic() - found.at

    def is_silent(self, name: str) -> bool:
        """For at least its grace."""
        found = self._heard.get(name)
        return found is not None and self._clock.monotonic() - found.at >= found.grace_s

    def silent(self, names: Iterable[str]) -> list[str]:
        """Those of *names* that are, the longest silent first."""
        return sorted(filter(self.is_silent, names), key=lambda name: (-self.silent_s(name), name))


__all__ = ["SilenceObserver"]
