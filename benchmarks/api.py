"""The HTTP API of one worker: lists, writes, idle watches. `python -m benchmarks.api [--watches 500]`.

One worker, an embedded server and this client share the machine; what is measured is all three together.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from eventbus.broker.embedded.server import EmbeddedServer

EVENTS = "/api/v1/namespaces/default/events"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u1", "apiVersion": "v1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watches", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    wanted = options.watches + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, 1024), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder, "redis"))
        url = server.start()
        environ = {**os.environ, "EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": f"b{secrets.token_hex(4)}"}
        words = [sys.executable, "-m", "workers", "worker", "api", "--listen", "127.0.0.1:0"]
        worker = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)
        try:
            measure(worker, _url(worker), options.watches, options.seconds)
        finally:
            worker.terminate()
            worker.wait()
            server.stop()


def measure(worker: subprocess.Popen[str], url: str, watches: int, seconds: float) -> None:
    where = urlsplit(url).netloc
    rate, p50_ms = posts(where, seconds, 16)
    print(f"POST of an event, 16 connections: {rate:.0f}/s, p50 {p50_ms:.1f} ms")
    _fill(where, 500)
    for accept, name in (("application/json", "JSON"), ("application/json;as=Table;v=v1;g=meta.k8s.io", "Table")):
        print(f"list of 500 as {name}: {lists(where, seconds, accept):.0f}/s")
    before = _memory_kb(worker.pid)
    sockets = [_watch(where) for _ in range(watches)]
    for one in sockets:
        one.recv(4096)
    each = (_memory_kb(worker.pid) - before) / watches
    print(f"{watches} idle watches: {each:.1f} KB each")
    print(f"one event to all of them: {fan_out(where, sockets) * 1000:.0f} ms")
    for one in sockets:
        one.close()


def posts(where: str, seconds: float, connections: int) -> tuple[float, float]:
    """How many a second, and the median of how long one took, ms."""
    took: list[float] = []
    until = time.monotonic() + seconds

    def write(number: int) -> None:
        connection, count = http.client.HTTPConnection(where), 0
        while time.monotonic() < until:
            count += 1
            body = json.dumps(_event(f"p{number}.{count}"))
            begun = time.perf_counter()
            connection.request("POST", EVENTS, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, answer.status
            took.append(time.perf_counter() - begun)
        connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(took) / seconds, statistics.median(took) * 1000


def lists(where: str, seconds: float, accept: str) -> float:
    connection, count, until = http.client.HTTPConnection(where), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        connection.request("GET", "/api/v1/namespaces/listed/events?limit=500", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        count += 1
    connection.close()
    return count / seconds


def fan_out(where: str, sockets: list[socket.socket]) -> float:
    """Seconds from the write until the last watch has it."""
    begun = time.perf_counter()
    _post(where, "default", "told")
    for one in sockets:
        assert b"told" in one.recv(65_536)
    return time.perf_counter() - begun


def _watch(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    version = "watch=1&fieldSelector=metadata.name%3Dtold"
    made.sendall(f"GET {EVENTS}?{version} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return made


def _fill(where: str, count: int) -> None:
    for number in range(count):
        _post(where, "listed", f"e{number}")


def _post(where: str, namespace: str, name: str) -> None:
    connection = http.client.HTTPConnection(where)
    event = _event(name)
    event["metadata"] = {"name": name, "namespace": namespace}
    event["involvedObject"] = ABOUT | {"namespace": namespace}
    path = f"/api/v1/namespaces/{namespace}/events"
    connection.request("POST", path, json.dumps(event), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 201
    connection.close()


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


def _memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _url(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr
    for line in worker.stderr:
        if "the API answers at " in line:
            threading.Thread(target=worker.stderr.read, daemon=True).start()
            return line.split("the API answers at ")[1].strip()
    raise SystemExit("the worker has not started")


if __name__ == "__main__":
    main()
