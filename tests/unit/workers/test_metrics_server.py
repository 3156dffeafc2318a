"""A worker's port: metrics in Prometheus' own format, liveness and readiness."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eventbus.broker.build import build_info
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import ConfigError
from eventbus.workers.metrics_server import HANGS_AFTER_S, MetricsServer, liveness, parse_address, readiness
from tests.waiting import PATIENCE_S


def loop_health(partition: int = 0, *, ready: bool = True, last_progress: float = 1000.0) -> LoopHealth:
    return LoopHealth(
        group="export:file",
        partition=partition,
        last_progress=last_progress,
        ready=ready,
        counts={"written": 7, "unheard_of": 1},
        gauges={"pending": 2},
    )


@contextmanager
def serving(*found: LoopHealth) -> Iterator[str]:
    server = MetricsServer("127.0.0.1:0", component="eventbus-export", loop_health=lambda: found)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_can_be_parsed_and_have_only_bounded_labels() -> None:
    with serving(loop_health(0), loop_health(1)) as url:
        code, text = get(f"{url}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert code == 200
    written = families["eventbus_worker_written"]
    assert [(sample.name, sample.labels["partition"], sample.value) for sample in written.samples] == [
        ("eventbus_worker_written_total", "0", 7),
        ("eventbus_worker_written_total", "1", 7),
    ]
    ours = [sample for name, family in families.items() if name.startswith("eventbus") for sample in family.samples]
    labels = {label for sample in ours if sample.name != "eventbus_build_info" for label in sample.labels}
    assert labels == {"component", "group", "partition"}
    (build,) = families["eventbus_build_info"].samples
    assert build.labels == {"version": version("eventbus"), "build": build_info()["build"], "python": python_version()}
    assert "process_cpu_seconds" in families
    assert "unheard_of" not in text


def test_the_health_of_the_loops_is_on_the_same_port() -> None:
    with serving(loop_health(ready=False, last_progress=0.0)) as url:
        assert get(f"{url}/readyz") == (503, "export:file, partition 0: waits for Redis\n")
        code, text = get(f"{url}/livez")
        assert (code, "no sign for" in text) == (503, True)
        assert get(f"{url}/elsewhere")[0] == 404


def test_a_worker_lives_while_its_loops_come_round_and_is_ready_with_redis() -> None:
    found, now = [loop_health()], 1000.0 + HANGS_AFTER_S
    assert liveness(found, now) == (True, "ok")
    assert readiness(found, draining=False) == (True, "ok")
    found.append(loop_health(1, ready=False, last_progress=999.0))
    assert liveness(found, now)[0] is False
    assert readiness(found, draining=False) == (False, "export:file, partition 1: waits for Redis")
    assert liveness([], now) == (True, "ok")
    assert readiness([], draining=False) == (False, "starts")
    assert readiness([], draining=True) == (False, "stops")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9108", ("127.0.0.1", 9108)),
        ("0.0.0.0:9108", ("0.0.0.0", 9108)),
        (":9108", ("", 9108)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "host", "1.2.3.4:", "70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_address(text)


def test_a_port_that_is_taken_is_refused() -> None:
    with serving() as url, pytest.raises(ConfigError, match="in use"):
        MetricsServer(f"127.0.0.1:{url.rpartition(':')[2]}", component="x", loop_health=lambda: ())


@pytest.mark.parametrize(("address", "bound"), [("0", "127.0.0.1"), ("0.0.0.0:0", "0.0.0.0"), (":0", "0.0.0.0")])
def test_a_port_alone_is_open_to_this_machine_only(address: str, bound: str) -> None:
    server = MetricsServer(address, component="x", loop_health=lambda: ())
    try:
        assert listening(server.port) == {bound}
    finally:
        server.stop()


def listening(port: int) -> set[str]:
    """The IPv4 addresses that somebody listens on at *port*, as the kernel has them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    found = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {
        socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder)) for address, at in found if int(at, 16) == port
    }
