"""Reads the number of occurrences in each minute: the data of a histogram of the last hours.

The sink workers count every occurrence, even of aggregated or suppressed events, under at most 200 names a minute and
partition. The other occurrences of a minute are one row.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.client.connection import ApiConnection
from eventbus.client.numbers import fetch
from eventbus.model.encoding.event_json import micros_to_json, seconds_to_json

#: Namespace, kind of object, type, reason, source. Occurrences with the same words are counted together.
Words = tuple[str, str, str, str, str]

MINUTE_S = 60
MINUTE = timedelta(seconds=MINUTE_S)
#: Hashes read in one round, each of 200 fields at most.
PAGE = 200
#: The field for occurrences beyond the 200 names of a minute.
_OTHER = b"other"


class Occurrences(msgspec.Struct, frozen=True, order=True):
    """The occurrences of one minute, beginning at *minute*, for one namespace, kind of object, type, reason and source.

    In the row of those without a name of their own these five are "".
    """

    minute: datetime
    namespace: str
    kind: str
    type: str
    reason: str
    source: str
    count: int


class OccurrencesRead(msgspec.Struct, frozen=True):
    """The rows of a period, ordered by minute, then by words. *begins*: the first minute that is known."""

    rows: tuple[Occurrences, ...]
    begins: datetime


class Minutes(msgspec.Struct, frozen=True):
    """The number of occurrences of some words in each minute.

    *unknown*: minutes in which some words are counted as others. *begins*: the first known minute. *until*: the time of
    the read, or the requested end.
    """

    counts: dict[Words, dict[int, int]]
    unknown: tuple[datetime, ...]
    begins: datetime
    until: datetime

    def of(self, words: Words) -> list[tuple[datetime, int]]:
        """Return the minutes with occurrences of *words*, in order."""
        return [(_moment(minute), count) for minute, count in sorted(self.counts.get(words, {}).items())]


def read_occurrences(bus: Bus, client: Client, since: datetime, until: datetime) -> OccurrencesRead:
    """Read the counts from the minute of *since* to that of *until*, both included, summed over all partitions.

    Times are aware. Minutes before `begins`, later than now, or without occurrences have no row. Without the option
    `occurrences_s`, no occurrence is counted, and `begins` is now.

    Raises: BusUnavailable: call again.
    Redis:  HGETALL on occurrences of each minute and partition, in rounds of 200.
    """
    begins, minutes = _minutes(bus, since, until)
    counts: Counter[tuple[int, Words]] = Counter()
    for minute, fields in _read(bus, client, minutes, lambda pipe, key: pipe.hgetall(key)):
        for field, count in fields.items():
            counts[minute, _words(field)] += _number(count)
    rows = sorted(Occurrences(_moment(minute), *words, count=count) for (minute, words), count in counts.items())
    return OccurrencesRead(tuple(rows), _moment(begins))


def read_minutes(bus: Bus, client: Client, words: Collection[Words], since: datetime, until: datetime) -> Minutes:
    """Read the occurrences of each of *words* from the minute of *since* to that of *until*; as `read_occurrences`.

    Raises: BusUnavailable: call again.
    Redis:  HMGET on occurrences of each minute and partition, in rounds of 200.
    """
    begins, minutes = _minutes(bus, since, until)
    named = list(words)
    fields = ["\0".join(key).encode("utf-8", "surrogatepass") for key in named]
    counts: dict[Words, dict[int, int]] = {key: {} for key in named}
    unknown: set[int] = set()
    for minute, values in _read(
        bus, client, minutes if named else (), lambda pipe, key: pipe.hmget(key, *fields, _OTHER)
    ):
        for key, count in zip(named, values, strict=False):
            if n := _number(count):
                counts[key][minute] = counts[key].get(minute, 0) + n
        if values[-1] is not None:
            unknown.add(minute)
    read = datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
    return Minutes(counts, tuple(map(_moment, sorted(unknown))), _moment(begins), min(until, read))


def _minutes(bus: Bus, since: datetime, until: datetime) -> tuple[int, Sequence[int]]:
    """Return the first known minute, and the minutes to read."""
    now = time.time_ns() // 1_000_000_000
    # The minute before it is incomplete: its counts expire from the first occurrence on.
    first = (now - bus.options.occurrences_s) // MINUTE_S + 1
    begins = min(first, now // MINUTE_S)
    minutes = range(max(begins, int(since.timestamp()) // MINUTE_S), min(now, int(until.timestamp())) // MINUTE_S + 1)
    return begins, minutes if bus.options.occurrences_s else ()


def _read(
    bus: Bus, client: Client, minutes: Sequence[int], read: Callable[[Any, bytes], Any]
) -> Iterator[tuple[int, Any]]:
    """Yield each minute with the reply of *read* for its hash, of each partition."""
    hashes = list(product(minutes, bus.keys))
    for start in range(0, len(hashes), PAGE):
        page = hashes[start : start + PAGE]
        pipe: Any = client.pipeline(transaction=False)
        for minute, keys in page:
            read(pipe, keys.occurrences + b"%d" % minute)
        with redis_errors():
            replies = pipe.execute()
        for (minute, _), fields in zip(page, replies, strict=True):
            yield minute, fields


def _number(count: bytes | None) -> int:
    return int(count) if count and count.isdigit() else 0


def _words(field: bytes) -> Words:
    words = field.decode("utf-8", "replace").split("\0")
    if len(words) != 5:  # `other`
        return "", "", "", "", ""
    namespace, kind, type_, reason, source = words
    return namespace, kind, type_, reason, source


def _moment(minute: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(minutes=minute)


#: The words of a row, by which a histogram can count.
FACETS: Final = ("namespace", "kind", "type", "reason", "source")


class Histogram(msgspec.Struct, frozen=True, rename="camel"):
    """Counts a bucket. A row has `time`, the words of *by*, and `count`; nothing before *begins* is known."""

    begins: str | None
    step_s: int
    by: list[str]
    rows: list[dict[str, Any]]


def summed(found: OccurrencesRead, *, by: Sequence[str], only: Mapping[str, str], step_s: int) -> Histogram:
    """Count by bucket and the words of *by*, in that order."""
    counts: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for row in found.rows:
        if all(getattr(row, facet) == word for facet, word in only.items()):
            bucket = int(row.minute.timestamp()) // step_s * step_s
            counts[bucket, tuple(getattr(row, facet) for facet in by)] += row.count
    rows = [
        {
            "time": seconds_to_json(datetime.fromtimestamp(start, UTC)),
            **dict(zip(by, words, strict=True)),
            "count": count,
        }
        for (start, words), count in sorted(counts.items())
    ]
    return Histogram(begins=seconds_to_json(found.begins), step_s=step_s, by=list(by), rows=rows)


def fetch_histogram(
    connection: ApiConnection,
    since: datetime,
    until: datetime,
    *,
    by: Sequence[str],
    only: Mapping[str, str],
    step_s: int,
) -> Histogram:
    """Fetch the counts of a period from an API worker; as `read_occurrences` and `summed`."""
    period = {"since": micros_to_json(since), "until": micros_to_json(until), "by": ",".join(by), "step": step_s}
    return fetch(connection, f"/eventbus/v1/histogram?{urlencode({**period, **only})}", Histogram)
