"""The pauses before a program that ended is started again: the kubelet's crash-loop back-off."""

from __future__ import annotations

#: The kubelet's: 10 s after the first crash, doubled after each further one.
BASE_S = 10.0
#: The kubelet's MaxContainerBackOff.
MAX_S = 300.0
#: A run of twice the longest pause (10 min) counts as healthy: the next pause is the first one again.
HEALTHY_PAUSES = 2


class Backoff:
    """The pauses of one program: *base_s*, doubled each time up to *max_s*, from the start after a healthy run.

    Args:   base_s, max_s: seconds, above 0.
    Source: kubelet, crash loop back-off. Departure: there the pause counts from the end of the run before.
    """

    def __init__(self, base_s: float = BASE_S, max_s: float = MAX_S) -> None:
        self._base_s = min(base_s, max_s)
        self._max_s = max_s
        self._next_s = self._base_s

    def pause_after(self, ran_s: float) -> float:
        """Return the seconds to wait after a run of *ran_s* seconds. Each call moves on to the next pause."""
        if ran_s >= HEALTHY_PAUSES * self._max_s:
            self._next_s = self._base_s
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._max_s)
        return pause_s
