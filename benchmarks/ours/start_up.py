"""Measures how long `import eventbus` and `eventbus --help` take, and how soon a worker reads."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from benchmarks.meter import report
from benchmarks.ours.bus import a_bus, sink_workers, until

TIMES = 5
IMPORT = "import time; t = time.perf_counter(); import eventbus; print((time.perf_counter() - t) * 1000)"


def main() -> None:
    bus = a_bus()
    client = bus.client()
    report("start", "import eventbus", ms=often(import_ms))
    report("start", "python that does nothing", ms=often(lambda: milliseconds_of(["-c", "pass"])))
    report("start", "eventbus --help", ms=often(lambda: milliseconds_of(["-m", "eventbus", "--help"])))

    def worker_ms() -> float:
        client.delete(bus.keys[0].workers)
        start = time.perf_counter()
        with sink_workers(1):
            until(lambda: client.hlen(bus.keys[0].workers), every_s=0.001)
            return (time.perf_counter() - start) * 1000

    report("start", "eventbus worker sink, until it reads", ms=often(worker_ms))


def often(measure: Callable[[], float]) -> float:
    measure()  # warms the disk's cache
    return median(measure() for _ in range(TIMES))


def import_ms() -> float:
    return float(subprocess.check_output([sys.executable, "-c", IMPORT]))


def milliseconds_of(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
