"""Export workers as processes: killed, cut off and without their sink, every event ends there with its final count."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Settings
from eventbus.broker.bus import Bus
from eventbus.broker.health.export_status import export_status
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment, run
from tests.support.exporting import status_of
from tests.support.http_system import HttpSystem
from tests.thin import one_of_each
from tests.waiting import eventually


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, buffer_full=FullBuffer.WAIT, buffer_wait_s=60)


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, worker_block_ms="100")


@pytest.fixture
def broadcaster(settings: Settings) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(settings=settings) as made:
        yield made


def record(broadcaster: EventBroadcaster, objects: int) -> None:
    recorder = broadcaster.new_recorder("test")
    for number in range(objects):
        recorder.event(ObjectReference("Pod", "default", f"pod-{number}"), "Normal", "Tested", "hello")
    assert broadcaster.flush(60)


def stored(bus: Bus) -> dict[str, int]:
    """Name → count of what was recorded by `record`."""
    client = bus.client()
    try:
        found = ObjectStore(bus, client).list("default").items
        return {event.metadata.name: event.count for event in found}
    finally:
        client.close()


def held(system: HttpSystem) -> dict[str, int]:
    return {name: count for name, count in system.counts().items() if name.startswith("pod-")}


def lag_of(bus: Bus, name: str) -> int:
    client = bus.client()
    try:
        return next((status.lag for status in export_status(bus, client) if status.name == name), -1)
    finally:
        client.close()


def holder_pid(bus: Bus, name: str) -> int:
    """The process that exports to the sink, 0 if none does: a consumer's name ends in its pid and a random part."""
    holders = status_of(bus, name).holders
    return int(holders[0].rsplit("-", 2)[1]) if holders else 0


def export_over_http(system: HttpSystem, *, batch: int) -> tuple[str, ...]:
    words = ("worker", "export", "--from", "beginning", "--to", system.sink_url, "--name", "http")
    return (*words, "--batch", str(batch), "--take-over-s", "1.5")


def export_of_lines(lines: Path, env: dict[str, str], folder: Path) -> Program:
    words = ("worker", "export", "--from", "beginning", "--to", f"file:{lines}", "--name", "lines")
    return Program(*words, env=env, folder=folder)


def test_a_worker_whose_sink_is_down_stops_at_once_and_lets_the_next_one_begin(
    bus: Bus, env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path
) -> None:
    with ExitStack() as stack, HttpSystem() as system:
        system.down = True
        export = ("worker", "export", "--from", "beginning", "--to", system.sink_url, "--name", "http")
        stack.enter_context(Program("worker", "sink", env=env, folder=tmp_path))
        first = stack.enter_context(Program(*export, env=env, folder=tmp_path))
        record(broadcaster, 10)
        eventually(lambda: lag_of(bus, "http") >= 0 and status_of(bus, "http").parts[0].probes > 0)
        assert first.stop() == 0
        assert status_of(bus, "http").holders == ()
        system.down = False
        stack.enter_context(Program(*export, env=env, folder=tmp_path))
        eventually(lambda: held(system) == stored(bus))
        assert system.deliveries.most_common(1)[0][1] == 1


