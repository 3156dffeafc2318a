"""Reads the numbers of a bus: how full it is, its groups and their lag, its workers, and its counters."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.address import safe_url
from eventbus.broker.connection.connect import Client, check_server, node_of, primaries
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.keys import EVENTS, SINK_GROUP, Keys, bytes_in, item_key, version_in, whole_number
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.errors import BusRefused, BusUnavailable
from eventbus.model.decodable import decodable
from eventbus.model.frozen import decode_frozen
from eventbus.model.objects.cluster import LIFECYCLE_LEASE, Lease
from eventbus.settings import Options

#: A worker asks for work at least once a second; one that has not for so long is dead to its group. Seconds.
ALIVE_S = 15.0
#: Pending batches of one group that are opened to count their events; with more the lag is an upper bound.
PENDING_OPENED = 64


class Level(msgspec.Struct, frozen=True, rename="camel"):
    """The amount of something and its bound; None: not known (its key is missing or corrupt), or no bound."""

    used: int | None
    bound: int | None

    @property
    def share(self) -> float:
        """Return the share of the bound that is used: 0.0 empty, 1.0 full."""
        return self.used / self.bound if self.used and self.bound else 0.0


class Worker(msgspec.Struct, frozen=True, rename="camel"):
    """A member of a group. *seen_s*: seconds since it last asked for work, by the server's clock.

    None: the server does not know (Redis 7.0, before its first work); its heartbeat shows it.
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
    destroyed: bool = False  #: by hand, and not recreated at its floor yet


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
    holder: str  #: the group with the lowest floor, '' if no group holds entries
    groups: tuple[GroupPart, ...]


class Read(msgspec.Struct, frozen=True):
    """A partition, every whole number of its two hashes, and the number of corrupt values that functions have found."""

    partition: Partition
    meta: dict[str, int]
    incoming_meta: dict[str, int]
    corrupt: int


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
    pipe.hget(keys.corrupt, "times")
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
        holder=max(
            (group for group in groups if group.behind_bytes), key=lambda group: group.behind_bytes, default=_NO_GROUP
        ).name,
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
    return {entry_id: entries[0] for entry_id, entries in zip(ids, execute(pipe), strict=True) if entries}


def _lag(total: int, opened: Sequence[Any], unread: Sequence[Any], *, complete: bool) -> tuple[int | None, bool]:
    """Compute the lag of a group: each entry has its number of events (`n`) and that of its last one (`to`)."""
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
    by_name = {_text(consumer["name"]): consumer for consumer in consumers}
    # Redis 7.0 makes a consumer when it gives it something, later servers when it asks.
    counted = {field.removeprefix(f"{group}/") for field in beating if field.startswith(f"{group}/")}
    return (
        *(_worker(name, group, consumer, has_left=name not in counted) for name, consumer in by_name.items()),
        *(Worker(name, group, None, 0, alive=False) for name in counted - by_name.keys()),
    )


def _worker(name: str, group: str, consumer: Mapping[str, Any], *, has_left: bool) -> Worker:
    seen_s = consumer["idle"] / 1000
    return Worker(name, group, seen_s, consumer["pending"], seen_s < ALIVE_S and not has_left)


def execute(pipe: Any) -> list[Any]:
    """Run the pipeline; None stands for a reply that the server refused because the key is gone or of another type.

    Raises: BusRefused: this user may not look.  BusUnavailable: a node did not answer, or the cluster is down; call
    again.
    """
    from redis.exceptions import NoPermissionError, ResponseError

    with redis_errors():
        replies = pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and (
                not isinstance(reply, ResponseError) or isinstance(translate(reply), BusUnavailable)
            ):
                raise reply
    if any(isinstance(reply, NoPermissionError) for reply in replies):
        raise BusRefused("this user may not read the numbers of the bus: that takes the role metrics (eventbus acl)")
    return [None if isinstance(reply, Exception) else reply for reply in replies]


def _numbers(reply: Mapping[bytes, bytes] | None) -> dict[str, int]:
    numbers = {_text(field): whole_number(value) for field, value in (reply or {}).items()}
    return {field: number for field, number in numbers.items() if number is not None}


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


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_NO_GROUP = GroupPart("", "", 0, True, 0.0, 0, 0)


#: A living worker beats at least once a second; between two looks this far apart its counter has moved.
HEARTBEAT_S = 1.5

#: A partition's counters by `<group>/<worker>`.
Beats: TypeAlias = Mapping[str, bytes]


