"""Measures how far a sink is behind the store: the number of changes, and the age of the oldest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import msgspec

from eventbus.broker.keys import EVENTS, ID_CHARS, Keys
from eventbus.broker.redis_errors import redis_errors

#: Changes behind a sink's position that are opened to find how old the oldest is.
OPENED = 20


class Lag(msgspec.Struct, frozen=True):
    """*events*: changes behind a position.  *seconds*: how long ago the oldest of them was published."""

    events: int
    seconds: float


def read_lag(node: Any, keys: Keys, position: int) -> Lag:
    """Measure what is behind *position* on a partition, by the server's clock. *node* is the server that holds it.

    Versions are consecutive, but for the jump after a restart of the server: hence what is behind the opened entries
    is never more than the entries there are, each with as many changes as the largest of those opened.

    Raises: BusUnavailable: call again.
    Redis:  TIME, XLEN, XREVRANGE, XRANGE on changes, in one round.
    """
    changes = keys.changes_of(EVENTS)
    with redis_errors():
        pipe = node.pipeline(transaction=False)
        pipe.time()
        pipe.xlen(changes)
        pipe.xrevrange(changes, count=1)
        pipe.xrange(changes, f"({position}-0", "+", count=OPENED)
        time, length, newest, behind = pipe.execute()
    if not behind or not newest:
        return Lag(0, 0.0)
    now_ms = time[0] * 1000 + time[1] // 1000
    held = [_last(entry) - max(position, _first(entry) - 1) for entry in behind]
    further = min(_last(newest[0]) - _last(behind[-1]), (length - len(behind)) * max(held))
    published = [ms for _, fields in behind if (ms := _published_ms(fields))]
    return Lag(sum(held) + max(0, further), max(0, now_ms - published[0]) / 1000 if published else 0.0)


def _last(entry: tuple[bytes, Any]) -> int:
    return int(entry[0].partition(b"-")[0])


def _first(entry: tuple[bytes, Any]) -> int:
    text = entry[1].get(b"f", b"")
    return int(text) if text.isdigit() else _last(entry)


def _published_ms(fields: Mapping[bytes, bytes]) -> int:
    """Return when the first event recorded in an entry was published, ms since 1970; 0: there is none.

    What expires was published long ago: that it went is what happened now.
    """
    for name, packed in fields.items():
        if name[:1] in (b"A", b"M") and len(name) == 1 + ID_CHARS:
            try:
                return int(msgpack.unpackb(packed, raw=True)[4].split(b"-")[0])
            except (ValueError, TypeError, IndexError, AttributeError):
                continue
    return 0


__all__ = ["Lag", "read_lag"]
