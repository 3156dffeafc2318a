"""Measures what the occurrences of a minute cost: the same load with them and without.

python -m benchmarks.occurrences [--events N]   CPU of the server, commands, and bytes of Redis an event
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.loads import LOADS
from benchmarks.sink_worker import Worker, an_embedded_bus, chunks
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS
from eventbus.settings import Options

EVENTS = 64_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"events of a load (default {EVENTS})")
    given = parser.parse_args()
    print("| load | occurrences | events | Redis CPU µs an event | commands an event | bytes of occurrences |")
    print("|---|---|--:|--:|--:|--:|")
    for name in LOADS:
        for kept in (False, True):
            measure(name, given.events, kept)
    return 0


def measure(name: str, events: int, kept: bool) -> None:
    """Print the line of one load; the server's CPU is that of all its threads, of the function and what feeds it."""
    with an_embedded_bus(Options() if kept else Options(occurrences_s=0)) as bus:
        worker = Worker(bus)
        cpu, commands = 0.0, 0
        for part in chunks(LOADS[name](), events, 64 * MAX_BATCH_EVENTS):
            worker.append(part)
            before = figures(worker.client)
            worker.drain()
            after = figures(worker.client)
            cpu, commands = cpu + after[0] - before[0], commands + after[1] - before[1]
        size = sum(worker.client.memory_usage(key) or 0 for key in worker.client.scan_iter(match="*:occurrences:*"))
        print(
            f"| {name} | {'kept' if kept else 'not'} | {worker.events} | {cpu * 1e6 / worker.events:.2f} "
            f"| {commands / worker.events:.4f} | {size} |",
            flush=True,
        )


def figures(client: Any) -> tuple[float, int]:
    """Seconds of CPU, and commands, also those of functions."""
    cpu, stats = client.info("cpu"), client.info("commandstats")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], sum(one["calls"] for one in stats.values())


if __name__ == "__main__":
    raise SystemExit(main())
