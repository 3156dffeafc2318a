"""Reads the numbers of one partition: how full it is, and how far each of its groups is behind.

One pipeline, a second one for the groups, a third one only where batches are pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from eventbus.broker.connection.connect import Client, is_cluster
from eventbus.broker.function_values import GroupPolicy
from eventbus.broker.keys import EVENTS, Keys, bytes_in, version_in
from eventbus.broker.numbers import whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused
from eventbus.settings import Options

#: A worker asks for work at least once a second; one that has not for so long is dead to its group. Seconds.
ALIVE_S = 15.0
#: Pending batches of one group that are opened to count their events; with more the lag is an upper bound.
PENDING_OPENED = 64


class Level(msgspec.Struct, frozen=True, rename="camel"):
    """The amount of something and its bound; None: not known (its key is gone or spoilt), or no bound."""

    used: int | None
    bound: int | None

    @property
    def share(self) -> float:
        """Return the share of the bound that is used: 0.0 empty, 1.0 full."""
        return self.used / self.bound if self.used and self.bound else 0.0


class Worker(msgspec.Struct, frozen=True, rename="camel"):
    """A member of a group. *seen_s*: seconds since it last asked for work, by the server's clock.

    None: the server does not know (Redis 7.0, while there was no work for it yet); its heartbeat tells.
    """

    name: str
    group: str
    seen_s: float | None
    pending: int  #: batches given to it and not acknowledged
    alive: bool  #: seen within ALIVE_S and not gone since, or its heartbeat counter moves
    partitions: tuple[int, ...] = ()  #: those it is alive on


class GroupPart(msgspec.Struct, frozen=True, rename="camel"):
    """One group on one partition."""

    name: str
    policy: str
    lag: int | None  #: events it has not acknowledged; None: the entries do not say
    lag_exact: bool  #: False: *lag* is an upper bound
    behind_s: float  #: age of the oldest entry it has not acknowledged
    behind_bytes: int  #: of the stream, from that entry on
    pending: int  #: batches
    workers: tuple[Worker, ...] = ()
    destroyed: bool = False  #: by hand, and not yet made anew at its floor


class Partition(msgspec.Struct, frozen=True, rename="camel"):
    """One partition against its bounds; levels in bytes, but *stored* and *records* in keys."""

    number: int
    published: int | None  #: events, ever
    version: int | None
    incoming: Level
    changes: Level
    dead: Level
    stored: Level
    records: Level
    dead_events: int | None
    holder: str  #: the group with the lowest floor, '' if nobody holds anything
    groups: tuple[GroupPart, ...]


class Read(msgspec.Struct, frozen=True):
    """A partition, every whole number of its two hashes, and how often a function met a value that is not ours."""

    partition: Partition
    meta: dict[str, int]
    incoming_meta: dict[str, int]
    spoiled: int


def read_partition(node: Any, keys: Keys, options: Options) -> Read:
    """Read one partition from its server. Raises: BusUnavailable: call again."""
    pipe = node.pipeline(transaction=False)
    pipe.time()
    pipe.hgetall(keys.incoming_meta)
    pipe.hgetall(keys.meta)
    pipe.get(keys.version_of(EVENTS))
    pipe.xrange(keys.changes_of(EVENTS), count=1)
    pipe.xrange(keys.dead, count=1)
    pipe.xrevrange(keys.dead, count=1)
    pipe.xlen(keys.dead)
    pipe.zcard(keys.index_expiry)
    pipe.zcard(keys.index_forget)
    pipe.hgetall(keys.workers)
    pipe.hget(keys.spoiled, "times")
    pipe.xinfo_groups(keys.incoming)
    time, incoming, meta, version, *replies = execute(pipe)
    change, buried, last_buried, dead_events, stored, forgotten, beats, met, infos = replies
    now_ms = time[0] * 1000 + time[1] // 1000 if time else 0
    texts = {_text(field): _text(value) for field, value in (meta or {}).items()}
    numbers, sizes = _numbers(meta), _numbers(incoming)
    beating = [_text(field) for field in beats or {}]
    groups = () if infos is None else _read_groups(node, keys, infos, texts, sizes, beating, now_ms)
    records = None if stored is None or forgotten is None else stored + forgotten
    partition = Partition(
        number=keys.partition,
        published=None if incoming is None else sizes.get("events", 0),
        version=None if version is None else version_in(version),
        incoming=Level(None if incoming is None else _queued(sizes), options.incoming_bytes),
        changes=Level(_since(bytes_in(version), change), options.changes_bytes),
        dead=Level(_since(_dead_bytes(last_buried), buried), options.dead_bytes),
        stored=Level(stored, options.max_stored),
        records=Level(records, options.max_records),
        dead_events=dead_events,
        holder=max((group for group in groups if group.behind_bytes), key=_behind, default=_NOBODY).name,
        groups=groups,
    )
    return Read(partition, numbers, sizes, whole_number(met) or 0)


def _read_groups(
    node: Any,
    keys: Keys,
    infos: Sequence[Any],
    meta: Mapping[str, str],
    sizes: Mapping[str, int],
    beating: Sequence[str],
    now_ms: int,
) -> tuple[GroupPart, ...]:
    infos = [*infos, *_destroyed(infos, meta)]
    if not infos:
        return ()
    pipe = node.pipeline(transaction=False)
    for info in infos:
        pipe.xinfo_consumers(keys.incoming, info["name"])
        pipe.xpending_range(keys.incoming, info["name"], "-", "+", PENDING_OPENED)
        pipe.xrange(keys.incoming, b"(" + info["last-delivered-id"], "+", count=1)
    replies = execute(pipe)
    pending = [rows or [] for rows in replies[1::3]]
    entries = _open_pending(node, keys, [row["message_id"] for rows in pending for row in rows])
    groups = []
    for info, consumers, rows, unread in zip(infos, replies[::3], pending, replies[2::3], strict=True):
        name = _text(info["name"])
        # Trimmed while pending: there is nothing to be counted of it any more.
        opened = [entries[row["message_id"]] for row in rows if row["message_id"] in entries]
        oldest = min([*opened, *(unread or [])], key=lambda entry: _id(entry[0]), default=None)
        lag, exact = _lag(sizes.get("events", 0), opened, unread, complete=len(rows) == info["pending"])
        groups.append(
            GroupPart(
                name=name,
                policy=meta.get(f"policy:{name}", GroupPolicy.WAIT),
                lag=lag,
                lag_exact=exact,
                behind_s=max(0, now_ms - _id(oldest[0])[0]) / 1000 if oldest else 0.0,
                behind_bytes=max(0, sizes.get("bytes", 0) - _field(oldest, b"at")) if oldest else 0,
                pending=info["pending"],
                workers=_workers(name, consumers or [], beating),
                destroyed=consumers is None,
            )
        )
    return tuple(groups)


def _destroyed(infos: Sequence[Any], meta: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the groups of which only the floor is left, as if the server had named them."""
    there = {_text(info["name"]) for info in infos}
    floors = {name.removeprefix("floor:"): floor for name, floor in meta.items() if name.startswith("floor:")}
    return [
        {"name": name.encode(), "last-delivered-id": floor.encode(), "pending": 0}
        for name, floor in sorted(floors.items())
        if name not in there
    ]


