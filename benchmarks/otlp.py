"""How many log records of OTLP a worker receives and sends in a second: `python -m benchmarks.otlp [events]`.

In: a private Redis, an API worker as a process, requests of 512 records over one connection, as the SDKs send them; and
the same with a `log.record.uid` in each record, which makes each a batch of its own. Out: the sink alone, and a whole
exporter of one partition, to a process that reads requests and answers 200. The same for the other sinks over HTTP.
"""

from __future__ import annotations

import gzip
import http.client
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from benchmarks.export_postgres import load
from benchmarks.http_recording import children_s, target
from benchmarks.sink_worker import Worker, an_embedded_bus
from eventbus import Options, Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import NOW, ExportOptions
from eventbus.export.sinks import BatchSink, SinkWrite, Verb, make_sink
from eventbus.model.event import Event
from eventbus.util.clock import SystemClock

EVENTS, REQUEST, BATCH = 100_000, 512, 500
GOAL = 20_000
SINKS = ("otlp", "elasticsearch+http", "clickhouse+http", "splunk+http")


class Row(NamedTuple):
    way: str
    per_s: float
    cpu_us: float


def main(events: int = EVENTS) -> int:
    print(f"{events:,} events, load average {os.getloadavg()[0]:.1f}\n")
    print("| | events/s | processor time of the worker, µs an event | target |\n|---|--:|--:|---|")
    for with_uid in (False, True):
        print_row(_receive(events, with_uid=with_uid))
    with _target_process() as port:
        for scheme in SINKS:
            for row in export_to(f"{scheme}://127.0.0.1:{port}", scheme.partition("+")[0], events):
                print_row(row)
    return 0


def print_row(row: Row, goal: int = GOAL) -> None:
    """Print a line of the table."""
    reached = "met" if row.per_s >= goal else "**missed**"
    print(f"| {row.way} | {row.per_s:,.0f} | {row.cpu_us:.0f} | ≥ {goal:,}: {reached} |", flush=True)


# -- in ----------------------------------------------------------------------------------------------------------


def _receive(events: int, *, with_uid: bool) -> Row:
    bodies = [
        _request(range(start, min(start + REQUEST, events)), with_uid=with_uid) for start in range(0, events, REQUEST)
    ]
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder))
        try:
            url = server.start()
            open_bus(url, Settings(), options=Options(incoming_bytes=2**31))
            before_s = children_s()
            with target("http", url, Path(folder)) as api:
                took_s = _post(api, bodies)
            cpu_us = 1e6 * (children_s() - before_s) / events
        finally:
            server.stop()
    way = "in, each with a `log.record.uid`" if with_uid else "in"
    return Row(way, events / took_s, cpu_us)


def _post(url: str, bodies: list[bytes]) -> float:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    begun = time.perf_counter()
    for body in bodies:
        connection.request("POST", "/v1/logs", body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        assert (answer.status, text) == (200, b""), text
    connection.close()
    return time.perf_counter() - begun


def _request(numbers: range, *, with_uid: bool) -> bytes:
    def record(number: int) -> LogRecord:
        texts = {"eventbus.object.kind": "Order", "eventbus.object.name": f"order-{number % 5000}", "shop.step": "pay"}
        if with_uid:
            texts["log.record.uid"] = f"p:{number}/1"
        return LogRecord(
            time_unix_nano=1_770_372_930_000_000_000 + number,
            event_name="shop.order.payment_failed",
            body=AnyValue(string_value=f"order {number}: card declined"),
            attributes=_pairs(texts),
        )

    logs = ScopeLogs(scope=InstrumentationScope(name="checkout"), log_records=[record(number) for number in numbers])
    resource = Resource(attributes=_pairs({"service.name": "shop-api", "service.instance.id": "api-7f9"}))
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource, scope_logs=[logs])])
    return gzip.compress(request.SerializeToString(), 1)


def _pairs(texts: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in texts.items()]


# -- out ---------------------------------------------------------------------------------------------------------


def export_to(url: str, name: str, events: int) -> Iterator[Row]:
    """Measure the sink of *url* alone, and in a worker of one partition."""
    made = load(events, version=1)
    sink = _sink(url)
    yield _cost(f"out, {name}: the sink alone", lambda: _write(sink, made), events)
    sink.close()
    with an_embedded_bus() as bus:
        exporter = PartitionExporter(
            bus=bus,
            partition=0,
            sink=_sink(url),
            consumer="w",
            clock=SystemClock(),
            options=ExportOptions(start=NOW, batch_events=BATCH),
            block_ms=1,
        )
        exporter.acquire()
        correlator = Worker(bus)
        correlator.append(made)
        correlator.drain()
        yield _cost(f"out, {name}: a worker", lambda: _drain(exporter), events)
        assert exporter.figures.written == events
        exporter.close()


def _sink(url: str) -> BatchSink:
    sink = make_sink(url, {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, timeout_s=60, bus_id="bench")
    assert isinstance(sink, BatchSink)
    return sink


def _write(sink: BatchSink, events: list[Event]) -> None:
    for start in range(0, len(events), BATCH):
        answers = sink.write([SinkWrite.of(Verb.CREATE, event) for event in events[start : start + BATCH]])
        assert all(isinstance(answer, Event) for answer in answers), answers[:1]


def _drain(exporter: PartitionExporter) -> None:
    while exporter.step():
        pass


def _cost(way: str, work: Callable[[], object], events: int) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Row(way, events / (time.perf_counter() - wall), 1e6 * (time.process_time() - cpu) / events)


class _Handler(BaseHTTPRequestHandler):
    """Answers as a good request of each system is answered; `_bulk` with as many items as there are documents."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body, answer = self.rfile.read(int(self.headers["Content-Length"])), b""
        if "/_bulk" in self.path:
            items = gzip.decompress(body).count(b"\n") // 2
            answer = b'{"items":[' + b",".join([b'{"create":{"status":201}}'] * items) + b"]}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def _target_process() -> Iterator[int]:
    """Serve in a process of its own, so that its work is not counted here. Yields: its port."""
    ready: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=_serve, args=(ready,), daemon=True)
    process.start()
    try:
        yield ready.get(timeout=30)
    finally:
        process.terminate()
        process.join()


def _serve(ready: Any) -> None:
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        ready.put(server.server_address[1])
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
