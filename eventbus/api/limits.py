"""Bounds of the worker: concurrent requests and watches, and the events that each user may write."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.health import asks_for_health
from eventbus.api.kube.request_info import is_true
from eventbus.api.token_path import is_ping
from eventbus.util.clock import Clock, SystemClock

#: The path where a page signs in and out: the user is not known yet, or not known any more.
SESSION_PATH: Final = "/eventbus/v1/session"
_READS: Final = ("GET", "HEAD", "OPTIONS")
#: POSTs that only read.
READING_POSTS: Final = frozenset({"/eventbus/v1/verdicts", "/mcp"})
#: Requests that last until their client ends them, besides watches.
LONG_PATHS: Final = ("/eventbus/v1/stream",)
#: First parts of the paths of resources that can be watched.
_WATCHED: Final = (["api"], ["apis"])


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of requests as in the API server, and of watches for a process of about 100 MB."""

    reads: int = 400
    writes: int = 200
    watches: int = 10_000


class Limits:
    """Count the requests in flight. Use only in the event loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.in_flight: Counter[str] = Counter()  #: by readOnly and mutating
        self.watches = 0
        self.refused: Counter[str] = Counter()  #: by readOnly, mutating and watches

    def begin(self, request: web.Request) -> str:
        """Count *request* until `end`. Returns: its sort; "" if it has no limit. Raises: ApiError: 429."""
        # Paths open to all are not counted. Otherwise, clients without a user could use up the limit.
        return "" if is_open(request) or is_long(request) else self._take(request)

    def end(self, sort: str) -> None:
        if sort:
            self.in_flight[sort] -= 1

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """Count a request that ends although its path is long-running. Raises: ApiError: 429."""
        sort = self._take(request)
        try:
            yield
        finally:
            self.end(sort)

    def _take(self, request: web.Request) -> str:
        sort, most = self._sort(request)
        if self.in_flight[sort] >= most:
            self.refused[sort] += 1
            raise status.too_many("Too many requests, please try again later.")
        self.in_flight[sort] += 1
        return sort

    def _sort(self, request: web.Request) -> tuple[str, int]:
        """Return the sort of *request* and the limit of this sort."""
        if only_reads(request):
            return "readOnly", self._bounds.reads
        return "mutating", self._bounds.writes

    def begin_watch(self) -> None:
        """Count a watch until `end_watch`. Raises: ApiError: 429."""
        if self.watches >= self._bounds.watches:
            self.refused["watches"] += 1
            raise status.too_many("Too many watches, please try again later.")
        self.watches += 1

    def end_watch(self) -> None:
        self.watches -= 1


def is_open(request: web.Request) -> bool:
    """Return True for the paths without authentication: health checks, sign-in and sign-out."""
    signs_in_or_out = request.path == SESSION_PATH and request.method in ("POST", "DELETE")
    return signs_in_or_out or asks_for_health(request)


def only_reads(request: web.Request) -> bool:
    """Return True if the request cannot write."""
    if request.method == "POST":
        return request.path in READING_POSTS
    return request.method in _READS and not is_ping(request)


def is_long(request: web.Request) -> bool:
    """Return True if the response may not end by itself. If it does end, its handler counts the request."""
    if request.method != "GET" or request.path in LONG_PATHS:
        return request.method == "GET"
    parts = request.path.split("/", 5)
    return parts[1:2] in _WATCHED and ("watch" in parts[3:5] or is_true(request.query.get("watch")))


#: Events that a user may write a second, on average.
EVENTS_PER_S: Final = 100_000
#: Events that a user may write at once after a pause.
BURST: Final = 1_000_000
#: Maximum number of buckets. The least recently used one is removed, and is full when the user returns.
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

        Raises: ApiError: 429 with Retry-After.
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
