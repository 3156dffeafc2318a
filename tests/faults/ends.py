"""The ends of a process that races decide, again and again: `python -m tests.faults.ends --runs 20`.

Prints how many events were lost, how many runs hung, and how long the end took. Ends with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from eventbus.broker.embedded.server import EmbeddedServer
from tests.integration.process_ends import ROWS, Fate, Row, end, tcp_server

#: parts of the names of the rows that are repeated: pools, several signals, forks
REPEATED = ("Pool", "twice", "three times", "then SIGTERM", "during", "fork")


class Repeated:
    """One case: what its runs came to."""

    def __init__(self, row: Row, method: str) -> None:
        self.row = row
        self.method = method
        self.lost = self.hung = self.wrong = 0
        self.seconds: list[float] = []

    def run(self, server: EmbeddedServer, prefix: str) -> None:
        try:
            ended = end(self.row, self.method, server, prefix)
        except (subprocess.TimeoutExpired, AssertionError):
            self.hung += 1
            return
        self.seconds.append(ended.seconds)
        self.lost += max(0, self.row.arrives - ended.arrived)
        self.wrong += not ended.is_right(self.row)

    def __str__(self) -> str:
        name = self.row.name if self.method == "-" else f"{self.row.name}, {self.method}"
        median, worst = (statistics.median(self.seconds), max(self.seconds)) if self.seconds else (0.0, 0.0)
        return f"| {name} | {len(self.seconds)} | {self.lost} | {self.hung} | {median:.2f} | {worst:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20, help="of each case")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the second half of the runs")
    parser.add_argument("-k", default="", help="cases whose name has this in it")
    given = parser.parse_args()
    cases = [
        Repeated(row, method)
        for row in ROWS
        if row.fate is Fate.KEPT and any(part in row.name for part in REPEATED) and given.k in row.name
        for method in row.methods
    ]
    print("| end | runs | lost | hung | median s | worst s |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="eb") as folder, tcp_server(Path(folder)) as server:
        for number, case in enumerate(cases):
            for run in range(given.runs):
                busy = given.busy if run >= given.runs // 2 else 0
                loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
                try:
                    case.run(server, f"ends{number}-{run}")
                finally:
                    for loop in loops:
                        loop.kill()
                        loop.wait()
            print(case, flush=True)
    raise SystemExit(any(case.lost or case.hung or case.wrong for case in cases))


if __name__ == "__main__":
    main()
