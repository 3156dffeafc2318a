"""Reads the numbers of the whole bus for Prometheus. Only reads, so it needs no more than the role metrics."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from eventbus.broker.health.export_status import SinkStatus, export_status
from eventbus.broker.health.status import BusStatus, Group, Level, read_status
from eventbus.broker.keys import SINK_GROUP
from eventbus.cli.session import open_session
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import BusUnavailable, DeadCause, EventBusError
from eventbus.settings import Settings
from eventbus.store.occurrences import Occurrences, read_occurrences
from eventbus.util.log import log
from eventbus.util.log_output import log_to_stderr
from eventbus.workers.metrics_server import MetricsServer
from eventbus.workers.parent_watch import follow_starter
from eventbus.workers.signals import Signals
from eventbus.workers.systemd import Systemd
from eventbus.workers.worker import wait_for_exit

#: Scrapes within this time after a read get its numbers, however many Prometheus servers there are. Seconds.
READ_EVERY_S = 5.0
#: Types with reasons that have a series of their own; later ones are counted as "other".
MOST_REASONS = 100
#: Minutes that sink workers may be late: occurrences of older minutes are not counted. The first read covers them all.
MOST_MINUTES = 30
#: Minutes that each read covers in addition to the lag of the sink workers.
FEW_MINUTES = 2

OCCURRENCES_HELP = (
    f"Occurrences of events since this exporter started, also of aggregated and suppressed ones. After {MOST_REASONS} "
    'reasons, new ones are counted as "other".'
)
#: Causes of losses that recorders report.
LOSSES = ("dropped", "refused", "unsent", "uncertain", "destroyed", "lost", "other")
#: Counters of `BusStatus.counters`: name of the metric, help text.
COUNTERS = {
    "published": ("published_events", "Events that entered the stream."),
    "refused_full": ("refused_events", "Events that a full stream refused, counted at each try."),
    "created": ("created_events", "Events that were stored as new."),
    "patched": ("patched_events", "Repeats that were added to a stored event."),
    "in_series": ("in_series_events", "Events that were counted in a series without a write of their own."),
    "aggregated": ("aggregated_events", "Events that were aggregated with similar ones."),
    "suppressed": ("suppressed_events", "Events that the spam filter suppressed."),
    "not_created": ("not_created_events", "Events that were not stored because the memory of Redis was full."),
    "expired": ("expired_events", "Events that were deleted after their lifetime."),
    "evicted": ("evicted_events", "Events that were deleted before their lifetime because the store was full."),
    "corrupt": ("corrupt_values", "Corrupt values that functions have found in Redis."),
}


def serve(address: str) -> int:
    """Serve the numbers of the bus at *address* until a signal, and return the exit code.

    Without Redis it serves `eventbus_bus_up 0`, and continues when Redis is back.

    Raises: ConfigError, BusRefused: this bus, address or user cannot be used; nothing is served.
    """
    log_to_stderr(Settings.from_environ(os.environ))
    signals = Signals()
    signals.install()
    follow_starter(lambda: signals.end(0))
    systemd = Systemd()
    reader = BusReader()
    reader.check()
    server = MetricsServer(
        address,
        component="eventbus-metrics",
        loop_health=reader.loop_health,
        collectors=[BusCollector(reader)],
    )
    server.start()
    try:
        systemd.ready(f"serves the metrics of the bus on port {server.port}")
        wait_for_exit(signals, systemd, lambda: ())
        return signals.exit_code or 0
    finally:
        server.stop()


class Reading(msgspec.Struct, frozen=True):
    """The numbers of the bus at one moment. *status* is None if they could not be read."""

    at: float  #: monotonic, seconds
    took_s: float
    status: BusStatus | None = None
    sinks: tuple[SinkStatus, ...] = ()
    occurrences: Mapping[tuple[str, str], int] = {}


class OccurrenceCounts:
    """Counts occurrences by type and reason since the first `add`, from the counts by minute in Redis.

    Late sink workers still add to earlier minutes, so each minute is compared with its last count.
    """

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, str]] = Counter()
        self._minutes: dict[datetime, Counter[tuple[str, str]]] = {}
        self._began = False

    def begins(self, now: datetime, lag_s: float) -> datetime:
        """Return the first minute to read: the sink workers may be *lag_s* late."""
        late = timedelta(seconds=lag_s, minutes=FEW_MINUTES)
        return now - (min(late, timedelta(minutes=MOST_MINUTES)) if self._began else timedelta(minutes=MOST_MINUTES))

    def add(self, rows: tuple[Occurrences, ...], now: datetime) -> None:
        """Add the increase since the last call. The first call only sets the start: each series begins at 0."""
        minutes: dict[datetime, Counter[tuple[str, str]]] = {}
        for row in rows:
            minutes.setdefault(row.minute, Counter())[self._name(row)] += row.count
        for minute, counts in minutes.items():
            known = self._minutes.get(minute, Counter())
            for name, count in counts.items():
                if self._began:
                    self.totals[name] += max(0, count - known[name])
            self._minutes[minute] = counts
        for minute in [minute for minute in self._minutes if minute < now - timedelta(minutes=MOST_MINUTES + 1)]:
            del self._minutes[minute]
        self._began = True

    def _name(self, row: Occurrences) -> tuple[str, str]:
        event_type = row.type if row.type in ("Normal", "Warning") else "other"
        name = (event_type, row.reason or "other")
        if name not in self.totals and len(self.totals) >= MOST_REASONS:
            name = (event_type, "other")
        self.totals.setdefault(name, 0)
        return name


class BusReader:
    """Reads the numbers of the bus for scrapes, at most once in READ_EVERY_S. Thread-safe; scrapes wait for a read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Reading | None = None
        self._occurrences = OccurrenceCounts()

    def read(self) -> Reading:
        """Return the numbers. After a failed read there are none: old ones would look current."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last.at >= READ_EVERY_S:
                began = time.monotonic()
                try:
                    self._last = self._read(began)
                except EventBusError as error:
                    log.warning("cannot read the numbers of the bus: %s", error)
                    self._last = Reading(at=time.monotonic(), took_s=time.monotonic() - began)
            return self._last

    def check(self) -> None:
        """Check once that the bus can be read. Raises: ConfigError, BusRefused; not if Redis does not answer."""
        with suppress(BusUnavailable), self._lock:
            self._last = self._read(time.monotonic())

    def loop_health(self) -> tuple[LoopHealth]:
        """Return the health of the reads, for /readyz."""
        reading = self.read()
        ready = reading.status is not None
        return (LoopHealth(group="bus", partition=0, last_progress=time.monotonic(), ready=ready, counts={}),)

    def _read(self, began: float) -> Reading:
        # Opened for each read: the bus may have been created again, with other options or partitions.
        with open_session() as session:
            status = read_status(session.bus, session.client)
            sinks = export_status(session.bus, session.client)
            now = datetime.now(UTC)
            lag_s = max((group.behind_s for group in status.groups if group.name == SINK_GROUP), default=0.0)
            since = self._occurrences.begins(now, lag_s)
            self._occurrences.add(read_occurrences(session.bus, session.client, since, now).rows, now)
        done = time.monotonic()
        return Reading(
            at=done, took_s=done - began, status=status, sinks=sinks, occurrences=dict(self._occurrences.totals)
        )


class BusCollector:
    """Converts the numbers of the bus to metrics at each scrape."""

    def __init__(self, reader: BusReader) -> None:
        self._reader = reader

    def collect(self) -> Iterator[Metric]:
        """Make the metrics. Without numbers, only `eventbus_bus_up` and the duration of the read."""
        reading = self._reader.read()
        found = reading.status is not None
        yield _gauge("bus_up", "1 if the numbers of the bus could be read, 0 if not: then they are missing.", found)
        yield _gauge("bus_read_seconds", "Duration of the last read of these numbers from Redis.", reading.took_s)
        if reading.status is not None:
            yield from _bus_metrics(reading.status)
            yield from _group_metrics(reading.status.groups)
            yield from _export_metrics(reading.sinks)
            yield from _occurrence_metrics(reading.occurrences)


def _bus_metrics(status: BusStatus) -> Iterator[Metric]:
    for name, (metric, help_text) in COUNTERS.items():
        yield _counter(metric, help_text, status.counters[name])
    losses, buried = _from_zero(LOSSES, status.losses), _from_zero(DeadCause, status.buried)
    yield _counter("lost_events", "Events that recorders lost, as they reported it.", losses, "cause")
    yield _counter("dead_letter_events", "Events put into the dead letter.", buried, "cause")
    partitions = status.partitions
    yield _gauge("dead_letters", "Entries in the dead letter.", sum(one.dead_events or 0 for one in partitions))
    levels = {
        "incoming": [partition.incoming for partition in partitions],
        "changes": [partition.changes for partition in partitions],
        "dead": [partition.dead for partition in partitions],
        "stored": [partition.stored for partition in partitions],
        "records": [partition.records for partition in partitions],
    }
    shares = {resource: max((level.share for level in found), default=0.0) for resource, found in levels.items()}
    yield _gauge("fill_ratio", "Used share of a bound (0 to 1), of the fullest partition.", shares, "resource")
    yield _gauge("incoming_bytes", "Bytes of events in the stream that a group still needs.", _used(levels["incoming"]))
    yield _gauge("stored_events", "Events in the store.", _used(levels["stored"]))
    yield _gauge("partitions_without_sink_worker", "Partitions without a live sink worker.", len(status.unfed))
    if status.memory.used is not None:
        yield _gauge("redis_memory_bytes", "Memory that Redis uses, of all servers.", status.memory.used)
    if status.memory.bound is not None:
        yield _gauge("redis_memory_limit_bytes", "Sum of maxmemory of all servers.", status.memory.bound)


def _group_metrics(groups: Sequence[Group]) -> Iterator[Metric]:
    lags = {group.name: group.lag for group in groups if group.lag is not None}
    ages = {group.name: group.behind_s for group in groups}
    yield _gauge("group_lag_events", "Events that the group has not acknowledged.", lags, "group")
    yield _gauge("group_lag_seconds", "Age of the oldest event that the group has not acknowledged.", ages, "group")
    pending = {group.name: group.pending for group in groups}
    yield _gauge("group_pending_entries", "Entries of the stream that workers are handling.", pending, "group")
    alive = {group.name: group.alive for group in groups}
    yield _gauge("group_workers", "Live workers of the group.", alive, "group")
    lost = {group.name: group.lost for group in groups}
    yield _counter("group_lost_events", "Events that were deleted before the group had read them.", lost, "group")


def _export_metrics(sinks: Sequence[SinkStatus]) -> Iterator[Metric]:
    now_ms = time.time() * 1000
    lags = {sink.name: sink.lag for sink in sinks}
    yield _gauge("export_lag_events", "Changes of the store that are not written to the sink.", lags, "sink")
    ages = {sink.name: sink.behind_s for sink in sinks}
    yield _gauge("export_lag_seconds", "Age of the oldest change that is not written to the sink.", ages, "sink")
    paused = {sink.name: max(0.0, now_ms - sink.paused_since_ms) / 1000 for sink in sinks if sink.paused_since_ms}
    running = {sink.name: 0.0 for sink in sinks}
    yield _gauge(
        "export_paused_seconds", "Time since the sink stopped answering; 0: it answers.", running | paused, "sink"
    )
    orphans = {sink.name: len(sink.orphans) for sink in sinks}
    yield _gauge("export_partitions_without_worker", "Partitions without a live worker for the sink.", orphans, "sink")
    written = {sink.name: sink.written for sink in sinks}
    yield _counter("export_written_events", "Events that the sink accepted.", written, "sink")
    retries = {sink.name: sink.retries for sink in sinks}
    yield _counter("export_retries", "Failed writes of an event that were tried again.", retries, "sink")
    dead = {sink.name: sink.dead for sink in sinks}
    yield _counter("export_dead_letter_events", "Events for the sink that were put into the dead letter.", dead, "sink")


def _occurrence_metrics(occurrences: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    family = CounterMetricFamily("eventbus_occurrences", OCCURRENCES_HELP, labels=["type", "reason"])
    for (event_type, reason), count in sorted(occurrences.items()):
        family.add_metric([event_type, reason], count)
    yield family


def _gauge(name: str, help_text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(GaugeMetricFamily(f"eventbus_{name}", help_text, labels=[label] if label else []), value)


def _counter(name: str, help_text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(CounterMetricFamily(f"eventbus_{name}", help_text, labels=[label] if label else []), value)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, value: float | Mapping[str, float]) -> Metric:
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], float(number))
    else:
        family.add_metric([], float(value))
    return family


def _from_zero(labels: Iterable[str], values: Mapping[str, float]) -> dict[str, float]:
    """Begin each series at 0: Prometheus does not count the increase with which a series appears."""
    return {str(label): 0.0 for label in labels} | dict(values)


def _used(levels: Sequence[Level]) -> int:
    return sum(level.used or 0 for level in levels)
