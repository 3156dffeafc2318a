"""`eventbus get events` and `get suppressed` as processes, over events that went the whole way."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus
from eventbus.store.object_store import ObjectStore
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import Program, run
from tests.support.both_ways import BOTH
from tests.thin import one
from tests.waiting import eventually

WEB = ObjectReference("Pod", "default", "web-0", "uid-1", "v1", "", "spec.containers{web}")
SHOP = ObjectReference("Deployment", "shop", "cart")
NODE = ObjectReference("Node", "", "n1")


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100)


@pytest.fixture(params=one(BOTH))
def env(request: pytest.FixtureRequest, settings: Settings) -> Iterator[dict[str, str]]:
    with environment_of(request, settings) as env:
        yield env


@pytest.fixture
def broadcaster(settings: Settings) -> Iterator[EventBroadcaster]:
    """One that also runs the store's sink worker."""
    with EventBroadcaster(settings=settings) as made:
        made.start_recording_to_sink()
        yield made


def stored(bus: Bus, n: int) -> bool:
    client = bus.client()
    found = ObjectStore(bus, client).list()
    client.close()
    return len(found.items) == n


@pytest.fixture
def _three(broadcaster: EventBroadcaster, bus: Bus) -> None:
    """In three namespaces of metadata, recorded in the reverse of when they happened."""
    now = datetime.now(UTC)
    recorder = broadcaster.new_recorder("kubelet", host="node-1")
    recorder.event(WEB, "Warning", "BackOff", "back-off \x1b[31mrestarting\nfailed container\u202e")
    recorder.past_eventf(NODE, now - timedelta(minutes=30), "Normal", "Rebooted", "by hand")
    recorder.past_eventf(SHOP, now - timedelta(hours=5), "Normal", "ScalingReplicaSet", "Scaled up to %d", 3)
    broadcaster.flush()
    eventually(lambda: stored(bus, 3))


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


@pytest.mark.usefixtures("_three")
def test_the_table_is_kubectls_with_the_latest_last(env: dict[str, str]) -> None:
    listed = run("get", "events", "-A", env=env)
    header, *rows = listed.stdout.splitlines()
    assert columns(header) == ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]
    assert [columns(row)[0] for row in rows] == ["shop", "default", "default"]
    assert columns(rows[0])[1:] == ["5h", "Normal", "ScalingReplicaSet", "deployment/cart", "1", "Scaled up to 3"]
    assert columns(rows[1])[1:] == ["30m", "Normal", "Rebooted", "node/n1", "1", "by hand"]
    assert columns(rows[2])[2:] == [
        *("Warning", "BackOff", "pod/web-0", "1"),
        r"back-off \x1b[31mrestarting...",
    ]
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "No resources found in default namespace.\n"),
        (("-n", "shop"), "No resources found in shop namespace.\n"),
        (("-A",), "No resources found\n"),
        (("--types", "Warning"), "No resources found in default namespace.\n"),
        (("-o", "name"), ""),
    ],
)
def test_nothing_found_is_said_aside(env: dict[str, str], arguments: tuple[str, ...], said: str) -> None:
    listed = run("get", "events", *arguments, env=env)
    more = "An event is kept for 60m after it was last seen.\nNo sink worker is alive: start one with "
    more += "`eventbus worker sink`\n"
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", said + more if said else "")


def test_a_watch_shows_what_comes(env: dict[str, str], broadcaster: EventBroadcaster, bus: Bus, tmp_path: Path) -> None:
    recorder = broadcaster.new_recorder("kubelet")
    recorder.event(WEB, "Normal", "Pulled", "old")
    recorder.event(SHOP, "Normal", "Pulled", "elsewhere")
    broadcaster.flush()
    eventually(lambda: stored(bus, 2))
    with Program("get", "events", "-w", "--types", "normal", env=env, folder=tmp_path) as watch:
        eventually(lambda: "old" in watch.out)
        recorder.event(WEB, "Normal", "Started", "new")
        eventually(lambda: "new" in watch.out)
        recorder.event(WEB, "Warning", "BackOff", "not asked for")
        recorder.event(SHOP, "Normal", "Pulled", "elsewhere")
        recorder.event(WEB, "Normal", "Pulled", "old")
        eventually(lambda: watch.out.count("\n") == 4)
        watch.signal(signal.SIGINT)
        assert watch.wait() == 130
    assert [columns(line)[-1] for line in watch.out.splitlines()] == ["MESSAGE", "old", "new", "old"]
    assert watch.err == ""


