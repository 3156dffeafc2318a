"""`eventbus record` and `eventbus options` as processes: strict, quiet, with the right exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eventbus import Event, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.health.status import has_worker
from eventbus.broker.keys import bus_key
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.util.clock import SystemClock
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import environment, run
from tests.support.both_ways import BOTH
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture(params=one(BOTH))
def env(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> Iterator[dict[str, str]]:
    with environment_of(request, Settings(redis_url=embedded_url, prefix=prefix)) as found:
        yield found


@pytest.fixture
def redis_env(embedded_url: str, prefix: str) -> dict[str, str]:
    """Of commands that need Redis."""
    return environment(embedded_url, prefix)


def queued(client: Any, bus: Bus) -> list[Event]:
    batches = [unpack_batch(fields[b"b"]) for _, fields in client.xrange(bus.keys[0].incoming)]
    return [unpack_event(packed) for batch in batches for packed in batch.events]


def test_an_event_is_in_redis_when_the_command_ends(env: dict[str, str], client: Any, bus: Bus) -> None:
    arguments = ("--type", "Warning", "--reason", "BackOff", "--message", "ré\nstarting", "--component", "cron")
    ended = run("record", "Pod/web-0", "-n", "shop", *arguments, "--annotation", "a=b=c", "-q", env=env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    (event,) = queued(client, bus)
    about = event.involved_object
    assert (about.kind, about.namespace, about.name) == ("Pod", "shop", "web-0")
    assert (event.type, event.reason, event.message) == ("Warning", "BackOff", "ré\nstarting")
    assert (event.source.component, event.metadata.annotations, event.count) == ("cron", {"a": "b=c"}, 1)
    assert event.first_timestamp == event.last_timestamp


def test_a_type_is_known_in_any_case_and_an_odd_reason_is_told(env: dict[str, str], client: Any, bus: Bus) -> None:
    ended = run("record", "Pod/web-0", "--type", "warning", "--reason", "not camel", "--message", "", "-q", env=env)
    assert ended.returncode == 0
    assert ended.stderr == "warning: reason 'not camel' is not CamelCase, like BackOff; programs select by it\n"
    assert [(event.type, event.reason) for event in queued(client, bus)] == [("Warning", "not camel")]


def test_a_message_that_is_too_long_is_cut_with_a_warning(env: dict[str, str], client: Any, bus: Bus) -> None:
    ended = run("record", "Pod/web-0", "--reason", "Told", "--message", "é" * 20_000, "-q", env=env)
    assert ended.returncode == 0
    assert ended.stderr == "warning: the message has more bytes than an event can hold (16 KiB) and is cut\n"
    (event,) = queued(client, bus)
    assert (event.message[:1], event.message[-2:]) == ("é", "é…")


def test_it_may_say_so_and_be_about_another_time_and_a_cluster_scoped_object(
    env: dict[str, str], client: Any, bus: Bus
) -> None:
    at = "2026-01-02T03:04:05+01:00"
    ended = run("record", "node/n1", "-n", "", "--reason", "R", "--message", "m", "--at", at, "-qv", env=env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "event recorded\n")
    (event,) = queued(client, bus)
    assert event.first_timestamp == event.last_timestamp
    assert event.first_timestamp is not None
    assert event.first_timestamp.isoformat() == "2026-01-02T02:04:05+00:00"
    assert (event.involved_object.namespace, event.metadata.namespace) == ("", "default")


def test_a_line_says_that_no_worker_stores_the_event(redis_env: dict[str, str], bus: Bus) -> None:
    words = ("record", "pod/web-0", "--reason", "R", "--message", "m")
    hint = "The event is not stored yet; no sink worker is alive: start one with `eventbus worker sink`\n"
    assert run(*words, env=redis_env).stderr == hint
    assert run(*words, "--quiet", env=redis_env).stderr == ""
    with bus.client() as client:
        worker = sink_worker(bus=bus, clock=SystemClock(), block_ms=100)
        worker.start()
        try:
            eventually(lambda: has_worker(client, bus.keys[0], "sink"))
            assert run(*words, env=redis_env).stderr == ""
        finally:
            worker.stop(30)
    assert run(*words, env=redis_env).stderr == hint


def test_an_event_that_redis_does_not_take_in_time_is_not_called_recorded(short_path: Path) -> None:
    server = EmbeddedServer(short_path / "s")
    settings = Settings(redis_url=server.start())
    env = environment(settings.redis_url, "eb", flush_s="2")
    bus = open_bus(settings.redis_url, settings)
    client = bus.client()
    try:
        # Full: the stream's bytes are at their bound, and the sink that holds it is not running.
        client.hset(bus.keys[0].incoming_meta, "bytes", bus.options.incoming_bytes)
        ended = run("record", "pod/web-0", "--reason", "R", "--message", "m", "-v", env=env)
        assert ended.returncode == 1
        full = "the stream of partition 0 is full: group 'sink' holds it; start its workers"
        assert f"error: not recorded: Redis did not accept the event within 2 s: {full}; try again" in ended.stderr
        assert "event recorded" not in ended.stderr
        assert queued(client, bus) == []
    finally:
        client.close()
        server.stop()


def test_options_are_shown_and_changed_for_all(redis_env: dict[str, str]) -> None:
    before = json.loads(run("options", "get", "-o", "json", env=redis_env).stdout)
    assert (before["version"], before["options"]["burst"]) == (1, 25)
    ended = run("options", "set", "burst=50", "exempt_types=Warning", env=redis_env)
    assert (ended.returncode, ended.stdout) == (0, "burst=50\nexempt_types=Warning\noptions version 2\n")
    after = json.loads(run("options", "get", "-o", "json", env=redis_env).stdout)
    assert after == {"version": 2, "options": before["options"] | {"burst": 50, "exempt_types": ["Warning"]}}
    assert "nothing to change" in run("options", "set", "burst=50", env=redis_env).stdout
    told = json.loads(run("options", "set", "burst=50", "-o", "json", env=redis_env).stdout)
    assert told == {"version": 2, "changed": False, "options": after["options"]}
    table = run("options", "get", env=redis_env).stdout
    assert table.splitlines()[0].split() == ["OPTION", "VALUE", "DEFAULT"]
    assert table.splitlines()[1].split() == ["burst", "50", "25"]
    assert table.endswith("options version 2\n")


def test_options_that_are_not_valid_are_shown_and_can_be_mended(
    redis_env: dict[str, str], client: Any, bus: Bus
) -> None:
    assert run("options", "set", "burst=50", env=redis_env).returncode == 0
    client.hset(bus_key(bus.prefix), "options", b'{"burst":50,"maxEvents":0,"qps":-1}')
    refused = run("status", env=redis_env)
    assert refused.returncode == 2
    assert "the bus holds options that this version cannot use (option" in refused.stderr
    assert "`eventbus options set` mends them" in refused.stderr
    shown = run("options", "get", env=redis_env)
    assert ["max_events", "0", "10"] in [line.split() for line in shown.stdout.splitlines()]
    assert (shown.returncode, "max_events must be at least 1" in shown.stderr) == (2, True)
    assert run("options", "set", "burst=51", env=redis_env).returncode == 2
    mended = run("options", "set", "max_events=10", "qps=0.000001", env=redis_env)
    assert (mended.returncode, mended.stdout.splitlines()[-1]) == (0, "options version 3")
    assert run("options", "get", env=redis_env).returncode == 0
    assert run("status", env=redis_env).returncode == 0


@pytest.mark.parametrize("pairs", [("burst=-1",), ("burst=50", "nonsense=1"), ("burst",), ("burst=1", "burst=2"), ()])
def test_wrong_options_change_nothing(redis_env: dict[str, str], pairs: tuple[str, ...]) -> None:
    ended = run("options", "set", *pairs, env=redis_env)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert json.loads(run("options", "get", "-o", "json", env=redis_env).stdout)["version"] == 1


def test_options_set_at_the_same_time_are_all_set(redis_env: dict[str, str]) -> None:
    pairs = ["burst=31", "max_events=32", "max_interval_s=33", "hold_s=34"]
    with ThreadPoolExecutor(4) as pool:
        assert [
            ended.returncode for ended in pool.map(lambda pair: run("options", "set", pair, env=redis_env), pairs)
        ] == [0] * 4
    found = json.loads(run("options", "get", "-o", "json", env=redis_env).stdout)
    assert found["version"] == 5
    assert pairs == [f"{name}={found['options'][name]}" for name in ("burst", "max_events", "max_interval_s", "hold_s")]
