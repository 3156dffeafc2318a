"""The HTTP API of one worker: lists, writes, idle watches. `python -m benchmarks.api [--watches 2000]`.

One worker, an embedded server and this client share the machine; what is measured is all three together.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import secrets
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from eventbus.broker.embedded.server import EmbeddedServer

#: Rates at which POSTs are due, where they are not sent as quickly as they are answered.
POSTS_PER_S = (1000, 2500)
TOKEN = secrets.token_hex(8)
EVENTS = "/api/v1/namespaces/default/events"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u1", "apiVersion": "v1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watches", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--large", type=int, default=10_000, help="events of the large list")
    options = parser.parse_args()
    wanted = options.watches + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, 1024), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder, "redis"))
        url = server.start()
        try:
            for measure in (posts, lists, watches):
                with worker(url, folder) as one:
                    measure(one, options)
            Path(folder, "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
            with worker(url, folder, "--tls", "--token-file", f"{folder}/tokens.csv") as one:
                idle_over_tls(one, options)
        finally:
            server.stop()


class Worker(NamedTuple):
    """An API worker that runs, and where it answers."""

    pid: int
    where: str

    def cpu_s(self) -> float:
        """CPU that it has used, of all its threads."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kb(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@contextmanager
def worker(url: str, folder: str, *options: str, prefix: str = "") -> Iterator[Worker]:
    """A worker of the bus with *prefix*, or of a bus of its own."""
    environ = {**os.environ, "EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": prefix or f"b{secrets.token_hex(4)}"}
    environ |= {"EVENTBUS_STATE_DIR": folder}
    words = [sys.executable, "-m", "eventbus", "worker", "api", "--listen", "127.0.0.1:0", *options]
    running = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        yield Worker(running.pid, urlsplit(_url(running)).netloc)
    finally:
        running.terminate()
        running.wait()


class Measured:
    """The CPU of a worker between `with` and its end, for each of *count*, which may be set inside."""

    def __init__(self, one: Worker) -> None:
        self._worker = one
        self.count = 1

    def __enter__(self) -> Measured:
        self._cpu_s, self._begun = self._worker.cpu_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.took_s = time.perf_counter() - self._begun
        self.cpu_ms = (self._worker.cpu_s() - self._cpu_s) * 1000 / self.count


def posts(one: Worker, options: argparse.Namespace) -> None:
    for rate in (None, *POSTS_PER_S):
        with Measured(one) as measured:
            took = _posts(one.where, options.seconds, 16, rate)
            measured.count = len(took)
        done, p50_ms = len(took) / measured.took_s, statistics.median(took) * 1000
        asked = "as many as go" if rate is None else f"{rate}/s are due"
        print(f"POST of an event, 16 connections, {asked}: {done:.0f}/s, p50 {p50_ms:.1f} ms", end="")
        print(f", {measured.cpu_ms:.2f} ms of CPU each")


def lists(one: Worker, options: argparse.Namespace) -> None:
    _fill(one.where, options.large)
    shapes = (("application/json", "JSON"), ("application/json;as=Table;v=v1;g=meta.k8s.io", "Table"))
    for size in (500, options.large):
        for accept, name in shapes:
            with Measured(one) as measured:
                took = _lists(one.where, options.seconds, accept, size)
                measured.count = len(took)
            median_ms = statistics.median(took) * 1000
            rate = len(took) / measured.took_s
            print(f"list of {size} as {name}: {rate:.1f}/s, {median_ms:.0f} ms, {measured.cpu_ms:.1f} ms of CPU each")


def watches(one: Worker, options: argparse.Namespace) -> None:
    count, writer = options.watches, get_context("fork").Pool(1)
    before = one.memory_kb()
    sockets = [open_watch(one.where) for _ in range(count)]
    for each in sockets:
        each.recv(4096)
    print(f"{count} idle watches: {(one.memory_kb() - before) / count:.1f} KB each")
    for burst in (1, 50):
        told: list[float] = []
        with Measured(one) as measured:
            for round_ in range(10):
                told.append(_tell(writer, one.where, sockets, f"b{burst}-{round_}", burst))
            measured.count = len(told)
        best, cpu_us = min(told), measured.cpu_ms * 1000 / burst / count
        rate = count * burst / best / 1e6
        print(f"{burst} events to all of them: {best * 1000:.0f} ms at best, {rate:.2f} M event x watch/s", end="")
        print(f", {cpu_us:.1f} us of CPU each")
    writer.terminate()
    for each in sockets:
        each.close()


