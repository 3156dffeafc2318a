"""How many events a second a worker exports to NATS JetStream: `python -m benchmarks.export_nats [events]`.

A private nats-server whose stream is on disk; first the sink alone, then a whole exporter of one partition.
"""

from __future__ import annotations

import os
import sys

from benchmarks.otlp import EVENTS, export_to, print_row
from tests.support.nats_server import NatsServer

GOAL = 30_000


def main(events: int = EVENTS) -> int:
    print(f"{events:,} events, load average {os.getloadavg()[0]:.1f}\n")
    print("| | events/s | processor time of the worker, µs an event | target |\n|---|--:|--:|---|")
    server = NatsServer()
    try:
        server.start()
        for row in export_to(f"nats://127.0.0.1:{server.port}", "nats", events):
            print_row(row, GOAL)
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
