"""`eventbus doctor` on servers that are well, badly configured, full, closed, away; the users of `eventbus acl`."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError

from eventbus import EventBroadcaster, ObjectReference, Options, Settings
from eventbus.broker.build import build
from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.function_library import LOAD_CURE
from eventbus.broker.health.status import read_status
from tests.acceptance.programs import Program, environment, run
from tests.acceptance.terminal import run_on_terminal
from tests.waiting import eventually

ROLES = ("producer", "reader", "worker", "metrics", "deploy", "admin")


@pytest.fixture
def server(short_path: Path) -> Iterator[EmbeddedServer]:
    """A server of this test's own, to be configured badly."""
    made = EmbeddedServer(short_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def env(server: EmbeddedServer, prefix: str) -> dict[str, str]:
    assert server.url
    return environment(server.url, prefix, worker_block_ms="50")


def configure(env: Mapping[str, str], **settings: str | int) -> None:
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        for name, value in settings.items():
            admin.config_set(name.replace("_", "-"), value)


def look(env: Mapping[str, str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the worst finding of each check."""
    ran = run("doctor", "-o", "json", *arguments, env=env)
    found = json.loads(ran.stdout)
    order = ["ok", "warning", "error"]
    assert ran.returncode == order.index(found["severity"])
    assert found["severity"] == max((one["severity"] for one in found["findings"]), key=order.index)
    worst: dict[str, dict[str, Any]] = {}
    for one in sorted(found["findings"], key=lambda one: order.index(one["severity"])):
        worst[one["check"]] = one
    for one in found["findings"]:
        assert bool(one["cure"]) == (one["severity"] != "ok"), one
    return ran.returncode, worst


def test_a_fresh_server_is_well_and_stays_untouched(env: dict[str, str]) -> None:
    code, found = look(env)
    assert code == 0, found
    assert "none yet" in found["bus"]["message"]
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        assert admin.dbsize() == 0
        assert admin.function_list() == []


def test_a_bus_with_its_workers_is_well(env: dict[str, str], tmp_path: Path) -> None:
    with Program("worker", "sink", env=env, folder=tmp_path):
        eventually(lambda: "sink worker alive" in look(env)[1].get("workers", {}).get("message", ""))
        assert look(env)[0] == 0


def test_the_embedded_server_is_started_and_its_disk_looked_at(short_path: Path, prefix: str) -> None:
    env = environment("", prefix, state_dir=str(short_path / "state"))
    try:
        code, found = look(env)
        assert code == 0
        assert str(short_path) in found["disk"]["message"]
    finally:
        EmbeddedServer(short_path / "state").stop()


@pytest.mark.parametrize(
    ("config", "check", "severity"),
    [
        ({"appendonly": "no", "save": ""}, "persistence", "error"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", "error"),
        ({"maxmemory": 1_000_000}, "memory", "error"),
    ],
)
def test_a_bad_configuration_is_named(
    env: dict[str, str], config: dict[str, str | int], check: str, severity: str
) -> None:
    open_bus(env["EVENTBUS_REDIS_URL"], Settings(prefix=env["EVENTBUS_PREFIX"]))
    configure(env, **config)
    assert look(env)[1][check]["severity"] == severity


def test_a_default_user_that_cannot_load_the_file_is_named(env: dict[str, str], tmp_path: Path) -> None:
    as_metrics = {**env, "EVENTBUS_REDIS_URL": make_user(env, "metrics", tmp_path)}
    configure(env, requirepass="shut")
    assert look(as_metrics)[1]["user"]["severity"] == "ok"
    with make_client(env["EVENTBUS_REDIS_URL"].replace("unix://", "unix://:shut@")) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "resetkeys")
        code, found = look(as_metrics)
        assert (code, found["user"]["severity"]) == (1, "warning")
        assert "a restart loses the events" in found["user"]["message"]
        assert "user default off ~* &* +@all" in found["user"]["cure"]
        admin.execute_command("CONFIG", "SET", "appendonly", "no")
        assert look(as_metrics)[1]["user"]["severity"] == "ok", "nothing is loaded then"


@pytest.mark.volume
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
@pytest.mark.parametrize("rights", ["", "~* &* +@all"], ids=["off alone", "off with its rights"])
def test_a_default_user_that_is_off_loses_the_bus_at_a_restart_only_where_doctor_says_so(
    short_path: Path, tmp_path: Path, prefix: str, rights: str
) -> None:
    """The page of production has the second line. Which servers lose the bus with the first, only trying tells."""
    users = tmp_path / "users.acl"
    users.write_text(f"user root on nopass ~* &* +@all\nuser default off {rights}\n")
    binary = Path(shutil.which("redis-server") or "")
    server = EmbeddedServer(short_path, binary=binary, config={"aclfile": str(users)})
    url = server.start().replace("unix://", "unix://root:any@")
    env = environment(url, prefix)
    try:
        open_bus(url, Settings(prefix=prefix))
        with make_client(url) as admin:
            kept = admin.dbsize()
        assert look(env)[1]["user"]["severity"] == ("ok" if rights else "warning")
        with make_client(url) as admin:
            admin.shutdown(save=False, nosave=True)
        server.stop()
        server.start()
        with make_client(url) as admin:
            eventually(admin.ping, despite=(BusyLoadingError,))
            lost = kept - admin.dbsize()
        assert look(env)[1]["persistence"]["severity"] == ("error" if lost else "ok")
        assert not (lost and rights)
    finally:
        with make_client(url) as admin:
            admin.shutdown(save=False, nosave=True)
        server.stop()


def test_a_server_that_has_refused_part_of_its_file_is_named(env: dict[str, str], server: EmbeddedServer) -> None:
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        admin.set("text", "x")
    server.stop()
    (file,) = server.directory.glob("*/appendonlydir/*.incr.aof")
    with file.open("ab") as appended:
        appended.write(b"*3\r\n$5\r\nLPUSH\r\n$4\r\ntext\r\n$1\r\nx\r\n")
    server.start()
    code, found = look(env)
    assert (code, found["persistence"]["severity"]) == (2, "error")
    assert "refused 1 commands when it loaded its append-only file" in found["persistence"]["message"]


def test_events_that_wait_without_a_worker_are_named(env: dict[str, str]) -> None:
    with EventBroadcaster(env["EVENTBUS_REDIS_URL"], settings=Settings(prefix=env["EVENTBUS_PREFIX"])) as broadcaster:
        broadcaster.new_recorder("test").event(ObjectReference("Pod", "default", "web-0"), "Normal", "Tested", "x")
        assert broadcaster.flush(60)
    code, found = look(env)
    assert (code, found["workers"]["severity"]) == (1, "warning")
    assert found["workers"]["cure"] == "eventbus worker sink"


def test_a_full_stream_is_named_with_who_holds_it(env: dict[str, str]) -> None:
    settings = Settings(prefix=env["EVENTBUS_PREFIX"], flush_s=0.1)
    bus = open_bus(env["EVENTBUS_REDIS_URL"], settings, options=Options(incoming_bytes=2**20))
    with bus.client() as client, EventBroadcaster(bus.url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("test")
        for number in range(400):
            recorder.event(
                ObjectReference("Pod", "default", f"web-{number}"), "Normal", "Tested", secrets.token_hex(5_000)
            )
            # A batch is small, so that the one that finds no room finds the stream nearly full.
            if number % 8 == 7:
                broadcaster.flush(2)
                if read_status(bus, client).counters["refused_full"]:
                    break
        else:
            pytest.fail("there was room for all of them")
    code, found = look(env)
    assert (code, found["stream"]["severity"]) == (2, "error")
    assert "group sink holds it" in found["stream"]["message"]


def test_dead_letters_idle_groups_and_exports_are_named(env: dict[str, str], tmp_path: Path) -> None:
    export = ("worker", "export", "--to", f"file:{tmp_path}/x.jsonl", "--name", "tried")
    with Program(*export, env=env, folder=tmp_path) as worker:
        eventually(lambda: "tried" in run("status", "-o", "json", env=env).stdout)
        assert worker.stop() == 0
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        root = f"{env['EVENTBUS_PREFIX']}:{{0}}"
        admin.xadd(f"{root}:dead", {"cause": "handler-failed", "group": "sink", "n": 1, "b": b"x", "at": 0})
    _, found = look(env)
    assert "tried has no worker" in found["exports"]["message"]
    assert "eventbus group delete export:tried" in found["exports"]["cure"]
    assert "1 entry lies there" in found["dead letter"]["message"]


@pytest.mark.parametrize(
    ("words", "check", "message", "cure"),
    [
        (("HSET", "BUS", "options", '{"burst": "many"}'), "bus", "cannot use", "`eventbus options set` mends them"),
        (("SET", "BUS", "x"), "bus", "has something else under a key", "or take another EVENTBUS_PREFIX"),
        (
            ("FUNCTION FLUSH",),
            "functions",
            "are not loaded",
            LOAD_CURE,
        ),
    ],
)
def test_a_spoilt_bus_has_its_cure(
    env: dict[str, str], words: tuple[str, ...], check: str, message: str, cure: str
) -> None:
    prefix = env["EVENTBUS_PREFIX"]
    open_bus(env["EVENTBUS_REDIS_URL"], Settings(prefix=prefix))
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        admin.execute_command(*[f"{prefix}:{{0}}:bus" if word == "BUS" else word for word in words])
    code, found = look(env)
    assert (code, found[check]["severity"]) == (2, "error")
    assert message in found[check]["message"]
    assert cure in found[check]["cure"]
    assert found[check]["cure"] not in found[check]["message"], "once is enough"


@pytest.mark.parametrize(
    ("url", "message", "cure"),
    [
        ("redis://127.0.0.1:1/0", "nothing listens there", "start the server or correct EVENTBUS_REDIS_URL"),
        ("http://127.0.0.1", "valid are redis://", "correct EVENTBUS_REDIS_URL"),
    ],
)
def test_a_connection_that_fails_has_the_cure_of_its_cause(
    env: dict[str, str], url: str, message: str, cure: str
) -> None:
    away = {**env, "EVENTBUS_REDIS_URL": url}
    code, found = look(away)
    assert (code, found["connection"]["severity"]) == (2, "error")
    assert json.loads(run("doctor", "-o", "json", env=away).stdout)["findings"][0]["check"] == "connection"
    assert message in found["connection"]["message"]
    assert cure in found["connection"]["cure"]


def test_nobody_who_fills_a_role_is_told_that_something_is_wrong(env: dict[str, str], tmp_path: Path) -> None:
    urls = {role: make_user(env, role, tmp_path) for role in ROLES}
    configure(env, requirepass="shut")
    for made in (False, True):
        if made:
            admin = env["EVENTBUS_REDIS_URL"].replace("unix://", "unix://:shut@")
            open_bus(admin, Settings(prefix=env["EVENTBUS_PREFIX"]))
        for role in ROLES:
            code, found = look({**env, "EVENTBUS_REDIS_URL": urls[role]}, "--role", role)
            assert code == 0, (role, made, found)
            if made and role == "producer":
                assert (
                    look({**env, "EVENTBUS_REDIS_URL": urls[role]}, "--role", "worker")[1]["acl"]["severity"] == "error"
                )
            if made and role in ("metrics", "deploy"):
                assert found["keys"]["message"].startswith("each has its type"), role


@pytest.mark.parametrize(
    ("changes", "check", "code"),
    [
        ({"EVENTBUS_REDIS_URL": "none"}, "connection", 1),
        ({"EVENTBUS_BUFFER_EVENTS": "many"}, "settings", 2),
        ({"EVENTBUS_PREFIX": "NO GOOD"}, "acl", 2),
    ],
)
def test_settings_that_cannot_be_used_are_findings_too(
    env: dict[str, str], changes: dict[str, str], check: str, code: int
) -> None:
    exit_code, found = look({**env, **changes})
    assert exit_code == code
    assert found[check]["severity"] != "ok"


def test_the_page_is_for_people(env: dict[str, str]) -> None:
    configure(env, appendfsync="no")
    code, terminal = run_on_terminal("doctor", env=env)
    assert code == 1
    assert "→ CONFIG SET appendfsync everysec" in terminal.text
    assert "\x1b[33mwarning\x1b[0m" in terminal.raw


def make_user(env: Mapping[str, str], role: str, folder: Path) -> str:
    """A user as `eventbus acl` prints it; returns its url."""
    secret = folder / f"{role}.password"
    secret.write_text(f"{role}-s3cret\n")
    ran = run("acl", "--role", role, "--user", role, "--password-file", str(secret), env=env)
    assert ran.returncode == 0, ran.stderr
    words = ran.stdout.split()
    assert words[:3] == ["ACL", "SETUSER", role]
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        assert admin.execute_command(" ".join(words[:2]), *words[2:])
    return env["EVENTBUS_REDIS_URL"].replace("unix://", f"unix://{role}:{role}-s3cret@")


def test_commands_run_as_the_users_of_their_roles(env: dict[str, str], tmp_path: Path) -> None:
    urls = {role: make_user(env, role, tmp_path) for role in ROLES}

    def as_role(role: str) -> dict[str, str]:
        return {**env, "EVENTBUS_REDIS_URL": urls[role]}

    record = ("record", "Pod/web-0", "--reason", "Failed", "--message", "no more disk", "--type", "Warning")
    assert run(*record, env=as_role("producer")).returncode != 0  # nobody has made the bus
    refused = run("options", "get", env=as_role("deploy"))
    assert (
        refused.returncode,
        LOAD_CURE in refused.stderr,
    ) == (2, True)
    assert run("functions", "load", env=as_role("deploy")).returncode == 2
    loaded = run("functions", "load", env=as_role("admin"))
    assert (loaded.returncode, loaded.stdout) == (0, f"build {build()} loaded\n"), loaded.stderr
    assert json.loads(run("functions", "load", "-o", "json", env=as_role("admin")).stdout)["loaded"] is False
    assert run("options", "get", env=as_role("deploy")).returncode == 0
    ran = run(*record, env=as_role("producer"))
    assert ran.returncode == 0, ran.stderr
    with Program("worker", "sink", env=as_role("worker"), folder=tmp_path):
        eventually(lambda: "no more disk" in run("describe", "pod/web-0", env=as_role("reader")).stdout)
        described = run("describe", "pod/web-0", env=as_role("reader"))
        assert "pods themselves are not shown, only their events" in described.stderr
        everything = run("get", "all", env=as_role("reader"))
        assert (everything.returncode, "left out: pods, configmaps, secrets" in everything.stderr) == (0, True)
        assert "no more disk" in everything.stdout
        why = run("why", "pod/web-0", env=as_role("reader"))
        assert (why.returncode, "Failed" in why.stdout) == (0, True), why.stderr
        assert "recorded" in run("status", env=as_role("metrics")).stdout
        assert run("doctor", "--role", "metrics", env=as_role("metrics")).returncode < 2
    for words in (("status",), ("group", "delete", "sink", "--yes", "--force")):
        refused = run(*words, env=as_role("reader"))
        assert refused.returncode == 2
        assert "role metrics" in refused.stderr


def test_without_a_password_the_line_is_refused_by_every_server(env: dict[str, str]) -> None:
    ran = run("acl", "--role", "reader", env=env)
    assert "SHA-256" in ran.stderr
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin, pytest.raises(Exception, match=r"(?i)error in acl setuser"):
        admin.execute_command("ACL SETUSER", *ran.stdout.split()[2:])


def test_a_file_of_users_is_read_at_start(env: dict[str, str], short_path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret")
    lines = [
        run("acl", "--role", role, "--password-file", str(secret), "--format", "aclfile", env=env).stdout
        for role in ROLES
    ]
    users = tmp_path / "users.acl"
    users.write_text("user default on nopass ~* &* +@all\n" + "".join(lines))
    server = EmbeddedServer(short_path / "other", config={"aclfile": str(users)})
    try:
        with make_client(server.start()) as admin:
            names = set(admin.acl_users())
    finally:
        server.stop()
    assert names == {"default", *(f"{env['EVENTBUS_PREFIX']}-{role}" for role in ROLES)}


def test_a_producer_s_url_for_the_bus_says_nothing_of_its_password(env: dict[str, str], tmp_path: Path) -> None:
    open_bus(env["EVENTBUS_REDIS_URL"], Settings(prefix=env["EVENTBUS_PREFIX"]))
    ran = run("doctor", env={**env, "EVENTBUS_REDIS_URL": make_user(env, "metrics", tmp_path)})
    assert "s3cret" not in ran.stdout + ran.stderr
