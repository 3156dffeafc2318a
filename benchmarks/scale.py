"""What a large fleet costs: measured at a hundredth, with the shape of growth, and computed for the whole.

python -m benchmarks.scale [recorders|nodes|watches] [--seconds 20] [--events 1e6] [--nodes 1e5] [--watches 1e4]

Each part is measured at three sizes, up to a hundredth of the default fleet. A cost grows as the size to the power of
an exponent: 1 is linear. The fleet's costs are computed from the largest size: linear, since it has more partitions and
workers of that size, or with the exponent if that is above 1.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from typing import NamedTuple

from benchmarks import api, nodes
from benchmarks.meter import cpu_of
from benchmarks.sample import REASON, TYPE, message
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings

SIZES = (0.1, 0.3, 1.0)  #: of a hundredth of the fleet
PROCESSES = 4  #: that simulate recorders
EVENTS_A_RECORDER = 10.0  #: a second
PRIMARY = 0.6  #: of a core; more leaves no room for a failover
MIB = 2**20


class Cost(NamedTuple):
    """One row: what so many of a thing cost, by name."""

    size: int
    figures: dict[str, float]


class Fleet(NamedTuple):
    events: float  #: a second
    nodes: float
    watches: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=("recorders", "nodes", "watches"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--events", type=float, default=1e6, help="a second, of the whole fleet")
    parser.add_argument("--nodes", type=float, default=1e5)
    parser.add_argument("--watches", type=float, default=1e4)
    options = parser.parse_args()
    fleet = Fleet(options.events, options.nodes, options.watches)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    parts = {"recorders": _recorders, "nodes": _nodes, "watches": _watches}
    for part in options.parts:
        parts[part](fleet, options.seconds)
    return 0


def _recorders(fleet: Fleet, seconds: float) -> None:
    """Measure recorders that send ten events a second each, beside a sink worker and a log worker."""
    whole = fleet.events / EVENTS_A_RECORDER
    rows = [_run_recorders(int(whole / 100 * share), seconds) for share in SIZES]
    grown = _print("recorders, 10 events/s each", rows, whole)
    _print_need("Redis primaries", grown["Redis, cores"] / PRIMARY)
    _print_need("sink workers", grown["sink worker, cores"])
    _print_need("log workers", grown["log worker, cores"])


def _run_recorders(number: int, seconds: float) -> Cost:
    with _server() as url, ExitStack() as running:
        bus = open_bus(url, Settings())
        client = bus.client()
        running.callback(client.close)
        server = int(client.info("server")["process_id"])
        empty, base = client.info("memory")["used_memory"], client.info("clients")["connected_clients"]
        context = get_context("spawn")
        start, stop = context.Event(), context.Event()
        ready = context.Semaphore(0)
        share, rest = divmod(number, PROCESSES)
        children = [
            context.Process(target=_record, args=(url, n, share + (n < rest), ready, start, stop))
            for n in range(PROCESSES)
        ]
        for child in children:
            child.start()
        for _ in children:
            ready.acquire()
        figures = {"connections a recorder": (client.info("clients")["connected_clients"] - base) / number}
        figures["Redis, KB a recorder"] = (client.info("memory")["used_memory"] - empty) / number / 1024
        idle = _cores(seconds / 2, server)
        figures["Redis while all are idle, cores"] = idle[0]
        sink, log = (running.enter_context(_worker(url, kind)) for kind in ("sink", "log"))
        time.sleep(1)
        start.set()
        time.sleep(2)
        before = _counted(bus, client)
        used = _cores(seconds, server, sink.pid, log.pid, *(child.pid or 0 for child in children))
        events, entries = (after - count for after, count in zip(_counted(bus, client), before, strict=True))
        stop.set()
        for child in children:
            child.join()
        figures |= {"events/s": events / seconds, "events a batch": events / max(1, entries)}
        figures |= {"Redis, cores": used[0], "sink worker, cores": used[1], "log worker, cores": used[2]}
        figures["recorders, µs an event"] = sum(used[3:]) * seconds / events * 1e6
        return Cost(number, figures)


def _record(url: str, process: int, number: int, ready: Signal, start: Signal, stop: Signal) -> None:
    """Simulate *number* processes that record about objects of their own, evenly over time."""
    broadcasters = [EventBroadcaster(url, settings=Settings()) for _ in range(number)]
    recorders = [one.new_recorder("kubelet", f"node-{process}-{n}") for n, one in enumerate(broadcasters)]
    objects = [ObjectReference("Pod", "default", f"pod-{process}-{n}", f"u{n}", "v1") for n in range(number)]
    for recorder, about in zip(recorders, objects, strict=True):
        recorder.event(about, TYPE, REASON, message(0))
    for one in broadcasters:
        one.flush(60)
    ready.release()  # type: ignore[attr-defined]
    start.wait()
    began, done = time.perf_counter(), 0
    while not stop.is_set():
        due = int((time.perf_counter() - began) * number * EVENTS_A_RECORDER)
        while done < due:
            n = done % number
            recorders[n].event(objects[n], TYPE, REASON, message(done % 7))
            done += 1
        time.sleep(0.002)
    for one in broadcasters:
        one.shutdown()


def _counted(bus: Bus, client: object) -> tuple[int, int]:
    """Return the number of events that the sink has stored, and of entries of the stream."""
    keys = bus.keys[0]
    stored = int(client.hget(keys.meta, "events") or 0)  # type: ignore[attr-defined]
    return stored, int(client.xinfo_stream(keys.incoming)["entries-added"])  # type: ignore[attr-defined]


def _nodes(fleet: Fleet, seconds: float) -> None:
    """Measure nodes whose agents renew a lease every 10 s, beside a lifecycle worker."""
    rows = []
    for share in SIZES:
        number = int(fleet.nodes / 100 * share)
        with _server() as url:
            found = nodes.measure(url, number, seconds)
        history_s = nodes.HISTORY_BYTES / (found.change_bytes / seconds)
        figures = {"Redis, cores": found.redis_cores, "lifecycle worker, cores": found.worker_cores}
        rows.append(Cost(number, figures | {"seconds of changes in 8 MiB": history_s}))
    grown = _print("nodes", rows, fleet.nodes)
    _print_need("primaries for leases, which are all in partition 0", grown["Redis, cores"] / PRIMARY)


def _watches(fleet: Fleet, seconds: float) -> None:
    """Measure watches of one API worker: idle, told of an event, and while events of other namespaces pass."""
    rows = [_run_watches(max(10, int(fleet.watches / 100 * share)), seconds) for share in (1.0, 3.0, 10.0)]
    _print("watches of one API worker", rows, fleet.watches)


def _run_watches(number: int, seconds: float) -> Cost:
    with _server() as url, ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="eb"))
        worker = running.enter_context(api.worker(url, folder, prefix="eb"))
        running.enter_context(_worker(url, "sink"))
        before_kb = worker.memory_kb()
        sockets = [api.open_watch(worker.where) for _ in range(number)]
        for each in sockets:
            running.callback(each.close)
            each.recv(4096)
        figures = {"KB a watch": (worker.memory_kb() - before_kb) / number}
        broadcaster = running.enter_context(EventBroadcaster(url, settings=Settings(prefix="eb")))
        recorder = broadcaster.new_recorder("kubelet", "node-17")
        bursts = 20
        used_s = worker.cpu_s()
        for burst in range(bursts):
            recorder.event(ObjectReference("Pod", "default", f"p{burst}", "u", "v1"), TYPE, REASON, message(burst))
            for each in sockets:
                while b'"ADDED"' not in each.recv(1 << 16):
                    pass
        figures["ms of CPU for one event that all select"] = (worker.cpu_s() - used_s) * 1000 / bursts
        used_s, others, began = worker.cpu_s(), 0, time.perf_counter()
        while (now := time.perf_counter() - began) < seconds:
            while others < now * 1000:
                recorder.event(ObjectReference("Pod", "other", f"p{others}", "u", "v1"), TYPE, REASON, message(others))
                others += 1
            time.sleep(0.005)
        broadcaster.flush(60)
        time.sleep(0.5)
        figures["µs of CPU for one event of another namespace"] = (worker.cpu_s() - used_s) * 1e6 / others
        return Cost(number, figures)


def _cores(seconds: float, *pids: int) -> list[float]:
    """Return the share of a core that each process uses in *seconds*."""
    before = [cpu_of(pid) for pid in pids]
    time.sleep(seconds)
    return [(cpu_of(pid) - used) / seconds for pid, used in zip(pids, before, strict=True)]


def _print(what: str, rows: Sequence[Cost], whole: float) -> dict[str, float]:
    """Print the rows, the exponent of growth and what the whole fleet costs. Returns: the last, by name."""
    names = list(rows[0].figures)
    print(f"\n| {what} | {' | '.join(names)} |\n|--:|{'--:|' * len(names)}")
    for row in rows:
        print(f"| {row.size:,} | {' | '.join(f'{row.figures[name]:.3g}' for name in names)} |")
    exponents = {name: _exponent(rows, name) for name in names}
    print(f"| exponent | {' | '.join(f'{exponents[name]:.2f}' for name in names)} |")
    last = rows[-1]
    grown = {name: last.figures[name] * _growth(name, exponents[name], whole / last.size) for name in names}
    print(f"| {whole:,.0f}, computed | {' | '.join(f'{grown[name]:.3g}' for name in names)} |")
    return grown


def _growth(name: str, exponent: float, times: float) -> float:
    """Return the factor of a figure if the fleet grows *times*. A cost of a unit, as "KB a watch", stays as it is."""
    if " a " in name or " an " in name:
        return 1.0
    return math.pow(times, exponent if exponent < -0.5 else max(1.0, exponent))


def _exponent(rows: Sequence[Cost], name: str) -> float:
    """Return the power of the size with which the figure grows, between the first and the last row."""
    first, last = rows[0].figures[name], rows[-1].figures[name]
    if first <= 0 or last <= 0:
        return 0.0
    return math.log(last / first) / math.log(rows[-1].size / rows[0].size)


def _print_need(what: str, number: float) -> None:
    print(f"{what}: {math.ceil(number):,}")


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder))
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def _worker(url: str, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "eventbus", "worker", kind]
    environ = os.environ | {"EVENTBUS_REDIS_URL": url}
    running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(60)


if __name__ == "__main__":
    raise SystemExit(main())
