"""Limit the rate of events that each user writes through one API worker."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from eventbus.api import status
from eventbus.util.clock import Clock, SystemClock

#: Events that a user may write a second, on average.
EVENTS_PER_S: Final = 100_000
#: Events that a user may write at once after a pause.
BURST: Final = 1_000_000
#: Users whose buckets are kept. The bucket that was used longest ago is removed, and is full when the user returns.
USERS: Final = 4096


class EventRate:
    """A token bucket for each user, in memory. Thread-safe.

    Args: per_s, burst: other numbers than the fixed ones, for tests.
    """

    def __init__(self, *, per_s: float = EVENTS_PER_S, burst: int = BURST, clock: Clock | None = None) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, when they were counted
        self.refused = 0  #: requests

    def admit(self, user: str, events: int = 1) -> None:
        """Take *events* tokens if the user has at least one, or none.

        A request may take more tokens than there are, so that large batches are accepted. The next request must wait
        until they have come back.

        Raises: Refusal: 429 with Retry-After.
        """
        if not events:
            return
        with self._lock:
            now_s = self._clock.monotonic()
            tokens, counted_s = self._buckets.pop(user, (float(self._burst), now_s))
            tokens = min(float(self._burst), tokens + (now_s - counted_s) * self._per_s)
            is_admitted = tokens >= 1
            self._buckets[user] = (tokens - events if is_admitted else tokens, now_s)
            if len(self._buckets) > USERS:
                self._buckets.popitem(last=False)
            if not is_admitted:
                self.refused += 1
        if not is_admitted:
            raise status.too_many(
                f"user {user[:200]} writes more than {self._per_s:g} events a second", (1 - tokens) / self._per_s
            )
