"""Reads the state of external sinks: lag, pending, paused since, last error, dead letters; the lag of the notifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client, node_of
from eventbus.broker.health.status import Beats, moving
from eventbus.broker.keys import EVENTS, ID_CHARS, SINK_GROUP, Keys, versions_in, whole_number
from eventbus.broker.notifications import NotifierStatus
from eventbus.broker.redis_errors import redis_errors

#: Changes after the position of a sink that are opened to find the age of the oldest.
OPENED = 20
#: The least number of versions that `last_version` in objects.lua jumps over.
JUMP = 10_000_000
#: Round trips to find jumps: each finds one, or halves a stream of more than JUMP changes.
MOST_LOOKS = 100


def read_lag(node: Any, keys: Keys, position: int) -> tuple[int, float]:
    """Count the changes after *position* in the stream of a partition. *node* is its server.

    Returns: their number, and the seconds since the oldest of them was published.

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
        time, newest, entries = pipe.execute()
        if not entries or not newest:
            return 0, 0.0
        first, last = versions_in(entries[0])
        events = last - max(position, first - 1)
        events += _count_between(node, changes, last, versions_in(newest[0])[1])
    now_ms = time[0] * 1000 + time[1] // 1000
    published = [ms for _, fields in entries if (ms := _published_ms(fields))]
    return events, max(0, now_ms - published[0]) / 1000 if published else 0.0


def notifier_lag(bus: Bus, client: Client, status: NotifierStatus) -> int:
    """Count the changes that the notifier has not taken in. Redis: as `read_lag`, for each partition."""
    found = 0
    for partition, position in status.positions.items():
        keys = bus.keys[partition]
        found += read_lag(node_of(client, keys.meta), keys, position)[0]
    return found


def _count_between(node: Any, changes: bytes, low: int, high: int) -> int:
    """Count the changes in the entries after the entry *low*, up to the entry *high*.

    Versions are consecutive, but for jumps after a restart of the server. A jump is much larger than all that a stream
    holds, so the middle of a range with a jump lies in it.
    """
    events, looks, ranges = 0, 0, [(low, high)]
    while ranges:
        low, high = ranges.pop()
        if high - low < JUMP:
            events += max(0, high - low)
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
            ranges.append((low, versions_in(before[0])[1]))
        if after:
            first, last = versions_in(after[0])
            events += last - first + 1
            ranges.append((last, high))
    return events


def _published_ms(fields: Mapping[bytes, bytes]) -> int:
    """Return when the first event recorded in an entry was published, ms since 1970; 0: there is none.

    An expired event was published long ago: only its expiry is new.
    """
    for name, packed in fields.items():
        if name[:1] in (b"A", b"M") and len(name) == 1 + ID_CHARS:
            try:
                return int(msgpack.unpackb(packed, raw=True)[4].split(b"-")[0])
            except (ValueError, TypeError, IndexError, AttributeError):
                continue
    return 0


#: An exporter gives a sign every second, within a call of its sink too.
SILENT_MS = 30_000


class SinkPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One sink on one partition. Times are ms since 1970, 0: never."""

    partition: int
    position: int  #: version up to which everything is settled, 0: it has not begun
    lag: int  #: changes after that
    behind_s: float  #: how long ago the oldest of them was published
    holder: str  #: the worker that has it, '' if none
    seen_s: float  #: since its last sign of life, by the server's clock
    pending: int  #: events in hand while it is paused or tries again
    retrying: int  #: those of them that have failed
    paused_since_ms: int
    written_ms: int
    error: str
    error_ms: int
    written: int
    held_back: int
    retries: int
    probes: int
    dead: int
    lists: int
    waiting: int  #: repeats held back for a time, and buried events to be written again
    deleted: int = 0  #: removed from the sink: Redis lost them, and they came back under another uid
    unmatched: int = 0  #: changes of events that the export's matchers exclude
    rejected: int = 0  #: events that the system rejected without saying which; also counted as written
    kept: int = 0  #: still in the sink: Redis lost them, and nothing took their place


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One sink on the whole bus: sums, the oldest pause and the newest error of its partitions."""

    name: str
    mode: str
    lag: int
    behind_s: float
    pending: int
    retrying: int
    waiting: int
    paused_since_ms: int
    written: int
    written_ms: int
    held_back: int
    retries: int
    dead: int
    error: str
    error_ms: int
    holders: tuple[str, ...]
    orphans: tuple[int, ...]  #: partitions without a living worker
    parts: tuple[SinkPart, ...]
    deleted: int = 0
    unmatched: int = 0
    rejected: int = 0
    kept: int = 0


#: The numbers of SinkPart that the hash of an export has, and those that SinkStatus sums.
_STORED: Final[tuple[Any, ...]] = (
    *("position", "pending", "retrying", "paused_since_ms", "written_ms", "error_ms", "written", "held_back"),
    *("unmatched", "rejected", "retries", "probes", "dead", "lists", "deleted", "kept"),
)
_SUMMED: Final[tuple[Any, ...]] = (
    *(
        "lag",
        "pending",
        "retrying",
        "waiting",
        "written",
        "held_back",
        "unmatched",
        "rejected",
        "retries",
        "dead",
        "deleted",
        "kept",
    ),
)


