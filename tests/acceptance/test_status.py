"""`eventbus status` and `eventbus group` as a person sees them: the bus quiet, busy, full, and away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventbus import EventBroadcaster, ObjectReference, Options, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import GroupPolicy
from tests.acceptance.programs import Program, environment, run
from tests.acceptance.terminal import Terminal, run_on_terminal
from tests.waiting import eventually


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, worker_block_ms="50")


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix), options=Options(incoming_bytes=2**20))


def record(bus: Bus, n: int) -> None:
    """Record *n* events, and wait until the bus has them."""
    with EventBroadcaster(bus.url, settings=Settings(prefix=bus.prefix, flush_s=0.1)) as broadcaster:
        recorder = broadcaster.new_recorder("test")
        for number in range(n):
            recorder.event(ObjectReference("Pod", "default", f"web-{number}"), "Normal", "Tested", "message")
        eventually(lambda: broadcaster.flush(60))


def group_line(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(name + " "))


def test_a_quiet_bus_fits_on_a_page_of_100_columns(env: dict[str, str], bus: Bus) -> None:
    code, terminal = run_on_terminal("status", env=env)
    assert code == 0
    assert f"prefix {bus.prefix}, 1 partition, options version 1" in terminal.text
    assert group_line(terminal.text, "sink") == ["sink", "WAIT", "0", "0", "0s", "0", "0", "-"]
    assert max(map(len, terminal.text.splitlines())) <= 100


def test_what_waits_and_who_works_is_shown(env: dict[str, str], bus: Bus, tmp_path: Path) -> None:
    record(bus, 12)
    assert group_line(run("status", env=env).stdout, "sink")[2:4] == ["0", "12"]
    with Program("worker", "sink", env=env, folder=tmp_path):
        eventually(lambda: group_line(run("status", env=env).stdout, "sink")[2:4] == ["1", "0"])

        def worked() -> object:  # also the worker's own event
            found = json.loads(run("status", "-o", "json", env=env).stdout)
            (sink,) = found["groups"]
            return found["counters"]["recorded"] >= 12 and sink["workers"][0]["alive"] and sink["lag"] == 0

        eventually(worked)


def test_it_is_drawn_again_and_again_until_ctrl_c(env: dict[str, str], bus: Bus) -> None:
    with Terminal("status", "-w", "--interval", "0.1", env=env) as terminal:
        terminal.wait_for("published    0")
        record(bus, 7)
        terminal.wait_for("published    7")
        terminal.interrupt()
        assert terminal.wait() == 130
    assert terminal.raw.count("\x1b[H\x1b[2J") >= 2
    assert "Traceback" not in terminal.text


def test_json_under_watch_is_a_line_each(env: dict[str, str], bus: Bus, tmp_path: Path) -> None:
    with Program("status", "-w", "--interval", "0.1", "-o", "json", env=env, folder=tmp_path) as program:
        eventually(lambda: program.out.count("\n") >= 2)
        lines = program.out.splitlines()[:2]
    assert [json.loads(line)["prefix"] for line in lines] == [bus.prefix] * 2


def test_under_watch_a_bus_that_is_away_is_waited_for(short_path: Path, prefix: str, tmp_path: Path) -> None:
    server = EmbeddedServer(short_path)
    url = server.start()
    server.stop()
    env = environment(url, prefix)
    try:
        with Program("status", "-w", "--interval", "0.1", env=env, folder=tmp_path) as program:
            eventually(lambda: program.err.count("error: ") >= 2)
            server.start()
            eventually(lambda: "published" in program.out)
        assert "Traceback" not in program.err
        server.stop()
        for words in (("get", "events", "-w"), ("events", "-w")):
            assert run(*words, env=env).returncode == 1, "as kubectl"
    finally:
        server.stop()


def test_a_group_is_deleted_when_asked_twice(env: dict[str, str], bus: Bus) -> None:
    client = bus.client()
    bus.open_partition(client, 0, "billing", GroupPolicy.WAIT, "0")
    client.close()
    record(bus, 3)
    assert "billing" in run("group", "list", env=env).stdout
    with Terminal("group", "delete", "billing", env=env) as terminal:
        terminal.wait_for("Delete group billing? It loses 3 unread events")
        terminal.press("n\n")
        assert terminal.wait() == 1
    assert run("group", "list", "-o", "name", env=env).stdout == "group/billing\ngroup/sink\n"
    with Terminal("group", "delete", "billing", env=env) as terminal:
        terminal.wait_for("unread events")
        terminal.press("y\n")
        assert terminal.wait() == 0
    listed = json.loads(run("group", "list", "-o", "json", env=env).stdout)
    assert [group["name"] for group in listed] == ["sink"]


def test_a_script_deletes_with_yes_and_without_a_terminal_nothing_goes(env: dict[str, str], bus: Bus) -> None:
    client = bus.client()
    bus.open_partition(client, 0, "billing", GroupPolicy.WAIT, "0")
    client.close()
    assert run("group", "delete", "billing", env=env).returncode == 1
    assert run("group", "delete", "billing", "--yes", env=env).stdout == "group/billing deleted\n"
    again = run("group", "delete", "billing", "--yes", env=env)
    assert (again.returncode, again.stderr) == (1, 'error: group "billing" not found; there are: sink\n')


def test_the_store_s_own_group_goes_only_by_force(env: dict[str, str], bus: Bus) -> None:
    refused = run("group", "delete", "sink", "--yes", env=env)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    deleted = run("group", "delete", "sink", "--yes", "--force", "-o", "json", env=env)
    assert (deleted.returncode, json.loads(deleted.stdout)) == (0, {"group": "sink", "deleted": True})


def test_a_group_whose_workers_live_stays(env: dict[str, str], bus: Bus, tmp_path: Path) -> None:
    with Program("worker", "log", env=env, folder=tmp_path):
        eventually(lambda: group_line(run("status", env=env).stdout + "log - -", "log")[2] == "1")
        refused = run("group", "delete", "log", "--yes", env=env)
    assert refused.returncode == 2
    assert "still alive" in refused.stderr
