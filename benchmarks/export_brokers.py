"""How many events a second a worker exports to brokers: `python -m benchmarks.export_brokers [events] [broker]`.

First the sink alone, then a whole exporter of one partition. NATS JetStream: a private nats-server whose stream is on
disk. Kafka: the mock broker of the client's library, which stores in memory, in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.otlp import EVENTS, export_to, print_row
from tests.support.kafka_server import KafkaServer
from tests.support.nats_server import NatsServer

GOAL = 30_000


@contextmanager
def _nats() -> Iterator[str]:
    server = NatsServer()
    try:
        server.start()
        yield f"nats://127.0.0.1:{server.port}"
    finally:
        server.close()


@contextmanager
def _kafka() -> Iterator[str]:
    """Serve in another process, so that its work is not counted here."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve_kafka, args=(there,), daemon=True)
    process.start()
    try:
        yield f"kafka://{here.recv()}"
    finally:
        here.send("stop")
        process.join()


def _serve_kafka(pipe: Any) -> None:
    server = KafkaServer()
    pipe.send(server.address)
    pipe.recv()
    server.close()


#: Name → a context manager whose value is the URL of a sink.
BROKERS: dict[str, Callable[[], AbstractContextManager[str]]] = {"nats": _nats, "kafka": _kafka}


def main(events: int = EVENTS, *names: str) -> int:
    print(f"{events:,} events, load average {os.getloadavg()[0]:.1f}\n")
    print("| | events/s | processor time of the worker, µs an event | target |\n|---|--:|--:|---|")
    for name in names or BROKERS:
        with BROKERS[name]() as url:
            for row in export_to(url, name, events):
                print_row(row, GOAL)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else EVENTS, *sys.argv[2:]))