def read_beats(client: Client, every: Sequence[Keys]) -> list[Beats]:
    """Read the counters of each partition. Raises: BusUnavailable: call again.  BusRefused: this user may not look."""
    pipe: Any = client.pipeline(transaction=False)
    for keys in every:
        pipe.hgetall(keys.workers)
    return [{_text(field): beats for field, beats in (counters or {}).items()} for counters in execute(pipe)]


def moving(before: Sequence[Beats], after: Sequence[Beats]) -> list[set[str]]:
    """Return, by partition, the workers with a counter that rose between two readings; long work raises it too."""
    return [
        {field for field, beats in now.items() if was.get(field) != beats}
        for was, now in zip(before, after, strict=True)
    ]


#: First part of the name of a counter → its meaning. Other fields are for the functions only.
COUNTED = {"S": "suppressed", "A": "aggregated", "M": "not_created", "E": "evicted"}


class SourceCounts(msgspec.Struct, frozen=True, rename="camel"):
    """The counts of one source since it has a name; those of all sources without one are summed as *other*."""

    component: str
    kind: str  #: of the object
    type: str
    reason: str
    suppressed: int = 0
    aggregated: int = 0
    not_created: int = 0
    evicted: int = 0

    @property
    def total(self) -> int:
        return self.suppressed + self.aggregated + self.not_created + self.evicted

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Return component, kind, type, reason; `<other>` stands for all that have no name."""
        names = (self.component, self.kind, self.type, self.reason)
        return ("<other>", "", "", "") if names == ("other", "", "", "") else names


def read_sources(bus: Bus, client: Client) -> tuple[SourceCounts, ...]:
    """Read every source that has a name, summed over all partitions, the largest first.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  HGETALL on each partition's suppressed.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for keys in bus.keys:
        with redis_errors():
            fields: Any = client.hgetall(keys.suppressed)
        for field, n in fields.items():
            parts = [*field.decode("utf-8", "replace").split("\0"), "", "", "", ""]
            what, component, kind, event_type, reason = parts[:5]
            if what in COUNTED:
                counts[component, kind, event_type, reason][COUNTED[what]] += whole_number(n) or 0
    rows = [SourceCounts(*source, *(counted[what] for what in COUNTED.values())) for source, counted in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.total, row.names)))


#: The active worker renews its lease every two seconds. After so many leases without a renewal it is gone.
GONE_AFTER_LEASES = 2


class LifecycleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The monitoring of nodes: the active worker, and the number of nodes."""

    nodes: int
    holder: str  #: the active worker; "": there was none, or it has ended
    seen_s: float | None  #: since it renewed its lease, by the server's clock
    alive: bool

    @property
    def unwatched(self) -> bool:
        """Return True if there are nodes and no worker would notice that one fell silent."""
        return bool(self.nodes) and not self.alive


def read_lifecycle(bus: Bus, client: Client) -> LifecycleStatus:
    """Read the status. Raises: BusUnavailable, BusRefused. Redis: TIME, GET, ZCARD."""
    keys = bus.keys[0]
    with redis_errors():
        pipe: Any = node_of(client, keys.meta).pipeline(transaction=False)
        pipe.time()
        pipe.get(keys.object_of("leases") + item_key(*LIFECYCLE_LEASE))
        pipe.zcard(keys.index_name_of("nodes"))
        time, packed, nodes = pipe.execute(raise_on_error=False)
    nodes = nodes if isinstance(nodes, int) else 0  # a key of another type is found by the check of keys
    lease = None if not isinstance(packed, bytes) else _lease(packed)
    if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
        return LifecycleStatus(nodes, "", None, False)
    seen_s = max(0.0, time[0] + time[1] / 1e6 - lease.spec.renew_time.timestamp())
    alive = seen_s < GONE_AFTER_LEASES * (lease.spec.lease_duration_seconds or 1)
    return LifecycleStatus(nodes, lease.spec.holder_identity, seen_s, alive)


def say_unwatched(status: LifecycleStatus) -> str:
    """Describe the problem with the monitoring of nodes; "" if there is none."""
    if not status.unwatched:
        return ""
    nodes = "1 node" if status.nodes == 1 else f"{status.nodes} nodes"
    return f"no lifecycle worker is alive: {nodes} may fall silent unnoticed (eventbus worker lifecycle)"


def _lease(packed: bytes) -> Lease | None:
    try:
        body = msgpack.unpackb(packed, raw=True)[3]
        return msgspec.json.decode(body, type=decodable(Lease), dec_hook=decode_frozen)
    except (ValueError, TypeError, LookupError):  # not ours
        return None


#: Counters here → fields of `meta`.
_COUNTERS = {
    "recorded": "events",
    "created": "created",
    "patched": "patched",
    "in_series": "in_series",
    "aggregated": "aggregated",
    "suppressed": "suppressed",
    "not_created": "not_created",
    "expired": "expired",
    "evicted": "evicted",
    "forgotten": "forgotten",
    "forgotten_early": "forgotten_early",
    "late": "late",
    "stale_batches": "stale",
}


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """One group on the whole bus."""

    name: str
    policy: str
    lag: int | None
    lag_exact: bool
    behind_s: float
    pending: int
    workers: tuple[Worker, ...]
    lost: int  #: events it never got: it was made to skip them, or they were destroyed
    lost_batches: int  #: batches that were trimmed while pending
    holds: tuple[int, ...]  #: partitions in which only this group holds the stream
    destroyed: bool = False  #: by hand on some partition, and not recreated at its floor yet

    @property
    def alive(self) -> int:
        """Return the number of workers that are alive."""
        return sum(worker.alive for worker in self.workers)


class BusStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that `eventbus status` shows."""

    url: str
    prefix: str
    server: str
    memory: Level  #: of all servers, bytes
    options_version: int
    partitions: tuple[Partition, ...]
    groups: tuple[Group, ...]
    counters: dict[str, int]
    losses: dict[str, int]  #: by cause, as producers have reported them
    buried: dict[str, int]  #: by cause
    lifecycle: LifecycleStatus | None = None  #: None: this user may not see it

    @property
    def unfed(self) -> list[int]:
        """Return the partitions without a living sink worker: nothing is correlated there."""
        return [
            partition.number
            for partition in self.partitions
            if not any(w.alive for group in partition.groups if group.name == SINK_GROUP for w in group.workers)
        ]