def idle_over_tls(one: Worker, options: argparse.Namespace) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    before = one.memory_kb()
    sockets = [open_watch(one.where, trust) for _ in range(options.watches)]
    for each in sockets:
        each.recv(4096)
    print(f"{len(sockets)} idle watches over TLS: {(one.memory_kb() - before) / len(sockets):.1f} KB each")
    for each in sockets:
        each.close()


def _posts(where: str, seconds: float, connections: int, rate: float | None) -> list[float]:
    """How long each took, s: of all connections at once, or, with a *rate*, from the moment at which each was due.

    One thread that copies bytes and nothing more, so that the worker is measured and not its client."""
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: {where}\r\nContent-Type: application/json\r\nContent-Length: "
    host, _, port = where.rpartition(":")
    free = [socket.create_connection((host, int(port))) for _ in range(connections)]
    waiting, took = selectors.DefaultSelector(), []
    begun, sent = time.perf_counter(), 0
    while True:
        now = time.perf_counter()
        while free and now < begun + seconds and (rate is None or now >= begun + sent / rate):
            one, due = free.pop(), now if rate is None else begun + sent / rate
            body = json.dumps(_event(f"p{rate}.{sent}"))
            one.sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
            waiting.register(one, selectors.EVENT_READ, (one, due))
            sent += 1
        if len(free) == connections and now >= begun + seconds:
            break
        for key, _ in waiting.select(0.0005):
            one, due = key.data
            answer = one.recv(65536)
            assert answer.startswith(b"HTTP/1.1 201"), answer
            took.append(time.perf_counter() - due)
            waiting.unregister(one)
            free.append(one)
    for one in free:
        one.close()
    return took


def _lists(where: str, seconds: float, accept: str, size: int) -> list[float]:
    """How long each took, s."""
    connection, took, until = http.client.HTTPConnection(where), [], time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.perf_counter()
        connection.request("GET", f"/api/v1/namespaces/listed/events?limit={size}", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        took.append(time.perf_counter() - begun)
    connection.close()
    return took


def _tell(writer: Pool, where: str, sockets: list[socket.socket], name: str, burst: int) -> float:
    """Seconds from the first of *burst* writes, by another process, until every watch has all of them."""
    begun = time.perf_counter()
    written = writer.apply_async(_write_burst, (where, name, burst))
    for one in sockets:
        told, rest = 0, b""
        while told < burst:
            data = rest + one.recv(1 << 20)
            told, rest = told + data.count(b'"ADDED"'), data[-6:]
    took_s = time.perf_counter() - begun
    written.get()
    return took_s


def _write_burst(where: str, name: str, burst: int) -> None:
    """Write over 16 connections: one after the other in each, as many at once as there are."""
    connections = [http.client.HTTPConnection(where) for _ in range(min(burst, 16))]
    for first in range(0, burst, len(connections)):
        asked = connections[: burst - first]
        for number, connection in enumerate(asked, first):
            _ask_to_write(connection, "default", f"{name}-{number}")
        for connection in asked:
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201
    for connection in connections:
        connection.close()


def open_watch(where: str, trust: ssl.SSLContext | None = None) -> socket.socket:
    host, _, port = where.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    if trust is not None:
        made = trust.wrap_socket(made)
    made.sendall(f"GET {EVENTS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    return made


def _fill(where: str, count: int) -> None:
    connection = http.client.HTTPConnection(where)
    for number in range(count):
        _post(connection, "listed", f"e{number}")
    connection.close()


def _post(connection: http.client.HTTPConnection, namespace: str, name: str) -> None:
    _ask_to_write(connection, namespace, name)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 201


def _ask_to_write(connection: http.client.HTTPConnection, namespace: str, name: str) -> None:
    event = _event(name)
    event["metadata"] = {"name": name, "namespace": namespace}
    event["involvedObject"] = ABOUT | {"namespace": namespace}
    path = f"/api/v1/namespaces/{namespace}/events"
    connection.request("POST", path, json.dumps(event), {"Content-Type": "application/json"})


def _event(name: str) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "involvedObject": ABOUT,
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "type": "Warning",
        "count": 1,
        "source": {"component": "kubelet", "host": "node-1"},
    }


def _url(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr
    for line in worker.stderr:
        if "the API answers at " in line:
            threading.Thread(target=worker.stderr.read, daemon=True).start()
            return line.split("the API answers at ")[1].strip()
    raise SystemExit("the worker has not started")


if __name__ == "__main__":
    main()
