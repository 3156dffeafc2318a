"""Measures a call of `correlate_and_store` with batches as in use; with --bounds, the memory after a flood of objects.

python -m benchmarks record_calls                      time of a call for four kinds of load
python -m benchmarks.record_calls --bounds [OBJECTS]   memory after a flood of distinct objects
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmarks.loads import LOADS
from benchmarks.record_bounds import measure_bounds
from benchmarks.sink_worker import Worker, an_embedded_bus, chunks
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS

EVENTS = 64_000
#: The target: longer calls would hold up everybody else on the server.
MEAN_MS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bounds", nargs="?", type=int, const=2_000_000, metavar="OBJECTS", help="measure memory")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"events of a load (default {EVENTS})")
    given = parser.parse_args()
    return measure_calls(given.events) if given.bounds is None else measure_bounds(given.bounds)


def measure_calls(events: int) -> int:
    """Print one line a load, and the target. Returns: 0."""
    print(
        "| load | events | calls | events a call | mean ms (server) | mean ms (client) | p99 ms (client) | events/s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    slowest_ms = 0.0
    for name, load in LOADS.items():
        with an_embedded_bus() as bus:
            worker = Worker(bus)
            for part in chunks(load(), events, 64 * MAX_BATCH_EVENTS):
                worker.append(part)
                worker.drain()
            slowest_ms = max(slowest_ms, report(name, worker))
    target = f"target: mean ms (server) of every load ≤ {MEAN_MS}"
    print(f"| {target}; the slowest: {slowest_ms:.2f} | {'met' if slowest_ms <= MEAN_MS else '**missed**'} |{' |' * 6}")
    return 0


def report(name: str, worker: Worker) -> float:
    """Print the line of one load. Returns: ms that the server took for a call, on average."""
    stats: Any = worker.client.info("commandstats")
    server_ms: float = stats["cmdstat_fcall"]["usec_per_call"] / 1000
    times = sorted(worker.functions.seconds)
    p99, mean, calls = times[int(len(times) * 0.99)], statistics.fmean(times), len(times)
    print(
        f"| {name} | {worker.events} | {calls} | {worker.events / calls:.0f} | {server_ms:.2f} | {mean * 1e3:.2f} "
        f"| {p99 * 1e3:.2f} | {worker.events / calls / server_ms * 1e3:,.0f} |",
        flush=True,
    )
    return server_ms


if __name__ == "__main__":
    raise SystemExit(main())