def test_a_worker_serves_metrics(bus: Bus, env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    arguments = ("--to", f"file:{lines}", "--name", "lines", "--metrics-port", "127.0.0.1:0")
    with Program("worker", "export", *arguments, env=env, folder=tmp_path) as worker:
        eventually(lambda: " of " in worker.err.partition("on port ")[2])
        port = worker.err.partition("on port ")[2].split()[0]
        labels = '{component="eventbus-export",group="export:lines",partition="0"}'
        eventually(lambda: f"eventbus_worker_leader{labels} 1.0" in scrape(port))
        with Program("worker", "sink", env=env, folder=tmp_path):
            record(broadcaster, 3)
            eventually(lambda: lines.exists() and lines.read_text("utf-8").count("Tested") == 3)
        eventually(lambda: f"eventbus_worker_pending{labels} 0.0" in scrape(port))
        assert "pod-" not in scrape(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as reply:
            assert reply.status == 200


def scrape(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        return str(reply.read().decode())


def test_what_will_not_do_is_said_at_once_with_the_cure(env: dict[str, str]) -> None:
    for arguments, problem in (
        (("--to", "nonsense"), "must begin with one of"),
        (("--to", "stdout:", "--repeats", "never"), "at-most-every=5m"),
        (("--to", "stdout:", "--match", 'typ="Warning"'), "did you mean 'type'"),
        (("--to", "stdout:", "--from", "yesterday"), "how long ago"),
        (("--to", "stdout:", "--from", "999999d"), "beginning"),
        (("--to", "https://[::1"), "cannot be read"),
        (("--to", "no-maker:"), "no maker of sinks"),
        (("--to", "postgresql://me:hunter2@host/db"), "EVENTBUS_POSTGRES_PASSWORD(_FILE)"),
        (("--to", "file:/no/such/folder/events.jsonl"), "no folder /no/such/folder"),
        (("--to", "https://localhost/x"), "EVENTBUS_WEBHOOK_ALLOW_HOSTS=localhost permits it"),
        ((), "EVENTBUS_EXPORT_TO"),
        (("--to", "stdout:", "--metrics-port", "x"), "host:port"),
    ):
        done = run("worker", "export", *arguments, env=env)
        assert done.returncode == 2
        assert problem in done.stderr
        assert "Traceback" not in done.stderr
        assert "hunter2" not in done.stderr


def test_a_matcher_that_nearly_matches_stored_events_is_named_at_the_start(
    env: dict[str, str], broadcaster: EventBroadcaster, bus: Bus, tmp_path: Path
) -> None:
    with Program("worker", "sink", env=env, folder=tmp_path):
        record(broadcaster, 3)
        eventually(lambda: len(stored(bus)) == 3)
    export = ("worker", "export", "--to", "stdout:", "--match", 'reason="tested"')
    with Program(*export, env=env, folder=tmp_path) as worker:
        eventually(lambda: 'reason "Tested" was seen 3 times; your matcher reason="tested" matches none' in worker.err)
        assert worker.stop() == 0


def test_status_shows_a_sink_and_one_without_a_worker_can_be_forgotten(
    bus: Bus, env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path
) -> None:
    lines = tmp_path / "events.jsonl"
    with (
        Program("worker", "sink", env=env, folder=tmp_path),
        export_of_lines(lines, env, tmp_path) as worker,
    ):
        record(broadcaster, 3)
        eventually(lambda: lag_of(bus, "lines") == 0 and lines.exists())
        refused = run("group", "delete", "export:lines", "--yes", env=env)
        assert (refused.returncode, "still alive" in refused.stderr) == (2, True)
        assert worker.stop() == 0
    assert f", and writes to file:{lines} as lines; a new sink begins with all stored events" in worker.err
    shown = run("status", env=env).stdout
    assert "no worker" in shown
    assert json.loads(run("status", "-o", "json", env=env).stdout)["sinks"][0]["name"] == "lines"
    assert run("group", "delete", "export:lines", "--yes", env=env).returncode == 0
    assert json.loads(run("status", "-o", "json", env=env).stdout)["sinks"] == []
    assert run("group", "delete", "export:lines", "--yes", env=env).returncode == 1


@pytest.mark.parametrize(
    "place",
    one_of_each(["kill:written:40", "stop:settled:3", "kill:settled:3", "kill:kept:3"], lambda place: place[:4]),
)
def test_whoever_dies_or_freezes_wherever_every_event_has_its_final_count(
    bus: Bus, env: dict[str, str], broadcaster: EventBroadcaster, tmp_path: Path, place: str
) -> None:
    with ExitStack() as stack, HttpSystem() as system:
        export = export_over_http(system, batch=20)
        stack.enter_context(Program("worker", "sink", env=env, folder=tmp_path))
        victim = stack.enter_context(Program(*export, env=env | {"EVENTBUS_CRASH": place}, folder=tmp_path))
        eventually(lambda: lag_of(bus, "http") >= 0 and holder_pid(bus, "http") == victim.pid)
        heir = stack.enter_context(Program(*export, env=env, folder=tmp_path))
        for _ in range(3):
            record(broadcaster, 200)
        eventually(lambda: holder_pid(bus, "http") == heir.pid)
        eventually(lambda: held(system) == stored(bus) and sum(held(system).values()) == 600)
        if place.startswith("stop"):
            before = held(system)
            victim.signal(signal.SIGCONT)
            eventually(lambda: "another worker has taken over" in victim.err)
            assert held(system) == before
            assert victim.stop() == 0
        repeated = {name: n for name, n in system.deliveries.items() if n > 1}
        # a worker that is not run for as long as a dead one loses the lease as well
        took_over = (victim.err + heir.err).count("took over from")
        assert len(repeated) <= 20 * took_over, "at most the batch that was in hand"
