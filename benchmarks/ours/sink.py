"""Events a second into the store: a backlog, then `eventbus worker sink`; from the first recorded to the last.

python -m benchmarks.ours.sink LOAD WORKERS PARTITIONS EVENTS
"""

from __future__ import annotations

import sys

from benchmarks.meter import Meter, report
from benchmarks.ours.bus import a_bus, fill, recorded, sink_workers, until
from benchmarks.sample import numbers


def main(load: str, workers: int, partitions: int, events: int) -> None:
    bus = a_bus(partitions)
    client = bus.client()
    fill(numbers(load, events))
    client.config_resetstat()
    with sink_workers(workers) as processes:
        until(lambda: recorded(bus, client), every_s=0.002)
        meter, before = Meter(*(process.pid for process in processes)), recorded(bus, client)
        meter.start()
        until(lambda: recorded(bus, client) >= events)
        figures = meter.stop(events - before)
        calls = client.info("commandstats")["cmdstat_fcall"]
        times = client.info("latencystats")["latency_percentiles_usec_fcall"]
        busy_ms = calls["usec"] / 1000 / calls["calls"]
        report("sink", f"{load}, {plural(workers, 'worker')}, {plural(partitions, 'partition')}", **figures,
               call_ms=busy_ms, call_p99_ms=float(times["p99"]) / 1000)  # fmt: skip


def plural(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:5]))
