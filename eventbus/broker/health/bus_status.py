"""Reads the numbers of a bus: its groups and their lag, how full it is, and its counters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client, ServerInfo, check_server, primaries, safe_url
from eventbus.broker.health.heartbeats import HEARTBEAT_S, moving, read_beats
from eventbus.broker.health.partition_status import (
    Level,
    Partition,
    Worker,
    execute,
    node_of,
    read_partition,
)
from eventbus.broker.health.suppressed import SourceCounts, leading, read_sources
from eventbus.broker.keys import SINK_GROUP, Keys
from eventbus.broker.lifecycle_status import LifecycleStatus, read_lifecycle

#: Sources shown of each kind; `eventbus get suppressed` has all.
LEADING = 3
#: Fields of `meta` that count events, and what they are called here.
_COUNTERS = {
    "recorded": "events",
    "created": "created",
    "patched": "patched",
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
    holds: tuple[int, ...]  #: partitions whose stream only it holds up
    destroyed: bool = False  #: by hand on some partition, and not yet made anew at its floor

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
    spoiled: tuple[str, ...] = ()  #: keys of another type than they must have, a line each
    lifecycle: LifecycleStatus | None = None  #: None: this user may not see it
    leading: tuple[SourceCounts, ...] = ()  #: LEADING sources of each: held back, folded, not created, evicted

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
    from eventbus.broker.health.spoiled_checks import read_spoiled  # and with it the rights of every role

    server = check_server(client)
    reads = [read_partition(node_of(client, keys.meta), keys, bus.options) for keys in bus.keys]
    meta, incoming = _sum(read.meta for read in reads), _sum(read.incoming_meta for read in reads)
    counters = {name: meta.get(field, 0) for name, field in _COUNTERS.items()}
    counters |= {"refused_full": incoming.get("full", 0), "spoiled": sum(read.spoiled for read in reads)}
    partitions = [read.partition for read in reads]
    if not all(worker.alive for partition in partitions for group in partition.groups for worker in group.workers):
        partitions = _with_heartbeats(partitions, _moving(client, bus.keys))
    return BusStatus(
        url=safe_url(bus.url),
        prefix=bus.prefix,
        server=_server_name(server),
        memory=_memory(client, bus.keys),
        options_version=bus.options_version,
        partitions=tuple(partitions),
        groups=_groups(partitions, meta),
        counters={"published": incoming.get("events", 0), **counters},
        losses=_losses(incoming),
        buried=_buried(meta),
        spoiled=read_spoiled(client, bus.keys),
        lifecycle=read_lifecycle(bus, client),
        leading=leading(read_sources(bus, client), LEADING),
    )


def read_unread(bus: Bus, client: Client, name: str) -> int:
    """Count the events that wait for group *name* while none of its workers is alive; 0: none waits, or a worker lives.

    Blocks for HEARTBEAT_S only where events wait and their workers have not asked for work for long.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  as `read_status`, of the partitions alone.
    """
    partitions = [read_partition(node_of(client, keys.meta), keys, bus.options).partition for keys in bus.keys]
    found = _group_named(name, partitions)
    if found is None or not found.lag or found.alive:
        return 0
    if found.workers:
        found = _group_named(name, _with_heartbeats(partitions, _moving(client, bus.keys)))
    return 0 if found is None or found.alive else found.lag or 0


def _server_name(server: ServerInfo) -> str:
    """Return name and version, such as `Valkey 9.1.2`."""
    return f"{server.kind.capitalize()} {'.'.join(map(str, server.version))}".strip()


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
    found: dict[str, Worker] = {}
    for number, worker in workers:
        if worker.alive:
            worker = msgspec.structs.replace(worker, partitions=(number,))
        other = found.get(worker.name)
        if other is not None:
            seen = [one.seen_s for one in (worker, other) if one.seen_s is not None]
            pending, alive = worker.pending + other.pending, worker.alive or other.alive
            both = other.partitions + worker.partitions
            worker = Worker(worker.name, worker.group, min(seen, default=None), pending, alive, both)
        found[worker.name] = worker
    return tuple(sorted(found.values(), key=lambda worker: worker.name))


def _moving(client: Client, every: Sequence[Keys]) -> list[set[str]]:
    before = read_beats(client, every)
    time.sleep(HEARTBEAT_S)
    return moving(before, read_beats(client, every))


def _with_heartbeats(partitions: Sequence[Partition], moving: Sequence[set[str]]) -> list[Partition]:
    """Mark as alive the workers whose counter moves on that very partition."""
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


def _losses(incoming: Mapping[str, int]) -> dict[str, int]:
    """Return the losses by cause. Older builds also reported what only watchers of a producer's process missed."""
    return {cause: n for cause, n in _by_cause(incoming, "losses:").items() if cause != "missed"}


def _buried(meta: Mapping[str, int]) -> dict[str, int]:
    """Sum the buried by cause; the fields also name the group."""
    total: Counter[str] = Counter()
    for name, n in _by_cause(meta, "buried:").items():
        total[name.rpartition(":")[2]] += n
    return dict(sorted(total.items()))


def _sum(hashes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for numbers in hashes:
        total.update(numbers)
    return dict(total)


__all__ = [
    "BusStatus",
    "Group",
    "Level",
    "Partition",
    "Worker",
    "node_of",
    "read_status",
    "read_unread",
]
