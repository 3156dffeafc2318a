"""The ends of a process that races decide, again and again: `python -m tests.faults.ends --runs 100`.

Several at once, each with a server of its own; the second half of a row's runs beside busy loops. Prints how many
events were lost, how many runs hung, and how long the end took. Ends with 1 if any end was not the expected one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from eventbus.broker.embedded.server import EmbeddedServer
from tests.integration.process_ends import ROWS, Ended, Fate, Row, end, tcp_server

#: parts of the names of the rows that are repeated if none are named: pools, several signals, forks
REPEATED = ("`with Pool", "twice", "three times", "then SIGTERM", "fork")


class Repeated:
    """One case: what its runs came to."""

    def __init__(self, row: Row, method: str) -> None:
        self.row = row
        self.method = method
        self.lost = self.hung = 0
        self.seconds: list[float] = []
        self.wrong: list[str] = []  #: what was not as the row says

    def count(self, ended: Ended | None, error: str) -> None:
        """Count a run; *ended* None: it did not come to its end."""
        if ended is None:
            self.hung += 1
            self.wrong.append(error)
            return
        self.seconds.append(ended.seconds)
        self.lost += max(0, self.row.arrives - ended.arrived)
        if not ended.is_right(self.row):
            self.wrong.append(f"exit code {ended.code}, {ended.arrived} of {self.row.arrives}: {ended.said}")

    @property
    def name(self) -> str:
        return self.row.name if self.method == "-" else f"{self.row.name}, {self.method}"

    def __str__(self) -> str:
        median, worst = (statistics.median(self.seconds), max(self.seconds)) if self.seconds else (0.0, 0.0)
        runs = len(self.seconds) + self.hung
        return f"| {self.name} | {runs} | {self.lost} | {self.hung} | {median:.2f} | {worst:.2f} |"


class Lines:
    """Runs cases on a number of servers at once: a frozen server is for one run alone."""

    def __init__(self, servers: list[EmbeddedServer]) -> None:
        self._free: SimpleQueue[EmbeddedServer] = SimpleQueue()
        for server in servers:
            self._free.put(server)
        self._threads = ThreadPoolExecutor(len(servers))
        self._runs = 0

    def run(self, case: Repeated, runs: int) -> None:
        waiting = []
        for _ in range(runs):
            self._runs += 1
            waiting.append(self._threads.submit(self._end, case, f"ends{self._runs}"))
        for ended in waiting:
            case.count(*ended.result())

    def _end(self, case: Repeated, prefix: str) -> tuple[Ended | None, str]:
        server = self._free.get()
        try:
            return end(case.row, case.method, server, prefix), ""
        except (subprocess.TimeoutExpired, AssertionError) as error:
            return None, repr(error)
        finally:
            self._free.put(server)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes compute meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for loop in started:
            loop.kill()
            loop.wait()


def cases(part: str) -> list[Repeated]:
    parts = (part,) if part else REPEATED
    return [
        Repeated(row, method)
        for row in ROWS
        if row.fate is Fate.KEPT and any(each in row.name for each in parts)
        for method in row.methods
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20, help="of each case")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the second half of the runs")
    parser.add_argument("--jobs", type=int, default=4, help="runs at once")
    parser.add_argument("-k", default="", help="cases whose name has this in it, instead of pools, signals and forks")
    given = parser.parse_args()
    chosen = cases(given.k)
    print("| end | runs | events lost | hung | median s | worst s |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="eb") as folder, ExitStack() as stack:
        folders = [Path(folder, str(number)) for number in range(given.jobs)]
        lines = Lines([stack.enter_context(tcp_server(each)) for each in folders])
        for case in chosen:
            lines.run(case, given.runs - given.runs // 2)
            with busy(given.busy):
                lines.run(case, given.runs // 2)
            print(case, flush=True)
    for case in chosen:
        for each in case.wrong:
            print(f"\n{case.name}: {each}")
    raise SystemExit(any(case.wrong for case in chosen))


if __name__ == "__main__":
    main()
