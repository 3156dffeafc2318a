"""The checks of the bus by `eventbus doctor`: its options, its bounds, its groups and its exports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from eventbus.broker.bus import CLUSTER_PARTITIONS, Bus, decode_options, parse_options_version, parse_partitions
from eventbus.broker.connection.connect import Client, is_cluster, primaries
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.health.expected_status import ExpectedState, ExpectedStatus, read_expected_status
from eventbus.broker.health.export_status import SinkPart, SinkStatus, export_status, notifier_lag
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.status import BusStatus, Level, read_status, say_unwatched
from eventbus.broker.keys import SINK_GROUP, bus_key
from eventbus.broker.notifications import NotifierStatus, read_notifier_status
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, EventBusError
from eventbus.settings import MIB, Options, Settings
from eventbus.util.text import printable

#: A pause is reported after the first, and is an error after the second, ms.
PAUSED_MS, PAUSED_LONG_MS = 60_000, 600_000


def check_exports(sinks: Sequence[SinkStatus], now_ms: int) -> Iterator[Finding]:
    """Find sinks that do not get their events. *now_ms*: since 1970."""
    well = waiting = 0
    for sink in sinks:
        findings = [*_paused(sink, now_ms), *_without_worker(sink)]
        waiting += not findings and bool(sink.paused_since_ms)
        well += not findings and not sink.paused_since_ms
        yield from findings
    if well:
        yield ok("exports", f"{well} sink{'s' * (well != 1)} being written to")
    if waiting:
        yield ok("exports", f"{waiting} sink{'s' * (waiting != 1)} that did not answer just now; each is tried again")


def _paused(sink: SinkStatus, now_ms: int) -> Iterator[Finding]:
    paused_ms = now_ms - sink.paused_since_ms
    if not sink.paused_since_ms or paused_ms < PAUSED_MS or len(sink.orphans) == len(sink.parts):
        return
    why = f": {printable(sink.error)}" if sink.error else ""
    text = f"{sink.name} has been paused for {paused_ms // 60_000} min, with a lag of {sink.lag} changes{why}"
    cure = "correct this error; the worker then continues, and no event is lost during its life (eventTtlS)"
    yield (error if paused_ms >= PAUSED_LONG_MS else warning)("exports", text, cure)


def _without_worker(sink: SinkStatus) -> Iterator[Finding]:
    if not sink.orphans:
        return
    parts = [part for part in sink.parts if part.partition in sink.orphans]
    where = "" if len(parts) == len(sink.parts) else f" on partition {', '.join(map(str, sink.orphans))}"
    yield warning(
        "exports",
        f"{sink.name} has no worker{where}{_silent(parts)}, and a lag of {sum(part.lag for part in parts)} changes",
        f"start it again (eventbus worker export --to …), or if it was only tried: eventbus group delete "
        f"export:{sink.name}",
    )


def _silent(parts: Sequence[SinkPart]) -> str:
    """Return since when they have had no worker."""
    seen_s = min(part.seen_s for part in parts)
    hours = seen_s / 3600
    return f" since {int(hours)} h" if hours >= 1 else f" since {int(seen_s // 60)} min" if seen_s >= 60 else ""


def check_notifier(status: NotifierStatus | None, lag: int, now_ms: int) -> Iterator[Finding]:
    """Find notifiers that do not act, or have other rules. *now_ms*: since 1970; None: there was never one."""
    if status is None:
        return
    alive = [file for file in status.files if now_ms - file.seen_ms < PAUSED_MS]
    acting = next((file for file in alive if file.worker == status.holder), None)
    if acting is None:
        text = f"no worker sends notifications, with a lag of {lag} changes"
        cure = "start it again (eventbus worker notify --rules …), or if it was only tried: "
        yield warning("notify", text, f"{cure}eventbus group delete worker:notify")
        return
    well = True
    for file in alive:
        name = printable(file.worker)
        if file.rejected:
            well = False
            text = f"{name} has rejected its rules file, and uses the former rules"
            yield warning("notify", text, "eventbus rules check on its file shows the mistake")
        elif file.hash != acting.hash:
            well = False
            text = f"{name} has another rules file than {printable(acting.worker)}, which acts"
            yield warning("notify", text, "give all workers the same file")
    if well:
        yield ok("notify", f"{printable(acting.worker)} sends notifications")


def check_expected(events: Sequence[ExpectedStatus]) -> Iterator[Finding]:
    """Find expected events that are missing."""
    missing = [printable(each.name) for each in events if each.state is ExpectedState.MISSING]
    if missing:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        text = f"expected events are missing: {', '.join(missing[:MOST_NAMED])}{more}"
        yield warning("expected", text, "eventbus get expected -o wide shows since when")


#: Expected events that one finding names.
MOST_NAMED = 5
#: Measured: an event in the store, with its index entries, bucket and set of similar ones; a kept count with
#: bucket and set.
STORED_BYTES, COUNT_BYTES = 1500, 900
#: Streams take a little more than the bytes that are counted.
STREAM_OVERHEAD = 1.15
#: From here on a bound is near.
NEARLY_FULL = 0.9
#: Slots are spread by chance: with fewer for each node, one has several and another none.
PARTITIONS_A_NODE = 4


def check_bus(client: Client, url: str, settings: Settings) -> list[Finding]:
    """Check the bus under the prefix: options, room, and whether its groups have workers."""
    with redis_errors():
        values = client.hmget(bus_key(settings.prefix), ["partitions", "options", "options_version"])
    if None in values:
        return [ok("bus", f"none yet under prefix {settings.prefix}: the first recorder or worker makes it")]
    options, version = decode_options(values[1]), parse_options_version(values[2])
    partitions = parse_partitions(values[0], bus_key(settings.prefix))
    bus = Bus(
        url,
        cluster=is_cluster(client),
        prefix=settings.prefix,
        partitions=partitions,
        options=options,
        options_version=version,
    )
    plural = "s" * (partitions != 1)
    there = ok("bus", f"prefix {settings.prefix}, {partitions} partition{plural}, options version {version}")
    try:
        status = read_status(bus, client)
    except BusRefused:
        # This is right for a producer or reader.
        return [there, ok("workers", "not looked at: this user may not read the numbers (role metrics)")]
    notifier = read_notifier_status(bus, client)
    return [
        there,
        *check_partitions(partitions, len(primaries(client)) if bus.is_cluster else 1),
        check_memory(status.memory, _machine_memory(client), needed_bytes(options, partitions)),
        *_check_room(status),
        *_check_groups(status),
        *_check_dead(status),
        *check_exports(export_status(bus, client), int(time.time() * 1000)),
        *check_expected(read_expected_status(bus, client, datetime.now(UTC))),
        *check_notifier(notifier, notifier_lag(bus, client, notifier) if notifier else 0, int(time.time() * 1000)),
        *_check_lifecycle(status),
    ]


def check_partitions(partitions: int, nodes: int) -> Iterator[Finding]:
    """Too few partitions for a cluster of so many nodes that take writes."""
    if nodes > 1 and partitions < PARTITIONS_A_NODE * nodes:
        plural = "s" * (partitions != 1)
        yield warning(
            "partitions",
            f"{partitions} partition{plural} for {nodes} nodes, fewer than {PARTITIONS_A_NODE} each: some idle",
            f"move to a new bus with EVENTBUS_PARTITIONS={CLUSTER_PARTITIONS} (docs/redis.md says how)",
        )


def needed_bytes(options: Options, partitions: int) -> int:
    """Return the memory the server needs when everything is as full as *options* allow, in bytes."""
    streams = options.incoming_bytes + options.changes_bytes + options.dead_bytes
    counts = max(0, options.max_records - options.max_stored)
    return partitions * int(streams * STREAM_OVERHEAD + options.max_stored * STORED_BYTES + counts * COUNT_BYTES)


def check_memory(memory: Level, machine: int | None, needed: int) -> Finding:
    """Compare maxmemory, or else the machine's memory, with the bounds of the options. *machine*, *needed*: bytes."""
    cure = "raise maxmemory, or lower the bounds: eventbus options set incoming_bytes=… max_stored=…"
    if memory.used is None:
        return warning("memory", "this user may not ask for it", "give +info")
    if memory.bound and memory.used > NEARLY_FULL * memory.bound:
        share = 100 * memory.used // memory.bound
        return error("memory", f"{share}% of maxmemory is used; beyond it nothing new is stored", cure)
    bounds = f"the bounds of the options come to {needed // MIB} MiB"
    if memory.bound:
        if needed > memory.bound:
            return warning("memory", f"maxmemory is {memory.bound // MIB} MiB, and {bounds}", cure)
        return ok("memory", f"maxmemory is {memory.bound // MIB} MiB, {bounds}")
    if machine and needed > 0.75 * machine:
        return warning("memory", f"no maxmemory, on a machine of {machine // MIB} MiB, and {bounds}", cure)
    return ok("memory", f"no maxmemory; {bounds}" + (f" of {machine // MIB} MiB" if machine else ""))


