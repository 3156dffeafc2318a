"""Computes how long to wait before the next try: a pause that doubles with each failure, and is drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

#: Doublings that are counted: 2 ** 30 times the shortest pause is longer than any bound, and no float overflows.
_MOST_DOUBLINGS = 30


class Backoff(msgspec.Struct, frozen=True):
    """An exponential back-off with jitter. It has no state: the caller counts the consecutive failures.

    The n-th pause is random from *at_least* × p to p, where p is *first_s* × 2^(n-1), at most *last_s*. With *at_least*
    0 (full jitter), the retries of clients that failed together are spread best; a larger value guarantees a pause.
    """

    first_s: float
    last_s: float
    at_least: float = 0.0  #: share of the pause, 0..1

    def pause_s(self, failures: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Seconds to wait after so many *failures* in a row, 1 or more."""
        doubled = self.first_s * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS)
        longest_s = min(self.last_s, doubled)
        return uniform(self.at_least * longest_s, longest_s)
