"""Reads how often things happened, minute by minute: the data of a histogram of the last hours.

The sink workers count every occurrence there, also of what is folded or held back, under at most 200 names a minute and
partition; all others of a minute are one row.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.clock import Clock, SystemClock

MINUTE_S = 60
#: Hashes read in one round, each of 200 fields at most.
PAGE = 200
#: The field of a minute for all whose names were one too many.
_OTHER = b"other"


class Occurrences(msgspec.Struct, frozen=True, order=True):
    """The occurrences of one minute, beginning at *minute*, for one namespace, kind of object, type and reason.

    In the row of those without a name of their own these four are "".
    """

    minute: datetime
    namespace: str
    kind: str
    type: str
    reason: str
    count: int


class OccurrencesRead(msgspec.Struct, frozen=True):
    """The rows of a period, ordered by minute, then by words. *begins*: the first minute that is known."""

    rows: tuple[Occurrences, ...]
    begins: datetime


def read_occurrences(
    bus: Bus, client: Client, since: datetime, until: datetime, *, clock: Clock | None = None
) -> OccurrencesRead:
    """Read the counts from the minute of *since* to that of *until*, both included, summed over all partitions.

    Times are aware. What is asked of before `begins`, or of later than now, is not there; minutes in which nothing
    happened have no row. Without the option `occurrences_s` nothing is counted, and `begins` is now.

    Raises: BusUnavailable: call again.
    Redis:  HGETALL on occurrences of each minute and partition, in rounds of 200.
    """
    now = (clock or SystemClock()).time_ns() // 1_000_000_000
    # One more would be half gone: a minute's counts live from their first on.
    first = (now - bus.options.occurrences_s) // MINUTE_S + 1
    begins = min(first, now // MINUTE_S)
    asked = range(max(begins, int(since.timestamp()) // MINUTE_S), min(now, int(until.timestamp())) // MINUTE_S + 1)
    counts: Counter[tuple[int, tuple[str, str, str, str]]] = Counter()
    hashes = list(product(asked if bus.options.occurrences_s else (), bus.keys))
    for start in range(0, len(hashes), PAGE):
        page = hashes[start : start + PAGE]
        pipe: Any = client.pipeline(transaction=False)
        for minute, keys in page:
            pipe.hgetall(keys.occurrences + b"%d" % minute)
        with redis_errors():
            found = pipe.execute()
        for (minute, _), fields in zip(page, found, strict=True):
            for field, count in fields.items():
                counts[minute, _words(field)] += int(count) if count.isdigit() else 0
    rows = sorted(Occurrences(_moment(minute), *words, count=count) for (minute, words), count in counts.items())
    return OccurrencesRead(tuple(rows), _moment(begins))


def _words(field: bytes) -> tuple[str, str, str, str]:
    words = field.decode("utf-8", "replace").split("\0")
    if field == _OTHER or len(words) != 4:
        return "", "", "", ""
    namespace, kind, type_, reason = words
    return namespace, kind, type_, reason


def _moment(minute: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(minutes=minute)


__all__ = ["Occurrences", "OccurrencesRead", "read_occurrences"]
