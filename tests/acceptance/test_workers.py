"""The workers as processes: they drain on SIGTERM, survive kill -9 and an absent Redis, and each uid is logged once."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis import ResponseError

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.workers.log_lines import uid_of_line
from tests.acceptance.programs import Program, environment, run
from tests.waiting import eventually

ABOUT = ObjectReference("Pod", "default", "web-0", "uid-1", "v1")


def record(broadcaster: EventBroadcaster, n: int, *, start: int = 0) -> None:
    recorder = broadcaster.new_recorder("test")
    for number in range(start, start + n):
        recorder.event(ABOUT, "Normal", "Tested", f"message {number}")


def uids(text: str) -> Counter[str]:
    found = [uid_of_line(line) for line in text.encode().split(b"\n")[:-1]]
    assert None not in found
    return Counter(uid for uid in found if uid)


def own_events(env: dict[str, str]) -> list[str]:
    """Reasons of what workers have said about themselves, the latest last."""
    listed = run("get", "events", "-n", "eventbus-system", "-o", "json", env=env)
    return [event["reason"] for event in json.loads(listed.stdout)["items"]]


def test_every_event_is_logged_with_its_uid_and_stored(
    env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path, settings: Settings
) -> None:
    record(broadcaster, 40)
    assert broadcaster.flush()
    with (
        Program("worker", "log", env=env, folder=tmp_path) as log,
        Program("worker", "log", env=env, folder=tmp_path) as other,
        Program("worker", "sink", env=env, folder=tmp_path) as sink,
    ):
        record(broadcaster, 40, start=40)
        eventually(lambda: (log.out + other.out).count("  message ") == 80)
        eventually(lambda: own_events(env).count("Starting") == 3)
        assert [program.stop() for program in (log, other, sink)] == [0, 0, 0]
    logged = uids(log.out + other.out)
    assert set(logged.values()) == {1}
    assert log.err.count("\n") == 2, log.err  # works on …, stops …
    assert re.search(r" works on \S+://\S+ \(prefix \S+, \d+ partitions?\)$", log.err, re.MULTILINE), log.err


def test_sigterm_drains_and_says_so_in_the_store(
    env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path, settings: Settings
) -> None:
    with Program("worker", "sink", env=env, folder=tmp_path) as sink:
        eventually(lambda: "works on" in sink.err)
        record(broadcaster, 2000)
        assert broadcaster.flush()
        assert sink.stop() == 0
    bus = open_bus(settings.redis_url, settings)
    client = bus.client()
    assert client.xpending(bus.keys[0].incoming, "sink")["pending"] == 0
    assert client.xinfo_consumers(bus.keys[0].incoming, "sink") == []
    client.close()
    with Program("worker", "sink", env=env, folder=tmp_path):
        eventually(lambda: "Stopping" in own_events(env))


@pytest.fixture
def full_pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that is full and that nobody reads: whoever writes to it hangs."""
    path = tmp_path / "nobody-reads"
    os.mkfifo(path)
    both_ends = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(both_ends, bytes(4096))
        yield path
    finally:
        os.close(both_ends)


@contextmanager
def hanging_worker(output: Path, env: dict[str, str], settings: Settings) -> Iterator[Program]:
    """A log worker that has been given an event, which it cannot write."""
    with Program("worker", "log", "--output", str(output), env=env, folder=output.parent) as log:
        with EventBroadcaster(settings=settings) as broadcaster:
            record(broadcaster, 1)
        bus = open_bus(settings.redis_url, settings)
        with bus.client() as client:
            eventually(lambda: "works on" in log.err)
            eventually(lambda: client.xpending(bus.keys[0].incoming, "log")["pending"], despite=ResponseError)
        yield log


def test_the_first_signal_asks_and_the_second_ends_at_once(
    env: dict[str, str], full_pipe: Path, settings: Settings
) -> None:
    patient = env | {"EVENTBUS_DRAIN_S": "3600"}
    with hanging_worker(full_pipe, patient, settings) as log:
        log.signal(signal.SIGTERM)
        eventually(lambda: "stops" in log.err)
        log.signal(signal.SIGTERM)
        assert log.wait() == 143


