"""Reads objects in the order of an index: a sorted set in lexical order with members `<indexed text> NUL <id>`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.calls import PendingCalls
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import ID_CHARS
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import PoisonBatch
from eventbus.model.list_watch import HasMetadata
from eventbus.store.storage import Storage

T = TypeVar("T", bound=HasMetadata)

#: Objects read at once.
PAGE = 500


class Scanner(Generic[T]):
    """Reads the objects of one kind in the order of an index. One thread at a time, as its client."""

    def __init__(self, *, bus: Bus, client: Client, storage: Storage[T]) -> None:
        self._bus = bus
        self._client = client
        self._storage = storage

    def scan(
        self, partition: int, index: tuple[bytes, bytes], *, after: bytes = b"", page: int = PAGE, ahead: bool = True
    ) -> Iterator[list[tuple[bytes, T]]]:
        """Yield the members of an index after *after*, with their objects, in pages. *index*: as of `Storage.index`.

        Skips corrupt values. *ahead*: request the next page while this one is decoded and used.

        Raises: BusUnavailable.
        Redis:  ZRANGE BYLEX on the index, then for each page MGET and the next page's ZRANGE in one round.
        """
        key, start = index
        low, high = bounds(start)
        if after:
            low = b"(" + after
        prefix = self._bus.keys[partition].object_of(self._storage.kind.plural)
        with redis_errors():
            named: Any = self._client.execute_command(*range_command(key, low, high, page))
        pending = self._ask(prefix, key, named, high, page)
        try:
            while pending is not None:
                request, pending, members = pending, None, named
                values, *more = request.replies()
                named = more[0] if more else ()
                if ahead:
                    pending = self._ask(prefix, key, named, high, page)
                yield self._decoded(members, values)
                if not ahead:
                    pending = self._ask(prefix, key, named, high, page)
        finally:
            if pending is not None:
                pending.drain()

    def _ask(self, prefix: bytes, key: bytes, named: Sequence[bytes], high: bytes, page: int) -> PendingCalls | None:
        """Request the objects of *named*, and the next names if there may be any. None: there are no objects."""
        if not named:
            return None
        objects = ("MGET", *(prefix + member[-ID_CHARS:] for member in named))
        if len(named) < page:
            return PendingCalls(self._client, objects)
        return PendingCalls(self._client, objects, range_command(key, b"(" + named[-1], high, page))

    def _decoded(self, members: Sequence[bytes], values: Sequence[bytes | None]) -> list[tuple[bytes, T]]:
        decode, page = self._storage.decode, []
        for member, packed in zip(members, values, strict=True):
            try:
                if packed is not None and (obj := decode(packed)) is not None:
                    page.append((member, obj))
            except PoisonBatch:
                continue
        return page


_PAGE = 500


def range_command(index: bytes, low: bytes, high: bytes, page: int) -> tuple[Any, ...]:
    """Return the ZRANGE that reads at most *page* members of *index* from *low* to *high*."""
    return ("ZRANGE", index, low, high, "BYLEX", "LIMIT", 0, page)


def members(client: Client, index: bytes, start: bytes) -> Iterator[bytes]:
    """Read the members that begin with *start*, in pages, so that no command takes long.

    Raises: BusUnavailable.
    Redis:  ZRANGE BYLEX on *index*.
    """
    low, high = bounds(start)
    while True:
        with redis_errors():
            page: Any = client.execute_command(*range_command(index, low, high, _PAGE))
        yield from page
        if len(page) < _PAGE:
            return
        low = b"(" + page[-1]


def bounds(start: bytes) -> tuple[bytes, bytes]:
    """Return ZRANGE BYLEX's two bounds for the members that begin with *start*."""
    if not start:
        return b"-", b"+"
    if start.endswith(b"\0"):
        return b"[" + start, b"(" + start[:-1] + b"\1"
    return b"[" + start, b"(" + start + b"\xff"
