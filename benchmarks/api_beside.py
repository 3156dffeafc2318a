"""The API worker beside a real API server, the same requests in one run. `python -m benchmarks.api_beside URL TOKEN`.

URL is that of a running kube-apiserver (https) with a user of TOKEN who may do everything; --pids are its process and
etcd's, for CPU and memory. Without URL it says how one is had, and does nothing. Both are asked in turns over TLS with
HTTP/1.1, so that neither has the machine's better minute.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import secrets
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.api import ABOUT, EVENTS, TOKEN, Worker, worker
from eventbus.broker.embedded.server import EmbeddedServer

MISSING = """no API server to compare with: give the URL and a token of a running one. tests/clients/build_kubernetes
compiles kube-apiserver; start it beside etcd as tests/support/kube_apiserver.py does."""
LISTED = 500


class Side(NamedTuple):
    """One of the two, and the processes that work for it."""

    name: str
    where: str
    token: str
    processes: Sequence[Worker]

    def cpu_s(self) -> float:
        return sum(process.cpu_s() for process in self.processes)

    def memory_kb(self) -> int:
        return sum(process.memory_kb() for process in self.processes)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.where, context=_trust(), timeout=60)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("token", nargs="?", default="")
    parser.add_argument("--pids", default="", help="of the real server and its etcd, with commas")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watches", type=int, default=200)
    options = parser.parse_args()
    if not options.url:
        sys.exit(MISSING)
    theirs = urlsplit(options.url).netloc
    real = [Worker(int(pid), theirs) for pid in options.pids.split(",") if pid]
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder, "redis"))
        url = server.start()
        try:
            Path(folder, "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
            with worker(url, folder, "--tls", "--token-file", f"{folder}/tokens.csv") as ours:
                redis = [Worker(server.pid, ours.where)] if server.pid else []
                sides = [
                    Side("eventbus", ours.where, TOKEN, [ours, *redis]),
                    Side("kube-apiserver", theirs, options.token, real),
                ]
                _compare(sides, options)
        finally:
            server.stop()


def _compare(sides: Sequence[Side], options: argparse.Namespace) -> None:
    print(f"load average {os.getloadavg()[0]:.1f}; in turns, the median of {options.rounds} rounds")
    for what, measure in (("POST of an event, 16 connections", _posts), (f"list of {LISTED}", _lists)):
        found: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(options.rounds):
            for side in sides:
                cpu_s = side.cpu_s()
                took = measure(side, options.seconds)
                cpu_ms = (side.cpu_s() - cpu_s) * 1000 / len(took)
                round_ = (len(took) / options.seconds, statistics.median(took) * 1000, cpu_ms)
                found.setdefault(side.name, []).append(round_)
        for name, rounds in found.items():
            rate, p50_ms, cpu_ms = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{what}: {name}: {rate:.0f}/s, p50 {p50_ms:.1f} ms, {cpu_ms:.2f} ms of CPU each")
    for side in sides:
        before = side.memory_kb()
        held = [_watch(side) for _ in range(options.watches)]
        time.sleep(1)
        print(f"{len(held)} idle watches: {side.name}: {(side.memory_kb() - before) / len(held):.1f} KB each")
        for connection in held:
            connection.close()
    for side in sides:
        print(f"memory: {side.name}: {side.memory_kb() / 1024:.0f} MB, of {len(side.processes)} processes")


def _posts(side: Side, seconds: float) -> list[float]:
    """How long each took, s."""
    took: list[float] = []
    until = time.monotonic() + seconds

    def write() -> None:
        connection = side.connection()
        while time.monotonic() < until:
            begun = time.perf_counter()
            _post(connection, side, f"p.{secrets.token_hex(8)}")
            took.append(time.perf_counter() - begun)
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _lists(side: Side, seconds: float) -> list[float]:
    """How long each took, s."""
    connection, took, until = side.connection(), [], time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.perf_counter()
        connection.request("GET", f"{EVENTS}?limit={LISTED}", headers=side.headers())
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        took.append(time.perf_counter() - begun)
    connection.close()
    return took


def _watch(side: Side) -> http.client.HTTPSConnection:
    connection = side.connection()
    connection.request("GET", f"{EVENTS}?watch=1&fieldSelector=metadata.name%3Dnone", headers=side.headers())
    answer = connection.getresponse()
    assert answer.status == 200
    return connection


def _post(connection: http.client.HTTPSConnection, side: Side, name: str) -> None:
    event = {
        "metadata": {"name": name},
        "involvedObject": ABOUT,
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "type": "Warning",
        "count": 1,
        "source": {"component": "kubelet", "host": "node-1"},
    }
    connection.request("POST", EVENTS, json.dumps(event), side.headers())
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 201, answer.status


def _trust() -> ssl.SSLContext:
    """Both have certificates of their own; what is measured is loopback."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


if __name__ == "__main__":
    main()