def export_status(bus: Bus, client: Client) -> tuple[SinkStatus, ...]:
    """Read the status of every sink that ever had a worker, by name. Raises: BusUnavailable: call again.

    Redis: HGETALL, TIME, ZCARD, XREVRANGE, XRANGE; on each partition a round trip, and two more a sink; one a jump.
    """
    parts: dict[str, list[SinkPart]] = {}
    modes: dict[str, str] = {}
    for keys in bus.keys:
        with redis_errors():
            meta: Any = client.hgetall(keys.meta)
        fields = [field.decode("utf-8", "replace") for field in meta if field.startswith(b"export:")]
        for name in sorted(field.removeprefix("export:") for field in fields):
            mode, part = _read_part(client, keys, name)
            parts.setdefault(name, []).append(part)
            modes[name] = mode or modes.get(name, "")
    return tuple(_sum(name, modes[name], tuple(of_sink)) for name, of_sink in sorted(parts.items()))


def forget_silent_sinks(client: Client, keys: Keys, *, silent_ms: int) -> list[str]:
    """Remove the sinks of one partition without a sign of life for so long; return their names.

    A worker that comes back begins as a new one.

    Raises: BusUnavailable: call again.

    Redis: HGETALL, TIME; HGET, DEL and HDEL a sink.
    """
    with redis_errors():
        fields: Any = client.hgetall(keys.meta)
        names = [field.removeprefix(b"export:") for field in fields if field.startswith(b"export:")]
        now_ms = node_of(client, keys.meta).time()[0] * 1000 if names else 0
        silent = [name for name in names if now_ms - (_last_sign_ms(client, keys, name) or 0) >= silent_ms]
        for name in silent:
            _forget_part(client, keys, name)
    return [name.decode("utf-8", "replace") for name in silent]


def _last_sign_ms(client: Client, keys: Keys, name: bytes) -> int | None:
    sign: Any = client.hget(keys.export + name, "sign_ms")
    return whole_number(sign.decode("utf-8", "replace")) if sign else None


def _forget_part(client: Client, keys: Keys, name: bytes) -> int:
    client.delete(keys.export + name)
    client.delete(keys.later + name)
    forgotten: int = client.hdel(keys.meta, b"export:" + name)
    return forgotten


def forget_sink(bus: Bus, client: Client, name: str) -> bool:
    """Remove a sink that has no worker any more; a worker of this name begins again. False: there is none.

    Its answers for each event belong to a generation that is not read again, and expire.
    """
    forgotten = 0
    for keys in bus.keys:
        with redis_errors():
            forgotten += _forget_part(client, keys, name.encode())
    return bool(forgotten)


def partitions_without_worker(before: Sequence[Beats], after: Sequence[Beats]) -> list[int]:
    """Return the partitions without a living sink worker between two readings of the heartbeats (`read_beats`).

    Nothing is correlated there.
    """
    every = enumerate(moving(before, after))
    return [partition for partition, moved in every if not any(field.startswith(f"{SINK_GROUP}/") for field in moved)]


def describe_missing(unfed: Sequence[int], partitions: int) -> str:
    """Describe which of so many *partitions* have no sink worker; '' if *unfed* is empty."""
    if not unfed:
        return ""
    where = "" if len(unfed) == partitions else f" on partition {', '.join(map(str, unfed))}"
    there = " there" if where else ""
    return f"no sink worker is alive{where}: nothing is correlated{there}, and nothing exported (eventbus worker sink)"


def _read_part(client: Client, keys: Keys, name: str) -> tuple[str, SinkPart]:
    node = node_of(client, keys.meta)
    with redis_errors():
        pipe: Any = node.pipeline(transaction=False)
        pipe.time()
        pipe.hgetall(keys.export + name.encode())
        pipe.zcard(keys.later + name.encode())
        time, content, waiting = pipe.execute()
        now_ms = time[0] * 1000 + time[1] // 1000
        fields = {
            field.decode("utf-8", "replace"): value.decode("utf-8", "replace") for field, value in content.items()
        }
    lag, behind_s = read_lag(node, keys, _number(fields, "position"))
    return fields.get("mode", ""), SinkPart(
        partition=keys.partition,
        lag=lag,
        behind_s=behind_s,
        holder=fields.get("holder", ""),
        seen_s=max(0, now_ms - _number(fields, "sign_ms")) / 1000,
        error=fields.get("error", ""),
        waiting=int(waiting),
        **{number: _number(fields, number) for number in _STORED},
    )


def _sum(name: str, mode: str, parts: tuple[SinkPart, ...]) -> SinkStatus:
    newest = max(parts, key=lambda part: part.error_ms)
    paused = [part.paused_since_ms for part in parts if part.paused_since_ms]
    return SinkStatus(
        name=name,
        mode=mode,
        behind_s=max(part.behind_s for part in parts),
        paused_since_ms=min(paused, default=0),
        written_ms=max(part.written_ms for part in parts),
        error=newest.error,
        error_ms=newest.error_ms,
        holders=tuple(sorted({part.holder for part in parts if part.holder})),
        orphans=tuple(part.partition for part in parts if not part.holder or part.seen_s * 1000 >= SILENT_MS),
        parts=parts,
        **{number: sum(getattr(part, number) for part in parts) for number in _SUMMED},
    )


def _number(fields: Mapping[str, str], name: str) -> int:
    return whole_number(fields.get(name)) or 0
