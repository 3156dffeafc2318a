"""How far a sink is behind the store's changes: how many there are, and how old the oldest is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import msgspec

from eventbus.broker.keys import Keys
from eventbus.broker.redis_errors import redis_errors

#: Changes behind a sink's position that are opened to find how old the oldest is.
OPENED = 20


class Lag(msgspec.Struct, frozen=True):
    """*events*: changes behind a position.  *seconds*: how long ago the oldest of them was published."""

    events: int
    seconds: float


def read_lag(node: Any, keys: Keys, position: int) -> Lag:
    """What is behind *position* on a partition, by the server's clock. *node* is the server that holds it.

    Versions are consecutive, but for the jump after a restart of the server: hence never more than there are entries.

    Raises: BusUnavailable: call again.
    Redis:  TIME, XLEN, XREVRANGE, XRANGE on changes, in one round.
    """
    with redis_errors():
        pipe = node.pipeline(transaction=False)
        pipe.time()
        pipe.xlen(keys.changes)
        pipe.xrevrange(keys.changes, count=1)
        pipe.xrange(keys.changes, f"({position}-0", "+", count=OPENED)
        time, length, newest, behind = pipe.execute()
    if not behind or not newest:
        return Lag(0, 0.0)
    now_ms = time[0] * 1000 + time[1] // 1000
    last = int(newest[0][0].split(b"-")[0])
    published = [ms for _, fields in behind if (ms := _published_ms(fields))]
    return Lag(min(length, last - position), max(0, now_ms - published[0]) / 1000 if published else 0.0)


def _published_ms(fields: Mapping[bytes, bytes]) -> int:
    """When the event was published that the object was written from last; 0: it is no such change.

    What expires was published long ago: that it went is what happened now.
    """
    if fields.get(b"t") == b"D" or b"n" in fields:
        return 0
    try:
        entry = msgpack.unpackb(fields[b"o"], raw=True)[4]
        return int(entry.split(b"-")[0])
    except (KeyError, ValueError, TypeError, IndexError, AttributeError):
        return 0


__all__ = ["Lag", "read_lag"]
