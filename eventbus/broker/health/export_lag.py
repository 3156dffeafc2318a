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
#: The least number of versions that `last_version` in objects.lua jumps over.
JUMP = 10_000_000
#: Round trips to find jumps: each finds one, or halves a stream of more than JUMP changes.
MOST_LOOKS = 100


class Lag(msgspec.Struct, frozen=True):
    """*events*: changes behind a position.  *seconds*: how long ago the oldest of them was published."""

    events: int
    seconds: float


def read_lag(node: Any, keys: Keys, position: int) -> Lag:
    """Count the changes that a partition's stream holds behind *position*. *node* is the server that holds it.

    Changes that were trimmed are not among them: a sink that needs them lists the store. A change that only moves the
    count that readers see is one, too. The number is exact, unless the stream holds more than MOST_LOOKS jumps: then it
    is the least that there may be. The seconds are by the server's clock.

    Raises: BusUnavailable: call again.
    Redis:  TIME, XREVRANGE, XRANGE on changes, in one round; and XREVRANGE, XRANGE once more for each jump.
    """
    changes = keys.changes_of(EVENTS)
    with redis_errors():
        pipe = node.pipeline(transaction=False)
        pipe.time()
        pipe.xrevrange(changes, count=1)
        pipe.xrange(changes, f"({position}-0", "+", count=OPENED)
        time, newest, behind = pipe.execute()
        if not behind or not newest:
            return Lag(0, 0.0)
        oldest = behind[0]
        held = _last(oldest) - max(position, _first(oldest) - 1)
        held += _count_between(node, changes, _last(oldest), _last(newest[0]))
    now_ms = time[0] * 1000 + time[1] // 1000
    published = [ms for _, fields in behind if (ms := _published_ms(fields))]
    return Lag(held, max(0, now_ms - published[0]) / 1000 if published else 0.0)


def _count_between(node: Any, changes: bytes, low: int, high: int) -> int:
    """Count the changes in the entries behind the entry *low*, up to the entry *high*.

    Versions are consecutive, but for jumps after a restart of the server. A jump is much larger than all that a stream
    holds, so the middle of a range with a jump lies in it.
    """
    held, looks, ranges = 0, 0, [(low, high)]
    while ranges:
        low, high = ranges.pop()
        if high - low < JUMP:
            held += max(0, high - low)
            continue
        looks += 1
        if looks > MOST_LOOKS:
            continue
        middle = (low + high) // 2
        pipe = node.pipeline(transaction=False)
        pipe.xrevrange(changes, f"{middle}-0", f"({low}-0", count=1)
        pipe.xrange(changes, f"({middle}-0", f"{high}-0", count=1)
        before, after = pipe.execute()
        if before:
            ranges.append((low, _last(before[0])))
        if after:
            held += _last(after[0]) - _first(after[0]) + 1
            ranges.append((_last(after[0]), high))
    return held


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
