"""Measures how much the PostgreSQL sink, and a whole worker, writes in a second, beside a plain COPY of the same rows.

python -m benchmarks export_postgres
python -m benchmarks.export_postgres [--events N] [--batch N] [--rounds N]

A private server with its default settings, fsync on. The sink alone is given events that are in memory; it turns them
into JSON and upserts them, guarded by their version, one statement a batch. The worker is the whole exporter of one
partition: it reads the changes, or lists the store, of a bus of its own, writes, and keeps what the sink returned. COPY
gets all rows ready made in one go, compares nothing and knows no repeats: it is what the server can take at the most.
All write the primary key and three more indexes. The rounds take turns, and the median stands in the table, since the
machine is never quiet; beside it the processor time that our own process took, without the servers.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from benchmarks.sink_worker import Worker, an_embedded_bus
from eventbus.broker.bus import Bus
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import BEGINNING, NOW, ExportOptions, Start
from eventbus.export.sinks import SinkWrite, Verb, make_sink
from eventbus.export.sinks.postgres.sink import PostgresSink
from eventbus.model.encoding.event_json import encode_core
from eventbus.model.encoding.wire import from_microseconds
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.util.clock import SystemClock
from tests.support.postgres_server import PostgresServer, a_database

EVENTS, BATCH, ROUNDS = 30_000, 500, 3
#: The target, in events a second.
GOAL = 10_000

COLUMNS = (
    "namespace, name, uid, rv, object_kind, object_name, object_uid, type, reason, message, count,"
    " first_seen, last_seen, event"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"events of a round (default {EVENTS})")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"events of a write (default {BATCH})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each (default {ROUNDS})")
    given = parser.parse_args()
    server = PostgresServer(durable=True)
    try:
        return compare(server.start(), given.events, given.batch, given.rounds)
    finally:
        server.close()


def compare(server_url: str, events: int, batch: int, rounds: int) -> int:
    """Print one line a way of writing, and the target. Returns: 0."""
    first, second = load(events, version=1), load(events, version=2)
    found: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for name, cost in [*measure_sink(server_url, first, second, batch), *measure_worker(server_url, first, batch)]:
            found.setdefault(name, []).append(cost)
    ceiling = events / statistics.median(cost.wall_s for cost in found[COPY])
    size, load_average = len(encode_core(first[0])), os.getloadavg()[0]
    print(
        f"{events} events of {size} bytes as JSON, {batch} a write, median of {rounds} rounds, load {load_average:.1f}"
    )
    print()
    print("| | events/s | of COPY | our processor time, µs an event |")
    print("|---|--:|--:|--:|")
    for name, costs in found.items():
        speed = events / statistics.median(cost.wall_s for cost in costs)
        cpu_us = statistics.median(cost.cpu_s for cost in costs) / events * 1e6
        print(f"| {name} | {speed:,.0f} | {speed / ceiling:.0%} | {cpu_us:.0f} |")
    reached = events / statistics.median(cost.wall_s for cost in found[CHANGES])
    print(f"| target: {CHANGES} ≥ {GOAL:,} | {'met' if reached >= GOAL else '**missed**'} | | |")
    return 0


COPY = "COPY of all rows in one go: the server's ceiling"
NEW = "sink alone, new events"
CHANGED = "sink alone, every event has changed"
SAME = "sink alone, every event had been written (repeat)"
CHANGES = "worker, from the changes"
LISTED = "worker, from a list of the store"


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def measure_sink(server_url: str, first: list[Event], second: list[Event], batch: int) -> Iterator[tuple[str, Cost]]:
    with a_database(server_url) as url, a_sink(url) as sink, psycopg.connect(url, autocommit=True) as connection:
        sink.open()
        rows = [row(event) for event in first]
        yield COPY, cost_of(lambda: copy(connection, rows))
        connection.execute("TRUNCATE eventbus_events")
        yield NEW, cost_of(lambda: write(sink, first, batch))
        yield CHANGED, cost_of(lambda: write(sink, second, batch))
        yield SAME, cost_of(lambda: write(sink, second, batch))


def measure_worker(server_url: str, events: list[Event], batch: int) -> Iterator[tuple[str, Cost]]:
    with an_embedded_bus() as bus:
        with a_database(server_url) as url, an_exporter(bus, url, NOW, batch) as exporter:
            assert exporter.acquire()
            correlator = Worker(bus)
            correlator.append(events)
            correlator.drain()
            yield CHANGES, cost_of(lambda: drain(exporter))
            assert exporter.figures.written == len(events)
        with a_database(server_url) as url, an_exporter(bus, url, BEGINNING, batch) as exporter:
            yield LISTED, cost_of(exporter.acquire)
            assert exporter.figures.written == len(events)


def drain(exporter: PartitionExporter) -> None:
    while exporter.step():
        pass


def write(sink: PostgresSink, events: Sequence[Event], batch: int) -> None:
    for start in range(0, len(events), batch):
        answers = sink.write([SinkWrite.of(Verb.CREATE, event) for event in events[start : start + batch]])
        assert all(isinstance(answer, Event) for answer in answers)


def copy(connection: psycopg.Connection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    with connection.cursor().copy(f"COPY eventbus_events ({COLUMNS}) FROM STDIN") as stream:
        for values in rows:
            stream.write_row(values)


def row(event: Event) -> tuple[Any, ...]:
    meta, about = event.metadata, event.involved_object
    said = (event.type, event.reason, event.message, event.count, event.first_timestamp, event.last_timestamp)
    key = (meta.namespace, meta.name, meta.uid, int(meta.resource_version))
    return (*key, about.kind, about.name, about.uid, *said, encode_core(event).decode())


def load(events: int, *, version: int) -> list[Event]:
    """Make correlated events of as many pods, in an order that is not the index's."""
    made = [make_event(number, version) for number in range(events)]
    random.Random(1).shuffle(made)
    return made


def make_event(number: int, version: int) -> Event:
    name = f"web-{number}"
    moment = from_microseconds(1_763_700_000_000_000 + number * 1_000)
    return Event(
        metadata=ObjectMeta(
            name=f"{name}.18{number:014x}",
            namespace="default",
            uid=f"q5kcv0fz:{number}",
            resource_version=str(version * 1_000_000_000 + number),
        ),
        involved_object=ObjectReference("Pod", "default", name, f"uid-{name}", "v1"),
        reason="BackOff",
        message=f"Back-off restarting failed container web in pod {name}",
        type="Warning" if number % 2 else "Normal",
        count=version,
        source=EventSource("kubelet", "node-17"),
        reporting_component="kubelet",
        reporting_instance="node-17",
        first_timestamp=moment,
        last_timestamp=moment,
    )


@contextmanager
def a_sink(url: str) -> Iterator[PostgresSink]:
    sink = make_sink(url, {}, timeout_s=60)
    assert isinstance(sink, PostgresSink)
    try:
        yield sink
    finally:
        sink.close()


@contextmanager
def an_exporter(bus: Bus, url: str, start: Start, batch: int) -> Iterator[PartitionExporter]:
    """Make an exporter without its thread: driven by `acquire` and `step`."""
    exporter = PartitionExporter(
        bus=bus,
        partition=0,
        sink=make_sink(url, {}, timeout_s=60),
        consumer="w",
        clock=SystemClock(),
        options=ExportOptions(start=start, batch_events=batch),
        block_ms=1,
    )
    try:
        yield exporter
    finally:
        exporter.stop()
        exporter.run()


def cost_of(work: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


if __name__ == "__main__":
    raise SystemExit(main())