def test_a_watch_that_lost_changes_lists_again_and_repeats_nothing(
    env: dict[str, str], broadcaster: EventBroadcaster, bus: Bus, tmp_path: Path, client: Any
) -> None:
    recorder = broadcaster.new_recorder("kubelet")
    recorder.event(WEB, "Normal", "Pulled", "before")
    broadcaster.flush()
    eventually(lambda: stored(bus, 1))
    with Program("get", "events", "-w", env=env, folder=tmp_path) as watch:
        eventually(lambda: "before" in watch.out)
        watch.signal(signal.SIGSTOP)
        for number in range(3):
            recorder.event(WEB, "Normal", "Pulled", f"meanwhile {number}")
        broadcaster.flush()
        eventually(lambda: stored(bus, 4))
        client.xtrim(bus.keys[0].changes_of("events"), maxlen=1, approximate=False)
        watch.signal(signal.SIGCONT)
        eventually(lambda: "meanwhile 2" in watch.out)
        recorder.event(WEB, "Normal", "Pulled", "after")
        eventually(lambda: "after" in watch.out)
    shown = [columns(line)[-1] for line in watch.out.splitlines()]
    assert sorted(shown) == sorted(["MESSAGE", "before", "meanwhile 0", "meanwhile 1", "meanwhile 2", "after"])


def test_a_deleted_event_is_not_shown_again(
    env: dict[str, str], broadcaster: EventBroadcaster, bus: Bus, tmp_path: Path, client: Any
) -> None:
    recorder = broadcaster.new_recorder("kubelet")
    recorder.event(WEB, "Normal", "Pulled", "gone")
    broadcaster.flush()
    eventually(lambda: stored(bus, 1))
    with Program("get", "events", "-w", env=env, folder=tmp_path) as watch:
        eventually(lambda: "gone" in watch.out)
        store = ObjectStore(bus, client)
        store.delete("default", store.list().items[0].metadata.name)
        recorder.event(WEB, "Normal", "Pulled", "next")
        eventually(lambda: "next" in watch.out)
    assert watch.out.count("gone") == 1


def test_what_was_held_back_is_shown_by_source(env: dict[str, str], broadcaster: EventBroadcaster, bus: Bus) -> None:
    recorder = broadcaster.new_recorder("kubelet")
    nothing = run("get", "suppressed", env=env)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    for _ in range(30):
        recorder.event(WEB, "Warning", "BackOff", "again")  # 25 are let through
    for number in range(12):
        recorder.event(SHOP, "Normal", "Pulled", f"image {number}")  # the 10th and later are folded
    broadcaster.flush()
    expected = [
        {"component": "kubelet", "kind": "Pod", "type": "Warning", "reason": "BackOff", "suppressed": 5},
        {"component": "kubelet", "kind": "Deployment", "type": "Normal", "reason": "Pulled", "aggregated": 3},
    ]
    zeros = {"suppressed": 0, "aggregated": 0, "not_created": 0, "evicted": 0}
    wanted = [zeros | row for row in expected]
    eventually(lambda: json.loads(run("get", "suppressed", "-o", "json", env=env).stdout) == wanted)
    header, first, second = run("get", "suppressed", env=env).stdout.splitlines()
    assert columns(header)[-4:] == ["SUPPRESSED", "AGGREGATED", "NOT CREATED", "EVICTED"]
    assert columns(first) == ["kubelet", "Pod", "Warning", "BackOff", "5", "0", "0", "0"]
    assert columns(second) == ["kubelet", "Deployment", "Normal", "Pulled", "0", "3", "0", "0"]