def read_status(bus: Bus, client: Client) -> BusStatus:
    """Read all numbers of *bus*, partition after partition: they are of one moment only within each.

    Blocks for HEARTBEAT_S where a worker has not asked for work for long: its heartbeat is looked at twice.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  TIME, INFO, GET, HGETALL, XLEN, XRANGE, ZCARD, XINFO GROUPS, XINFO CONSUMERS, XPENDING.
    """
    server = check_server(client)
    reads = [read_partition(node_of(client, keys.meta), keys, bus.options) for keys in bus.keys]
    meta, incoming = _sum_hashes(read.meta for read in reads), _sum_hashes(read.incoming_meta for read in reads)
    counters = {name: meta.get(field, 0) for name, field in _COUNTERS.items()}
    counters |= {"refused_full": incoming.get("full", 0), "corrupt": sum(read.corrupt for read in reads)}
    partitions = [read.partition for read in reads]
    if not all(worker.alive for partition in partitions for group in partition.groups for worker in group.workers):
        partitions = _with_heartbeats(partitions, _moving(client, bus.keys))
    return BusStatus(
        url=safe_url(bus.url),
        prefix=bus.prefix,
        server=f"{server.kind.capitalize()} {'.'.join(map(str, server.version))}".strip(),
        memory=_memory(client, bus.keys),
        options_version=bus.options_version,
        partitions=tuple(partitions),
        groups=_groups(partitions, meta),
        counters={"published": incoming.get("events", 0), **counters},
        losses=_by_cause(incoming, "losses:"),
        buried=_buried(meta),
        lifecycle=read_lifecycle(bus, client),
    )


def has_worker(client: Client, keys: Keys, name: str) -> bool:
    """Return True if a worker of group *name* has asked for work of this partition within ALIVE_S.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  XINFO CONSUMERS, HGETALL, in one round trip.
    """
    pipe = node_of(client, keys.incoming).pipeline(transaction=False)
    pipe.xinfo_consumers(keys.incoming, name)
    pipe.hgetall(keys.workers)
    consumers, beats = execute(pipe)
    return any(worker.alive for worker in _workers(name, consumers or [], [_text(field) for field in beats or {}]))


