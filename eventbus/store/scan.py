"""Reads objects in the order of an index: a sorted set in lexical order with members `<indexed text> NUL <id>`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.calls import PendingCalls
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import ID_CHARS
from eventbus.broker.redis_errors import redis_errors
from eventbus.model.list_watch import HasMetadata
from eventbus.store.storage import Storage, decode_or_none

T = TypeVar("T", bound=HasMetadata)

#: Objects of one read.
PAGE = 500


def scan(
    bus: Bus,
    client: Client,
    storage: Storage[T],
    partition: int,
    index: tuple[bytes, bytes],
    *,
    after: bytes = b"",
    page: int = PAGE,
    ahead: bool = True,
) -> Iterator[list[tuple[bytes, T]]]:
    """Yield the members of an index after *after*, with their objects, in pages. *index*: as of `Storage.index`.

    Skips corrupt values. *ahead*: request the next page while this one is decoded and used. Then no other thread may
    use *client* meanwhile.

    Raises: BusUnavailable.
    Redis:  ZRANGE BYLEX on the index, then for each page MGET and the next page's ZRANGE in one round.
    """
    key, start = index
    low, high = bounds(start)
    if after:
        low = b"(" + after
    prefix = bus.keys[partition].object_of(storage.kind.plural)

    def request(members: Sequence[bytes]) -> PendingCalls | None:
        """Request the objects of *members*, and the next members if there may be any. None: there are no objects."""
        if not members:
            return None
        objects = ("MGET", *(prefix + member[-ID_CHARS:] for member in members))
        if len(members) < page:
            return PendingCalls(client, objects)
        return PendingCalls(client, objects, _range_command(key, b"(" + members[-1], high, page))

    with redis_errors():
        members: Any = client.execute_command(*_range_command(key, low, high, page))
    pending = request(members)
    try:
        while pending is not None:
            requested, current, pending = members, pending, None
            values, *more = current.replies()
            members = more[0] if more else ()
            if ahead:
                pending = request(members)
            yield _decoded(storage, requested, values)
            if not ahead:
                pending = request(members)
    finally:
        if pending is not None:
            pending.drain()


def _decoded(storage: Storage[T], members: Sequence[bytes], values: Sequence[bytes | None]) -> list[tuple[bytes, T]]:
    objects = (decode_or_none(storage, packed) for packed in values)
    return [(member, obj) for member, obj in zip(members, objects, strict=True) if obj is not None]


def _range_command(index: bytes, low: bytes, high: bytes, page: int) -> tuple[Any, ...]:
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
            page: Any = client.execute_command(*_range_command(index, low, high, PAGE))
        yield from page
        if len(page) < PAGE:
            return
        low = b"(" + page[-1]


def bounds(start: bytes) -> tuple[bytes, bytes]:
    """Return ZRANGE BYLEX's two bounds for the members that begin with *start*."""
    if not start:
        return b"-", b"+"
    if start.endswith(b"\0"):
        return b"[" + start, b"(" + start[:-1] + b"\1"
    return b"[" + start, b"(" + start + b"\xff"
