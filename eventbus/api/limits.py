"""Bounds how much is answered at once: reads, writes, watches; beyond it 429 and when to come again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.doors import is_open
from eventbus.api.request_info import is_true

_READS: Final = ("GET", "HEAD", "OPTIONS")
#: POSTs that read: their questions are longer than a query may be.
READING_POSTS: Final = frozenset({"/eventbus/v1/verdicts"})
#: What lasts for as long as its client likes, besides watches.
LONG_PATHS: Final = ("/eventbus/v1/stream",)
#: First parts of paths below which something may be watched.
_WATCHED: Final = (["api"], ["apis"])


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's own numbers for requests; of watches those that a process of some 100 MB bears."""

    reads: int = 400
    writes: int = 200
    watches: int = 10_000
    watches_of_a_user: int = 10_000


class Limits:
    """Counts what is being answered. Lives in the loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.in_flight: Counter[str] = Counter()  #: by readOnly and mutating
        self.watches: Counter[str] = Counter()  #: by user
        self.refused: Counter[str] = Counter()  #: by what there was too much of

    def begin(self, request: web.Request) -> str:
        """Take a place, which `end` gives back; "": it needs none. Raises: Refusal: 429."""
        # What is open to all takes no place, or nobodies could take them all.
        return "" if is_open(request) or is_long(request) else self._take(request)

    def end(self, sort: str) -> None:
        if sort:
            self.in_flight[sort] -= 1

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """One request that has an end, though it says otherwise. Raises: Refusal: 429."""
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
        """What *request* is counted as, and how many there may be."""
        if only_reads(request):
            return "readOnly", self._bounds.reads
        return "mutating", self._bounds.writes

    def begin_watch(self, user: str) -> None:
        """Take a place for a watch of *user*. Raises: Refusal: 429."""
        if self.watches[user] >= self._bounds.watches_of_a_user or self.watches.total() >= self._bounds.watches:
            self.refused["watches"] += 1
            raise status.too_many("Too many watches, please try again later.")
        self.watches[user] += 1

    def end_watch(self, user: str) -> None:
        self.watches[user] -= 1
        if not self.watches[user]:
            del self.watches[user]


def only_reads(request: web.Request) -> bool:
    """Return True if nothing is written, whatever is answered."""
    return request.method in _READS or (request.method == "POST" and request.path in READING_POSTS)


def is_long(request: web.Request) -> bool:
    """Return True if the answer may have no end of its own. Where it has one after all, its handler counts it."""
    if request.method != "GET" or request.path in LONG_PATHS:
        return request.method == "GET"
    parts = request.path.split("/", 5)
    return parts[1:2] in _WATCHED and ("watch" in parts[3:5] or is_true(request.query.get("watch")))
