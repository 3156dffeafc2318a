"""Reads the store's indexes: sorted sets in lexical order whose members are `<indexed text> NUL <id>`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors

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
            found: Any = client.execute_command(*range_command(index, low, high, _PAGE))
        yield from found
        if len(found) < _PAGE:
            return
        low = b"(" + found[-1]


def bounds(start: bytes) -> tuple[bytes, bytes]:
    """Return ZRANGE BYLEX's two bounds for the members that begin with *start*."""
    if not start:
        return b"-", b"+"
    if start.endswith(b"\0"):
        return b"[" + start, b"(" + start[:-1] + b"\1"
    return b"[" + start, b"(" + start + b"\xff"