def test_a_drain_that_takes_too_long_is_cut_off(env: dict[str, str], full_pipe: Path, settings: Settings) -> None:
    with hanging_worker(full_pipe, env | {"EVENTBUS_DRAIN_S": "0.5"}, settings) as log:
        assert log.stop() == 1
        assert "not finished within 0.5 s" in log.err


def test_a_worker_waits_for_a_redis_that_is_away_and_goes_on_when_it_is_back(short_path: Path, prefix: str) -> None:
    server = EmbeddedServer(short_path / "s")
    env = environment(server.start(), prefix, worker_block_ms="100")
    server.stop()
    try:
        with Program("worker", "sink", env=env, folder=short_path) as sink:
            eventually(lambda: "waiting for Redis" in sink.err)
            server.start()
            eventually(lambda: "works on" in sink.err)
            eventually(lambda: own_events(env) == ["Starting"])
            server.stop()
            eventually(lambda: "group sink waits" in sink.err)
            server.start()
            eventually(lambda: {"LostRedis", "Reconnected"} <= set(own_events(env)))
            assert sink.stop() == 0
            assert sink.err.count("waiting for Redis") == 1
    finally:
        server.stop()


INTERRUPTED = """
import os, signal

class Passed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

Passed()
"""


def test_ctrl_c_ends_a_worker_that_is_still_imported(short_path: Path, prefix: str) -> None:
    """Where Python itself passes over what a handler raises."""
    (short_path / "interrupted.py").write_text(INTERRUPTED)
    env = environment(f"unix://{short_path}/nobody.sock", prefix) | {"PYTHONPATH": str(short_path)}
    assert run("worker", "api", "--listen", "127.0.0.1:0", "--import", "interrupted", env=env).returncode == 130


def test_a_worker_that_waits_for_redis_ends_at_the_first_signal(short_path: Path, prefix: str) -> None:
    env = environment(f"unix://{short_path}/nobody.sock", prefix)
    with Program("worker", "log", env=env, folder=short_path) as log:
        eventually(lambda: "waiting for Redis" in log.err)
        assert "start the server or correct EVENTBUS_REDIS_URL" in log.err
        log.signal(signal.SIGINT)
        assert log.wait() == 0


@pytest.mark.parametrize("command", [("worker", "log"), ("worker", "sink"), ("get", "events")])
def test_a_wrong_password_is_one_line_and_no_retry(command: tuple[str, ...], short_path: Path, prefix: str) -> None:
    server = EmbeddedServer(short_path / "s", config={"requirepass": "right"})
    env = environment(server.start(), prefix)
    try:
        for password in ("", "wrong"):
            ended = run(*command, env=env | {"EVENTBUS_REDIS_PASSWORD": password})
            assert ended.returncode == 2
            assert ended.stderr.startswith("error: ")
            assert ended.stderr.count("\n") == 1
            assert "EVENTBUS_REDIS_PASSWORD" in ended.stderr
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["sink", "agent"])
def test_a_running_worker_waits_while_its_password_is_refused(kind: str, short_path: Path, prefix: str) -> None:
    server = EmbeddedServer(short_path / "s")
    env = environment(server.start(), prefix, log_level="debug")
    try:
        with (
            make_client(env["EVENTBUS_REDIS_URL"]) as admin,
            Program("worker", kind, env=env, folder=short_path) as worker,
        ):
            eventually(lambda: "works on" in worker.err)
            admin.config_set("requirepass", "other")
            admin.client_kill_filter(_type="normal", skipme=True)
            eventually(lambda: "the options are not compared" in worker.err or "stops: finishing" in worker.err)
            assert "stops: finishing" not in worker.err
            admin.config_set("requirepass", "")
            assert worker.stop() == 0
    finally:
        server.stop()


