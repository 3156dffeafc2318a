"""The pauses between a container's runs: none after its first crash, then 10 s, doubled up to 300 s.

Source: client-go `util/flowcontrol/backoff.go` as the kubelet uses it: the pause counts from the end of the last run.
Departure: a clock that is set neither prolongs a pause nor ends it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eventbus.util.clock import Ages, Clock

#: The kubelet's: 10 s after the second crash, doubled after each further one.
BASE_S: Final = 10.0
#: The kubelet's MaxContainerBackOff.
MAX_S: Final = 300.0
#: A run of twice the longest pause (10 min) counts as healthy: its end counts as a first crash again.
HEALTHY_PAUSES: Final = 2


class _Entry(NamedTuple):
    pause_s: float
    began_s: float  #: when it was last doubled, on the monotonic clock


class RestartBackoff:
    """The pauses of many containers, each under a key. Any thread.

    Args: base_s, max_s: seconds, above 0; a container that ran for twice *max_s* starts again with *base_s*.
    """

    def __init__(self, clock: Clock, base_s: float = BASE_S, max_s: float = MAX_S) -> None:
        self._clock = clock
        self._ages = Ages(clock)
        self._base_s = min(base_s, max_s)
        self._max_s = max_s
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def left_s(self, key: str, ended_s: float) -> float:
        """Return the seconds until a container that ended at *ended_s* (since 1970) may run again; 0.0: now."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return 0.0
            age_s = self._age_s(key, entry, ended_s)
            return 0.0 if self._expired(entry, age_s) else max(0.0, entry.pause_s - age_s)

    def now_s(self) -> float:
        """Return the current time for `left_s` and `next`: seconds since 1970."""
        return self._clock.time_ns() / 1e9

    def pause_s(self, key: str) -> float:
        """The pause that is in force."""
        with self._lock:
            entry = self._entries.get(key)
        return entry.pause_s if entry else 0.0

    def next(self, key: str, ended_s: float) -> None:
        """It is started again: the pause after this run is twice the last."""
        with self._lock:
            entry = self._entries.get(key)
            pause_s = self._base_s
            if entry is not None and not self._expired(entry, self._age_s(key, entry, ended_s)):
                pause_s = min(entry.pause_s * 2, self._max_s)
            self._entries[key] = _Entry(pause_s, self._clock.monotonic())

    def forget(self, prefix: str) -> None:
        """Forget all keys that begin so."""
        with self._lock:
            for key in [key for key in self._entries if key.startswith(prefix)]:
                del self._entries[key]
                self._ages.forget(key)

    def _age_s(self, key: str, entry: _Entry, ended_s: float) -> float:
        """Seconds since a run ended, which began no earlier than its *entry*."""
        return self._ages.age_s(key, ended_s, self._clock.monotonic() - entry.began_s)

    def _expired(self, entry: _Entry, age_s: float) -> bool:
        return self._clock.monotonic() - age_s - entry.began_s > HEALTHY_PAUSES * self._max_s
