"""Parts of a run: each a process (or two) with a private server, so that none pays for what an earlier one left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import redis

from benchmarks.environments import ROOT, python_of
from benchmarks.meter import RESULTS, SERVER_PID
from benchmarks.peers import Peer
from benchmarks.servers import Server, a_server

#: seconds after which a part is given up
LONGEST_S = 300
#: calls of a peer one at a time
CALLS = 2_000
#: A part begins when others have left the machine alone for half a second; seconds after which it begins all the same.
QUIET_CORES, PATIENCE_S = 0.15, 10.0


class Figures(NamedTuple):
    """The figures of one part for one case; *others*: cores that everybody else on the machine used meanwhile."""

    who: str
    case: str
    way: str
    values: dict[str, float]
    others: float


class Failed(Exception):
    """A part ended without a result; the message says how, in a line."""


def run_ours(module: str, *arguments: str) -> list[Figures]:
    """One part of ours."""
    with a_server() as server, _Results("eventbus", server) as results:
        command = [sys.executable, "-m", f"benchmarks.ours.{module}", *arguments]
        _run(command, results.environ, f"{module} {' '.join(arguments)}")
        return results.read()


def run_peer(peer: Peer) -> list[Figures]:
    """All parts of a peer: calls, batches, memory of what is queued, a worker."""
    python, module = python_of(peer), f"benchmarks.peers.{peer.module}"
    found: list[Figures] = []
    for command, total in (("calls", CALLS), ("publish", peer.publish)):
        with a_server(peer.server) as server, _Results(peer.name, server) as results:
            _run([str(python), "-m", module, command, str(total)], results.environ, f"{peer.name} {command}")
            found += results.read()
    with a_server(peer.server) as server, _Results(peer.name, server) as results:
        before = _dataset(server)
        _run([str(python), "-m", module, "fill", str(peer.work)], results.environ, f"{peer.name} fill")
        if before:
            found.append(
                Figures(peer.name, "memory", "a queued event", {"bytes": (_dataset(server) - before) / peer.work}, 0.0)
            )
        environ = results.environ | {"BENCH_TOTAL": str(peer.work)}
        worker = [str(python.parent / peer.worker[0]), *peer.worker[1:]] if peer.worker else []
        _work(worker or [str(python), "-m", module, "work"], environ, results, peer.name)
        found += results.read()
    return found


class _Results:
    """The file a part writes into, and the machine's load while it ran."""

    def __init__(self, who: str, server: Server) -> None:
        self._who = who
        self._server = server
        self._folder = tempfile.TemporaryDirectory(prefix="eventbus-bench-")
        self.path = Path(self._folder.name) / "results"
        ours = {SERVER_PID: str(server.pid), "BENCH_URL": server.url, RESULTS: str(self.path)}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")}
        self.environ: dict[str, str] = kept | ours | {"PYTHONPATH": str(ROOT)}

    def __enter__(self) -> _Results:
        wait_for_quiet(self._server.pid)
        self._load = Load(self._server.pid)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._folder.cleanup()

    def read(self) -> list[Figures]:
        others = self._load.of_others()
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            values = json.loads(line)
            found.append(Figures(self._who, values.pop("case"), values.pop("way"), values, others))
        return found


class Load:
    """Measures how many cores everybody else has used since it was made. 0.0 without /proc."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._start, self._busy, self._ours = time.monotonic(), _busy_s(), self._own_s()

    def of_others(self) -> float:
        seconds = max(0.001, time.monotonic() - self._start)
        return max(0.0, (_busy_s() - self._busy - (self._own_s() - self._ours)) / seconds)

    def _own_s(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used) + _server_s(self._server_pid)


def wait_for_quiet(server_pid: int) -> None:
    """Let a burst of somebody else's work pass; whoever works for long is noted as load, not waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        load = Load(server_pid)
        time.sleep(0.5)
        if load.of_others() <= QUIET_CORES:
            return


def _busy_s() -> float:
    try:
        user, nice, system, _idle, _io, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _server_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _dataset(server: Server) -> int:
    if not server.url.startswith("redis:"):
        return 0
    with redis.Redis.from_url(server.url) as client:
        return int(client.info("memory")["used_memory_dataset"])


def _run(command: Sequence[str], environ: Mapping[str, str], what: str) -> None:
    try:
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{what}: not done after {LONGEST_S} s") from error
    if done.returncode:
        raise Failed(f"{what}: {(done.stderr.strip().splitlines() or ['no word'])[-1][:200]}")


def _work(command: Sequence[str], environ: Mapping[str, str], results: _Results, what: str) -> None:
    """Run a worker until it has said what it found; then SIGTERM, to it and its children."""
    with open(results.path.with_name("worker"), "w+", encoding="utf-8") as words:
        worker = subprocess.Popen(
            command, env=environ, cwd=ROOT, stdout=words, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            deadline = time.monotonic() + LONGEST_S
            while not results.path.exists():
                if time.monotonic() > deadline or (worker.poll() is not None and not results.path.exists()):
                    words.seek(0)
                    raise Failed(f"{what} worker: {(words.read().strip().splitlines() or ['no word'])[-1][:200]}")
                time.sleep(0.05)
            time.sleep(0.2)
        finally:
            _end(worker)


def _end(worker: subprocess.Popen[bytes]) -> None:
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(worker.pid, number)
            worker.wait(seconds)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    worker.wait(10)