def _check_room(status: BusStatus) -> Iterator[Finding]:
    """Find streams and stores that are about to be full."""
    for partition in status.partitions:
        incoming = partition.incoming
        if incoming.share > NEARLY_FULL:
            holder = f"group {partition.holder} holds it" if partition.holder else "no group reads it"
            yield error(
                "stream",
                f"partition {partition.number} is {int(100 * incoming.share)}% full: {holder}; producers must wait",
                f"start workers of {partition.holder or SINK_GROUP}, or if they are gone for good: "
                f"eventbus group delete {partition.holder}",
            )
        if partition.stored.share > NEARLY_FULL or partition.records.share > NEARLY_FULL:
            held = f"{partition.stored.used} events and {partition.records.used} counts"
            yield warning(
                "store",
                f"partition {partition.number} holds {held}: at the bound the least recently written are evicted",
                "eventbus options set max_stored=… max_records=…",
            )


def _check_groups(status: BusStatus) -> Iterator[Finding]:
    """Find groups with waiting events and no living worker."""
    for group in status.groups:
        if group.lag != 0 and not group.alive and not group.destroyed:
            verb = "sink" if group.name == SINK_GROUP else "log" if group.name == "log" else ""
            start = f"eventbus worker {verb}" if verb else f"start its workers, or eventbus group delete {group.name}"
            waits = "1 event waits" if group.lag == 1 else f"{group.lag or 'an unknown number of'} events wait"
            yield warning("workers", f"{waits} for group {group.name}, and no worker of it is alive", start)
        elif not group.alive and group.policy == GroupPolicy.WAIT and group.name != SINK_GROUP:
            yield warning(
                "workers",
                f"group {group.name} has no worker, and will hold the stream when events come",
                f"start its workers, or if they are gone for good: eventbus group delete {group.name}",
            )
    sink = next((group for group in status.groups if group.name == SINK_GROUP), None)
    if sink is None or sink.destroyed:
        cure = "start a worker: eventbus worker sink"
        yield error("workers", "the store's group `sink` was destroyed: nothing is recorded", cure)
    elif sink.alive:
        yield ok("workers", f"{sink.alive} sink worker{'s' * (sink.alive != 1)} alive, lag {sink.lag} events")
    elif sink.lag == 0:
        yield ok("workers", "no sink worker is alive, and nothing waits for one")


