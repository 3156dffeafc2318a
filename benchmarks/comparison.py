"""Ours, the peers and the ceilings, in turn, in one run: rounds, medians, one table. See docs/performance.md.

python -m benchmarks comparison          all of it; ROUNDS=1 for fewer rounds
python -m benchmarks.comparison ours     only this project, quick
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain

from benchmarks.environments import STATE, NotInstalled
from benchmarks.parts import Failed, Figures, run_ours, run_peer
from benchmarks.peers import PEERS
from benchmarks.plot import draw
from benchmarks.servers import a_server, redis_program
from benchmarks.table import Collected, render
from benchmarks.targets import judge

ROUNDS = 3
SINK = (
    *(("distinct", "1", "1", "30000"), ("zipf", "1", "1", "60000"), ("hot", "1", "1", "150000")),
    *(("distinct", "2", "1", "30000"), ("zipf", "2", "1", "60000"), ("hot", "2", "1", "150000")),
    *(("distinct", "1", "4", "30000"), ("zipf", "1", "4", "60000"), ("distinct", "2", "4", "30000")),
)

Job = tuple[str, Callable[[], list[Figures]]]


def main(words: list[str]) -> int:
    only_ours = "ours" in words
    rounds = int(os.environ.get("ROUNDS") or (1 if only_ours else ROUNDS))
    collected, failures = Collected(), dict[str, str]()
    start = time.monotonic()
    for number in range(rounds):
        for name, job in jobs(only_ours):
            if name in failures:
                continue
            _say(f"round {number + 1} of {rounds}, {time.monotonic() - start:.0f} s: {name}")
            try:
                collected.add(job())
            except (Failed, NotInstalled, OSError) as error:
                failures[name] = str(error)
    text = "\n".join(
        [_head(rounds, collected), render(collected), "", *judge(collected), *_failed(failures)],
    )
    print(text)
    STATE.mkdir(parents=True, exist_ok=True)
    (STATE / "results.md").write_text(text + "\n", encoding="utf-8")
    (STATE / "results.json").write_text(json.dumps(collected.plain(), indent=1), encoding="utf-8")
    (STATE / "plot.svg").write_text(draw(collected), encoding="utf-8")
    _say(f"{time.monotonic() - start:.0f} s; kept in {STATE}: results.md, results.json, plot.svg")
    return int(any(name.startswith("ours") for name in failures))


def jobs(only_ours: bool) -> Iterator[Job]:
    """All parts of a round: ceilings, ours, peers."""
    if not only_ours:
        if shutil.which("redis-benchmark"):
            yield "redis-benchmark", redis_benchmark
        for peer in PEERS:
            yield peer.name, lambda peer=peer: run_peer(peer)  # type: ignore[misc]
    names = ("caller", "publish", "fan_out", "bare", "stored", "process_memory", "start_up", "faults")
    parts = [(name,) for name in names]
    parts += [("latency", "500"), ("latency", "5000")]  # type: ignore[list-item]
    for part in chain(parts, (("sink", *row) for row in SINK)):
        yield f"ours: {' '.join(part)}", lambda part=part: run_ours(*part)  # type: ignore[misc]


def redis_benchmark() -> list[Figures]:
    """Measure how fast the server takes entries of 500 bytes when nothing is made, packed or waited for."""
    found = []
    for clients, pipeline in ((1, 1), (1, 50), (50, 50)):
        with a_server() as server:
            port = server.url.rpartition(":")[2].partition("/")[0]
            command = ["redis-benchmark", "-p", port, "-q", "-n", "20000" if pipeline == 1 else "300000"]
            command += ["-c", str(clients), "-P", str(pipeline), "XADD", "events", "*", "body", "x" * 500]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        rates = re.findall(r"([\d.]+) requests per second", said)
        way = f"XADD, {clients} client{'' if clients == 1 else 's'}, {pipeline} in a pipeline"
        found.append(Figures("redis-benchmark", "publish", way, {"rate": float(rates[-1])}, 0.0))
    return found


def _head(rounds: int, collected: Collected) -> str:
    _, server = redis_program()
    others = collected.others()
    return (
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {server}, AOF everysec, events of 500 bytes; "
        f"{rounds} round{'' if rounds == 1 else 's'}, median (min–max).\n"
        f"Other processes used {others[0]:.2f} cores at the median of all parts, {others[1]:.2f} at the worst.\n"
    )


def _failed(failures: dict[str, str]) -> list[str]:
    return ["", *(f"* **{name}** was not measured: {why}" for name, why in failures.items())] if failures else []


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
