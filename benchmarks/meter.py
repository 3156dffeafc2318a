"""A clock for wall time and for the CPU of this process and of the server. Standard library only: peers use it too."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from pathlib import Path

#: The server's process, told by the harness.
SERVER_PID = "BENCH_SERVER_PID"
#: Where a part writes what it found, one JSON object a line.
RESULTS = "BENCH_RESULTS"


class Meter:
    """Between `start` and `stop`: events a second, and µs of CPU per event of this process and of the server."""

    def __init__(self, *pids: int) -> None:
        """*pids*: whose CPU is the client's; none: this process."""
        self._server = int(os.environ.get(SERVER_PID, "0"))
        self._clients = pids

    def start(self) -> None:
        self._server_cpu, self._client_cpu, self._start = cpu_of(self._server), self._client(), time.perf_counter()

    def stop(self, events: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._start
        return {
            "rate": events / seconds,
            "client_us": (self._client() - self._client_cpu) / events * 1e6,
            "server_us": (cpu_of(self._server) - self._server_cpu) / events * 1e6,
        }

    def _client(self) -> float:
        if self._clients:
            return sum(cpu_of(pid) for pid in self._clients)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


class Counter:
    """Counts what a worker has handled: the clock runs from the first event (or batch) to the last."""

    def __init__(self, total: int, case: str, way: str) -> None:
        self._total, self._case, self._way = total, case, way
        self._meter = Meter()
        self._first = 0
        self._seen = 0
        self._lock = threading.Lock()

    def handled(self, events: int = 1) -> None:
        with self._lock:
            self._seen += events
            if not self._first:
                self._first = events
                self._meter.start()
            if self._seen == self._total:
                report(self._case, self._way, **self._meter.stop(self._total - self._first))


def cpu_of(pid: int) -> float:
    """Seconds of CPU that the process has used, all threads; 0.0 where there is no /proc."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def report(case: str, way: str, **figures: float) -> None:
    """Tell the harness. *way*: how it was done, for the table."""
    line = json.dumps({"case": case, "way": way, **figures})
    with open(os.environ.get(RESULTS, "/dev/stdout"), "a", encoding="utf-8") as file:
        file.write(line + "\n")


def percentiles(times_ns: list[int]) -> dict[str, float]:
    """µs: median, p99 and p99.9."""
    times = sorted(times_ns)

    def at(share: float) -> float:
        return times[min(len(times) - 1, int(len(times) * share))] / 1000

    return {"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999)}
