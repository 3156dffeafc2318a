"""Ages of wall-clock times, measured on the monotonic clock, because the wall clock may be set."""

from __future__ import annotations

from collections.abc import Hashable

from eventbus.util.clock import Clock


class Ages:
    """Seconds since moments, each under a key. The wall's clock is asked once a moment, the monotonic one from then on.

    Any thread; one key, one thread at a time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, float]] = {}  # key → the moment, and when it was on the monotonic clock

    def age_s(self, key: Hashable, moment_s: float, most_s: float = float("inf")) -> float:
        """Return the seconds since *moment_s* (since 1970), which is no longer ago than *most_s*, nor to come."""
        now = self._clock.monotonic()
        seen = self._seen.get(key)
        if seen is None or seen[0] != moment_s:
            age_s = min(max(0.0, self._clock.time_ns() / 1e9 - moment_s), most_s)
            seen = self._seen[key] = moment_s, now - age_s
        return now - seen[1]

    def forget(self, key: Hashable) -> None:
        """Forget the moment under *key*, if there is one."""
        self._seen.pop(key, None)