def _open_pending(node: Any, keys: Keys, ids: Sequence[bytes]) -> dict[bytes, Any]:
    if not ids:
        return {}
    pipe = node.pipeline(transaction=False)
    for entry_id in ids:
        pipe.xrange(keys.incoming, entry_id, entry_id)
    return {entry_id: found[0] for entry_id, found in zip(ids, execute(pipe), strict=True) if found}


def _lag(total: int, opened: Sequence[Any], unread: Sequence[Any], *, complete: bool) -> tuple[int | None, bool]:
    """Compute how far a group is behind: each entry has its number of events (`n`) and that of its last one (`to`)."""
    first_unread = unread[0] if unread else None
    if not all(b"to" in (entry[1] or {}) for entry in [*opened, *(unread or [])]):
        return None, False
    if not complete and opened:
        return max(0, total - _field(opened[0], b"to") + _field(opened[0], b"n")), False
    undelivered = total - _field(first_unread, b"to") + _field(first_unread, b"n") if first_unread else 0
    # A replayed entry has no number of its own (n is 0), but it is work.
    least = 1 if first_unread else 0
    return max(least, undelivered) + sum(max(1, _field(entry, b"n")) for entry in opened), True


def _workers(group: str, consumers: Sequence[Mapping[str, Any]], beating: Sequence[str]) -> tuple[Worker, ...]:
    found = {_text(consumer["name"]): consumer for consumer in consumers}
    # Redis 7.0 makes a consumer when it gives it something, later servers when it asks.
    counted = {field.removeprefix(f"{group}/") for field in beating if field.startswith(f"{group}/")}
    return (
        *(_worker(name, group, consumer, has_left=name not in counted) for name, consumer in found.items()),
        *(Worker(name, group, None, 0, alive=False) for name in counted - found.keys()),
    )


def _worker(name: str, group: str, consumer: Mapping[str, Any], *, has_left: bool) -> Worker:
    seen_s = consumer["idle"] / 1000
    return Worker(name, group, seen_s, consumer["pending"], seen_s < ALIVE_S and not has_left)


def node_of(client: Client, key: bytes) -> Any:
    """Return a client for the one server that holds *key*: the client itself, or one for that node of the cluster."""
    return client.at(key) if is_cluster(client) else client


def execute(pipe: Any) -> list[Any]:
    """Run the pipeline; None stands for a reply that the server refused because the key is gone or of another type.

    Raises: BusRefused: this user may not look.  BusUnavailable: call again.
    """
    from redis.exceptions import NoPermissionError, RedisError

    with redis_errors():
        replies = pipe.execute(raise_on_error=False)
    if any(isinstance(reply, NoPermissionError) for reply in replies):
        raise BusRefused("this user may not read the numbers of the bus: that takes the role metrics (eventbus acl)")
    return [None if isinstance(reply, RedisError) else reply for reply in replies]


def _numbers(reply: Mapping[bytes, bytes] | None) -> dict[str, int]:
    found = {_text(field): whole_number(value) for field, value in (reply or {}).items()}
    return {field: number for field, number in found.items() if number is not None}


def _queued(sizes: Mapping[str, int]) -> int:
    return max(0, sizes.get("bytes", 0) - sizes.get("trimmed", 0))


def _since(total: int, first: Any) -> int | None:
    """Compute the bytes of a stream: all that were ever added less those before its first entry."""
    if first is None:
        return None
    return max(0, total - _field(first[0], b"at")) if first else 0


def _dead_bytes(last: Any) -> int:
    """Compute the bytes ever buried: those before the last entry, as that says, and its own."""
    return _field(last[0], b"at") + len((last[0][1] or {}).get(b"b", b"")) if last else 0


def _field(entry: Any, name: bytes) -> int:
    return whole_number((entry[1] or {}).get(name)) or 0


def _id(entry_id: bytes) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition(b"-")
    return int(ms), int(sequence)


def _behind(group: GroupPart) -> int:
    return group.behind_bytes


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_NOBODY = GroupPart("", "", 0, True, 0.0, 0, 0)

__all__ = ["ALIVE_S", "GroupPart", "Level", "Partition", "Read", "Worker", "execute", "node_of", "read_partition"]
