"""Formats the numbers of a bus and its external sinks as tables of at most 100 columns, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbus.broker.health.export_status import SinkStatus
from eventbus.broker.health.status import BusStatus, Group, Level, Partition, say_unwatched
from eventbus.util.human_duration import human_duration
from eventbus.util.table import Cell, Colour, Row, format_table

#: The columns of external sinks.
SINK_HEADERS = ("Sink", "State", "Lag", "Delay", "Pending", "Retries", "Waiting", "Dead", "Written")
#: Partitions shown without `-o wide`: the fullest.
SHOWN = 8
#: Longer lists of a worker's partitions are counted, without `-o wide`.
SHARE_LENGTH = 20
#: The share of a bound from which it is yellow.
NEARLY_FULL = 0.8

#: Counters that are always shown, and the meaning of those shown when they are not 0.
_ALWAYS = ("published", "recorded", "suppressed")
_MEANING = {
    "published": "events taken into the stream",
    "recorded": "events that the sink workers have counted",
    "created": "stored as a new event",
    "patched": "raised the count of a stored event",
    "in_series": "counted in a series of events.k8s.io, to be written later",
    "aggregated": "counted in an event '(combined from similar events)'",
    "suppressed": "counted, but suppressed by the spam filter: eventbus get suppressed",
    "refused_full": "rejected because the stream was full; producers keep them and retry",
    "not_created": "counted but not stored: Redis has no memory left",
    "evicted": "stored events deleted early: more than maxStored",
    "expired": "stored events deleted at the end of their lifetime",
    "forgotten_early": "counts of old events deleted early: more than maxRecords",
    "late": "counted from a batch that arrived out of order",
    "stale_batches": "batches that another worker had taken over",
    "corrupt": "corrupt values that were replaced: eventbus doctor",
}
_LOST = {
    "dropped": "lost by producers: the buffer was full",
    "refused": "refused by producers: not a valid event",
    "unsent": "lost by producers: closed before Redis accepted them",
    "lost": "lost by Redis, and no longer in the memory of the producer",
    "destroyed": "lost with a deleted stream",
    "uncertain": "sent without an answer: stored once or twice",
}


def format_status(status: BusStatus, *, page: str = "", wide: bool = False, colour: bool = False) -> str:
    """Format the whole page: the bus, its groups, workers, partitions, counters.

    Args: page: the address of its web page.
    """
    parts = [
        _head(status) + (f"Page:     {page}\n" if page else ""),
        _groups(status, colour) or "GROUPS: none yet; the first worker of a group creates it (eventbus worker log)\n",
        _workers(status, wide, colour),
        _lifecycle(status),
        _partitions(status, wide, colour),
        _counters(status),
    ]
    return "\n".join(part for part in parts if part)


def group_rows(groups: tuple[Group, ...], *, colour: bool) -> Iterator[Row]:
    """Return the rows under GROUP_HEADERS."""
    for group in groups:
        dead = len(group.workers) - group.alive
        workers = f"{group.alive} ({dead} dead)" if dead else str(group.alive)
        yield (
            group.name,
            group.policy,
            _cell(workers, colour and bool(dead or (group.lag and not group.alive))),
            _lag(group),
            human_duration(group.behind_s),
            str(group.pending),
            _cell(str(group.lost), colour and group.lost > 0),
            ",".join(f"p{number}" for number in group.holds) or "-",
        )


GROUP_HEADERS = ("Group", "Policy", "Workers", "Lag", "Delay", "Pending", "Lost", "Blocks")


def _head(status: BusStatus) -> str:
    partitions = len(status.partitions)
    memory = level_of_bytes(status.memory) + ("" if status.memory.bound or status.memory.used is None else ", no limit")
    return (
        f"Bus:      {status.url}\n"
        f"          prefix {status.prefix}, {partitions} partition{'s' * (partitions != 1)}, "
        f"options version {status.options_version}\n"
        f"Server:   {status.server}, memory {memory}\n"
    )


def _groups(status: BusStatus, colour: bool) -> str:
    return format_table(GROUP_HEADERS, group_rows(status.groups, colour=colour))


def _workers(status: BusStatus, wide: bool, colour: bool) -> str:
    total = len(status.partitions)
    headers = ("Workers of", "State", "Last seen", "Pending", *(["Partitions"] if total > 1 else []), "Name")
    rows: list[Row] = [
        (
            worker.group,
            _cell("alive" if worker.alive else "dead", colour and not worker.alive),
            "-" if worker.seen_s is None else f"{human_duration(worker.seen_s)} ago",
            str(worker.pending),
            *([_share(worker.partitions, total, wide)] if total > 1 else []),
            worker.name,
        )
        for group in status.groups
        for worker in group.workers
    ]
    return format_table(headers, rows)


def _share(partitions: tuple[int, ...], total: int, wide: bool) -> str:
    """`all`, `0-3,7`, or how many if that is too long for the line."""
    if len(partitions) == total:
        return "all"
    runs: list[list[int]] = []
    for number in sorted(partitions):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    text = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    if wide or len(text) <= SHARE_LENGTH:
        return text or "-"
    return f"{len(partitions)} of {total}"


def _lifecycle(status: BusStatus) -> str:
    lifecycle = status.lifecycle
    if lifecycle is None or not (lifecycle.nodes or lifecycle.holder):
        return ""
    nodes = "1 node" if lifecycle.nodes == 1 else f"{lifecycle.nodes} nodes"
    if problem := say_unwatched(lifecycle):
        return f"Nodes:    {problem}\n"
    return f"Nodes:    {nodes}, watched by {lifecycle.holder or 'no worker'}\n"


def _partitions(status: BusStatus, wide: bool, colour: bool) -> str:
    chosen = status.partitions
    if not wide and len(chosen) > SHOWN:
        fullest = sorted(chosen, key=lambda partition: -partition.incoming.share)[:SHOWN]
        chosen = tuple(sorted(fullest, key=lambda partition: partition.number))
    headers = ("Partition", "Incoming", "Changes", "Dead", "Stored", "Records")
    rows: list[Row] = [_partition_row(partition, colour) for partition in chosen]
    text = format_table(headers, [*rows, _bounds_row(chosen[0])])
    hidden = len(status.partitions) - len(chosen)
    return text + (f"… and {hidden} less full partitions: -o wide shows them\n" if hidden else "")


def _partition_row(partition: Partition, colour: bool) -> Row:
    def cell(text: str, level: Level) -> Cell:
        return _cell(text, colour and level.share >= NEARLY_FULL)

    return (
        str(partition.number),
        cell(used_bytes(partition.incoming), partition.incoming),
        used_bytes(partition.changes),  # not yellow: this stream is a window, and always full
        cell(used_bytes(partition.dead), partition.dead),
        cell(used_keys(partition.stored), partition.stored),
        cell(used_keys(partition.records), partition.records),
    )


def _bounds_row(partition: Partition) -> Row:
    """Return the row of bounds, which are the same for all partitions."""
    streams = (partition.incoming, partition.changes, partition.dead)
    keys = (partition.stored, partition.records)
    return ("of", *(human_bytes(level.bound or 0) for level in streams), *(str(level.bound) for level in keys))


def _counters(status: BusStatus) -> str:
    rows = [
        (name.replace("_", " "), str(status.counters.get(name, 0)), meaning)
        for name, meaning in _MEANING.items()
        if name in _ALWAYS or status.counters.get(name)
    ]
    rows += [(cause, str(n), _LOST.get(cause, "lost by producers")) for cause, n in status.losses.items() if n]
    rows += [("buried", str(n), f"moved to the dead letter: {cause}") for cause, n in status.buried.items() if n]
    for group in status.groups:
        if group.lost:
            meaning = f"not read by group {group.name}: it blocked the stream for too long, or was deleted"
            rows.append(("lost", str(group.lost), meaning))
        if group.lost_batches:
            rows.append(("lost batches", str(group.lost_batches), f"trimmed while group {group.name} processed them"))
    return format_table(("Counter", "Events", "Meaning"), rows)


def _lag(group: Group) -> str:
    if group.lag is None:
        return "?"
    return f"{group.lag}" if group.lag_exact else f"<={group.lag}"


def _cell(text: str, warns: bool) -> Cell:
    return Cell(text, Colour.YELLOW if warns else Colour.PLAIN)


def human_bytes(n: int) -> str:
    """Format as `512B`, `4.9KiB`, `256MiB`: three digits at most, cut and not rounded up."""
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    if unit == "B" or size >= 10 or size == int(size):
        return f"{int(size)}{unit}"
    return f"{int(size * 10) / 10}{unit}"


def level_of_bytes(level: Level) -> str:
    """Format as `82MiB/256MiB (32%)`; `?` if the user may not read it."""
    if level.used is None:
        return "?"
    if level.bound is None:
        return human_bytes(level.used)
    return f"{human_bytes(level.used)}/{human_bytes(level.bound)}{_percent(level)}"


def used_bytes(level: Level) -> str:
    """Format as `82MiB (32%)`."""
    return "?" if level.used is None else f"{human_bytes(level.used)}{_percent(level)}"


def used_keys(level: Level) -> str:
    """Format as `120`, `95000 (95%)`."""
    return "?" if level.used is None else f"{level.used}{_percent(level)}"


def _percent(level: Level) -> str:
    """Format as ` (32%)`; nothing below one per cent."""
    return f" ({int(level.share * 100)}%)" if level.share >= 0.01 else ""


def format_sinks(sinks: Sequence[SinkStatus], *, now_ms: int, colour: bool = False) -> str:
    """Format a line a sink, and one for each last error; empty without sinks."""
    if not sinks:
        return ""
    errors = [
        (sink.name, f"{_ago(now_ms, sink.error_ms)} ago", sink.error) for sink in sinks if sink.error and sink.error_ms
    ]
    table = format_table(SINK_HEADERS, (_sink_row(sink, now_ms, colour) for sink in sinks))
    return "\n".join(text for text in (table, format_table(("Sink", "Last error", "Text"), errors)) if text)


def sink_state(sink: SinkStatus, now_ms: int) -> str:
    """Return the state of the sink in a few words."""
    paused = f"paused {_ago(now_ms, sink.paused_since_ms)}" if sink.paused_since_ms else ""
    orphans = len(sink.orphans)
    alone = "" if not orphans else "no worker" if orphans == len(sink.parts) else f"{orphans} without worker"
    if paused or alone:
        return ", ".join(text for text in (paused, alone) if text)
    return "retrying" if sink.retrying else "writing" if sink.lag else "idle"


def _sink_row(sink: SinkStatus, now_ms: int, colour: bool) -> Row:
    warns = colour and bool(sink.paused_since_ms or sink.orphans or sink.retrying)
    return (
        sink.name,
        Cell(sink_state(sink, now_ms), Colour.YELLOW if warns else Colour.PLAIN),
        str(sink.lag),
        human_duration(sink.behind_s),
        str(sink.pending),
        str(sink.retries),
        str(sink.held_back),
        Cell(str(sink.dead), Colour.YELLOW if colour and sink.dead else Colour.PLAIN),
        str(sink.written),
    )


def _ago(now_ms: int, then_ms: int) -> str:
    return human_duration(max(0, now_ms - then_ms) / 1000)