def _check_dead(status: BusStatus) -> Iterator[Finding]:
    """Find events that no worker could handle."""
    causes = {cause: count for cause, count in status.buried.items() if count}
    waiting = sum(partition.dead_events or 0 for partition in status.partitions)
    if not waiting:
        return
    why = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items(), key=lambda one: -one[1])[:3])
    buried = "1 entry lies" if waiting == 1 else f"{waiting} entries lie"
    yield warning(
        "dead letter",
        f"{buried} there that no worker could handle" + (f"; ever buried: {why}" if why else ""),
        "eventbus dead list says why; then eventbus dead replay --all, or eventbus dead discard --all",
    )


def _check_lifecycle(status: BusStatus) -> Iterator[Finding]:
    """Find nodes that no worker monitors."""
    lifecycle = status.lifecycle
    if lifecycle is None or not (lifecycle.nodes or lifecycle.alive):
        return
    if problem := say_unwatched(lifecycle):
        yield warning("nodes", problem, "start a worker: eventbus worker lifecycle")
    else:
        plural = "s" * (lifecycle.nodes != 1)
        yield ok("nodes", f"{lifecycle.nodes} node{plural}, watched by {lifecycle.holder}")


def _machine_memory(client: Client) -> int | None:
    from redis.exceptions import ResponseError

    try:
        with redis_errors():
            return min((node.info("memory").get("total_system_memory", 0) for node in primaries(client)), default=0)
    except (ResponseError, EventBusError):
        return None