def test_a_worker_with_other_options_refuses_to_start(env: dict[str, str]) -> None:
    assert run("options", "set", "burst=7", env=env).returncode == 0
    ended = run("worker", "sink", env=env | {"EVENTBUS_OPTIONS": '{"burst": 8}'})
    assert ended.returncode == 2
    assert "burst: bus 7, here 8" in ended.stderr
    for nonsense in ("{", '{"bursts": 8}', '{"burst": 0}'):
        assert run("worker", "sink", env=env | {"EVENTBUS_OPTIONS": nonsense}).returncode == 2


def test_running_workers_take_new_options_unless_they_insist(
    env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path
) -> None:
    with (
        Program("worker", "sink", env=env, folder=tmp_path) as sink,
        Program("worker", "log", env=env | {"EVENTBUS_OPTIONS": "{}"}, folder=tmp_path) as insisting,
    ):
        eventually(lambda: "works on" in sink.err and "works on" in insisting.err)
        assert run("options", "set", "burst=3", "qps=0.001", env=env).returncode == 0
        eventually(lambda: "burst 25 -> 3" in sink.err)
        assert insisting.wait() == 2
        assert "error: other options than the bus (burst: bus 3, here 25" in insisting.err
        recorder = broadcaster.new_recorder("test")
        for _ in range(10):
            recorder.event(ABOUT, "Normal", "Tested", "again and again")
        assert broadcaster.flush()
        eventually(lambda: counts_of_the_test(env) == {"suppressed": 7})
        assert sink.stop() == 0


def counts_of_the_test(env: dict[str, str]) -> dict[str, int]:
    rows = json.loads(run("get", "suppressed", "-o", "json", env=env).stdout)
    found = [row for row in rows if row["component"] == "test"]
    counted = ("suppressed", "aggregated", "not_created", "evicted")
    return {what: row[what] for row in found for what in counted if row[what]}


def test_the_reader_of_standard_output_may_leave(
    env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with Program("worker", "log", "--output", str(fifo), env=env, folder=tmp_path) as log:
        eventually(lambda: "works on" in log.err)
        os.close(reader)
        record(broadcaster, 1)
        assert log.wait() == 1
        assert "Traceback" not in log.err


def test_systemd_learns_that_a_worker_waits_for_redis_then_works_then_stops(
    env: dict[str, str], tmp_path: Path, short_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_path / "notify"))
        manager.settimeout(60)
        systemd = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000000"}
        away = env | systemd | {"EVENTBUS_REDIS_URL": f"unix://{short_path}/gone.sock"}
        with Program("worker", "sink", env=away, folder=tmp_path):
            assert [manager.recv(4096) for _ in range(2)] == [b"READY=1\nSTATUS=waits for Redis", b"WATCHDOG=1"]
        with Program("worker", "sink", env=env | systemd, folder=tmp_path) as sink:
            messages = iter(lambda: manager.recv(4096), b"STOPPING=1")
            assert next(message for message in messages if b"works on" in message).startswith(b"READY=1")
            assert next(messages) == b"WATCHDOG=1"
            assert sink.stop() == 0
            assert set(messages) <= {b"WATCHDOG=1"}


def test_the_exporter_serves_the_numbers_of_the_bus_and_reads_them_again(
    env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path
) -> None:
    with (
        Program("worker", "metrics", "--metrics-port", "127.0.0.1:0", env=env, folder=tmp_path) as exporter,
        Program("worker", "sink", env=env, folder=tmp_path),
    ):
        eventually(lambda: " of " in exporter.err.partition("on port ")[2])
        port = exporter.err.partition("on port ")[2].split()[0]
        record(broadcaster, 3)
        expected = {
            "eventbus_bus_up 1.0",
            'eventbus_group_workers{group="sink"} 1.0',
            'eventbus_group_lag_events{group="sink"} 0.0',
            'eventbus_occurrences_total{reason="Tested",type="Normal"} 3.0',
        }
        eventually(lambda: expected <= set(get_text(f"http://127.0.0.1:{port}/metrics").splitlines()))
        assert exporter.stop() == 0


def get_text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        text: str = reply.read().decode()
        return text