def read_unread(bus: Bus, client: Client, name: str) -> int:
    """Count the events that wait for group *name* while none of its workers is alive; 0: none waits, or a worker lives.

    Blocks for HEARTBEAT_S only where events wait and their workers have not asked for work for long.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  as `read_status`, of the partitions alone.
    """
    partitions = [read_partition(node_of(client, keys.meta), keys, bus.options).partition for keys in bus.keys]
    group = _group_named(name, partitions)
    if group is None or not group.lag or group.alive:
        return 0
    if group.workers:
        group = _group_named(name, _with_heartbeats(partitions, _moving(client, bus.keys)))
    return 0 if group is None or group.alive else group.lag or 0


def _groups(partitions: Sequence[Partition], meta: Mapping[str, int]) -> tuple[Group, ...]:
    names = sorted({group.name for partition in partitions for group in partition.groups})
    groups = []
    for name in names:
        numbered = [(p.number, group) for p in partitions for group in p.groups if group.name == name]
        parts = [group for _, group in numbered]
        lags = [part.lag for part in parts]
        groups.append(
            Group(
                name=name,
                policy=parts[0].policy,
                lag=None if None in lags else sum(lag for lag in lags if lag is not None),
                lag_exact=all(part.lag_exact for part in parts),
                behind_s=max(part.behind_s for part in parts),
                pending=sum(part.pending for part in parts),
                workers=_merged((number, worker) for number, part in numbered for worker in part.workers),
                lost=meta.get(f"lost:{name}", 0),
                lost_batches=meta.get(f"lost_batches:{name}", 0),
                holds=tuple(partition.number for partition in partitions if partition.holder == name),
                destroyed=any(part.destroyed for part in parts),
            )
        )
    return tuple(groups)


def _group_named(name: str, partitions: Sequence[Partition]) -> Group | None:
    return next((group for group in _groups(partitions, {}) if group.name == name), None)


def _merged(workers: Iterable[tuple[int, Worker]]) -> tuple[Worker, ...]:
    """A worker process has one name on all partitions: it is as alive as on the liveliest."""
    merged: dict[str, Worker] = {}
    for number, worker in workers:
        if worker.alive:
            worker = msgspec.structs.replace(worker, partitions=(number,))
        other = merged.get(worker.name)
        if other is not None:
            seen = [one.seen_s for one in (worker, other) if one.seen_s is not None]
            pending, alive = worker.pending + other.pending, worker.alive or other.alive
            both = other.partitions + worker.partitions
            worker = Worker(worker.name, worker.group, min(seen, default=None), pending, alive, both)
        merged[worker.name] = worker
    return tuple(sorted(merged.values(), key=lambda worker: worker.name))


def _moving(client: Client, every: Sequence[Keys]) -> list[set[str]]:
    before = read_beats(client, every)
    time.sleep(HEARTBEAT_S)
    return moving(before, read_beats(client, every))


def _with_heartbeats(partitions: Sequence[Partition], moving: Sequence[set[str]]) -> list[Partition]:
    """Mark the workers as alive that raise their counter on that partition."""
    return [_judged(partition, moved) for partition, moved in zip(partitions, moving, strict=True)]


def _judged(partition: Partition, moved: set[str]) -> Partition:
    def judged(worker: Worker) -> Worker:
        return msgspec.structs.replace(worker, alive=worker.alive or f"{worker.group}/{worker.name}" in moved)

    groups = [
        msgspec.structs.replace(group, workers=tuple(judged(worker) for worker in group.workers))
        for group in partition.groups
    ]
    return msgspec.structs.replace(partition, groups=tuple(groups))


def _memory(client: Client, every: Sequence[Keys]) -> Level:
    """Sum the memory of all servers that hold a partition. Bound None: at least one has none."""
    infos = []
    for node in primaries(client, [keys.meta for keys in every]):
        pipe = node.pipeline(transaction=False)
        pipe.info("memory")
        infos += execute(pipe)
    if None in infos:
        return Level(None, None)
    bounds = [info.get("maxmemory", 0) for info in infos]
    return Level(sum(info.get("used_memory", 0) for info in infos), sum(bounds) if all(bounds) else None)


def _by_cause(numbers: Mapping[str, int], start: str) -> dict[str, int]:
    return {field.removeprefix(start): n for field, n in sorted(numbers.items()) if field.startswith(start)}


def _buried(meta: Mapping[str, int]) -> dict[str, int]:
    """Sum the buried by cause; the fields also name the group."""
    total: Counter[str] = Counter()
    for name, n in _by_cause(meta, "buried:").items():
        total[name.rpartition(":")[2]] += n
    return dict(sorted(total.items()))


def _sum_hashes(hashes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for numbers in hashes:
        total.update(numbers)
    return dict(total)
