"""How fast one process records over HTTP, beside Redis: `python -m benchmarks.http_recording [events] [partitions]`.

A private server, an API worker as a process, one recorder in one thread, until the bus has everything.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Options, Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer

OBJECTS = 40


def main(events: int = 300_000, partitions: int = 1) -> None:
    print(f"{events:,} events, {partitions} partitions, load average {os.getloadavg()[0]:.1f}")
    for way in ("redis", "http", "unix socket"):
        with tempfile.TemporaryDirectory(prefix="eb") as folder:
            server = EmbeddedServer(Path(folder))
            try:
                measure(way, server.start(), Path(folder), events, partitions)
            finally:
                server.stop()


def measure(way: str, redis_url: str, folder: Path, events: int, partitions: int) -> None:
    """Record, and print the rate and what it cost."""
    settings = Settings(partitions=partitions, buffer_full=FullBuffer.WAIT, buffer_wait_s=60, flush_s=60)
    open_bus(redis_url, settings, options=Options(incoming_bytes=2**31))
    before_s = children_s()
    with target(way, redis_url, folder) as url, EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("bench", host="h")
        pods = [ObjectReference("Pod", "default", f"web-{i}", f"uid-{i}", "v1") for i in range(OBJECTS)]
        recorder.event(pods[0], "Normal", "Warm", "up")
        assert broadcaster.flush(30)
        cpu_s, began = time.process_time(), time.perf_counter()
        for i in range(events):
            recorder.eventf(pods[i % OBJECTS], "Normal", "Repeated", "message %d", i % 50)
        assert broadcaster.flush(60)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        assert not broadcaster.losses.counts
    print(f"{way:<12} {events / took_s:>9,.0f} events/s, {1e6 * cpu_s / events:5.1f} µs of CPU an event here", end="")
    print(f", {1e6 * (children_s() - before_s) / events:5.1f} in the API worker" if way != "redis" else "")


def children_s() -> float:
    """CPU of all processes that were started here and have ended, their start included."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@contextmanager
def target(way: str, redis_url: str, folder: Path) -> Iterator[str]:
    """What to give a broadcaster; an API worker runs meanwhile if it takes one."""
    if way == "redis":
        yield redis_url
        return
    path, port = folder / "api.sock", free_port()
    listen = f"unix:{path}" if way == "unix socket" else f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "eventbus", "worker", "api", "--listen", listen]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")}
    worker = subprocess.Popen(command, env=environ | {"EVENTBUS_REDIS_URL": redis_url}, stderr=subprocess.DEVNULL)
    try:
        wait_for(path if way == "unix socket" else port)
        yield f"http+unix:{path}" if way == "unix socket" else f"http://127.0.0.1:{port}"
    finally:
        worker.terminate()
        worker.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(where: Path | int) -> None:
    """Until somebody listens there."""
    for _ in range(600):
        family = socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET
        with socket.socket(family) as probe:
            if probe.connect_ex(str(where) if isinstance(where, Path) else ("127.0.0.1", where)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the API worker did not start")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
