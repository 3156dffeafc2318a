"""The token buckets that one API worker has for itself."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventbus.api.rate_limits import Limit, LimitType
from eventbus.clock import Clock

#: Buckets of a limit that names no number; the API server's.
_CACHE: Final = 4096
#: Nanoseconds in a second.
_NS: Final = 1_000_000_000


class Wanted(NamedTuple):
    """Tokens of the bucket that *limit* has for *key*."""

    limit: Limit
    key: str
    tokens: int


class LocalBuckets:
    """The buckets of each limit; those used longest ago are forgotten, and come back full. Thread-safe."""

    def __init__(self, limits: Sequence[Limit], clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = {limit: _Buckets(limit) for limit in limits}

    def take(self, wanted: Sequence[Wanted], *, all_or_none: bool) -> list[float]:
        """See `Functions.limit_rate`."""
        now_ns = int(self._clock.monotonic() * _NS)
        with self._lock:
            waits_s = [self._buckets[one.limit].wait_s(one.key, now_ns) for one in wanted]
            if not (all_or_none and any(waits_s)):
                for one, wait_s in zip(wanted, waits_s, strict=True):
                    if not wait_s:
                        self._buckets[one.limit].take(one.key, one.tokens)
        return waits_s


class _Buckets:
    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._most = 1 if limit.type is LimitType.SERVER else limit.cache_size or _CACHE
        self._found: OrderedDict[str, tuple[float, int]] = OrderedDict()  # tokens, and when they were counted

    def wait_s(self, key: str, now_ns: int) -> float:
        """0 where there is a token, else the seconds until there is one."""
        tokens, counted = self._found.pop(key, (float(self._limit.burst), now_ns))
        tokens = min(float(self._limit.burst), tokens + (now_ns - counted) / _NS * self._limit.qps)
        self._found[key] = (tokens, now_ns)
        if len(self._found) > self._most:
            self._found.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._limit.qps

    def take(self, key: str, count: int) -> None:
        """Take tokens, more than there are if need be, of a bucket that was looked at just now."""
        if key in self._found:  # forgotten, where one request has more keys than there are buckets
            tokens, counted = self._found[key]
            self._found[key] = (tokens - count, counted)


__all__ = ["LocalBuckets", "Wanted"]
