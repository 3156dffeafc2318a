"""Builds on one server: who uses which, what may go, and what the bus lets them write."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from eventbus.broker import build as build_module
from eventbus.broker import bus as bus_module
from eventbus.broker.build import build, library, library_name
from eventbus.broker.bus import Bus, open_bus, upgrade_format
from eventbus.broker.connection.connect import make_client
from eventbus.broker.function_library import delete_library, load, prune, read_announcements, read_libraries
from eventbus.broker.health.doctor import check_other_builds
from eventbus.broker.health.findings import Severity
from eventbus.broker.keys import bus_key
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.errors import ConfigError
from eventbus.model import formats
from eventbus.model.encoding import wire
from eventbus.model.encoding.wire import pack_events
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from eventbus.workers.opening import Opener
from tests.acceptance.programs import Program, environment, run
from tests.builders import make_reference
from tests.support.harness import own_server, settings_of, stored_events
from tests.waiting import eventually

OTHER = "0123abcd"


class World:
    """A server of its own, with a bus."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.settings = settings_of(prefix)
        self.bus: Bus = open_bus(url, self.settings)
        self.admin: Any = make_client(url)

    def load_other(self) -> None:
        self.admin.function_load(library().replace(build(), OTHER), replace=True)

    def announce(
        self, of: str, ago_s: float, *, what: str = "worker", database: int = 0, text: str = "3 0,1 w"
    ) -> None:
        now_s, _ = self.admin.time()
        self.admin.execute_command("SELECT", database)
        self.admin.hset(self.bus.keys[0].builds, f"{of}/{what}", f"{int((now_s - ago_s) * 1000)} {text}")
        self.admin.execute_command("SELECT", 0)

    def libraries(self) -> set[str]:
        return {each.name for each in read_libraries(self.admin)}


@pytest.fixture
def world(short_path: Path, prefix: str) -> Iterator[World]:
    with own_server(short_path) as server:
        made = World(str(server.url), prefix)
        yield made
        made.admin.close()


# -- who uses which --------------------------------------------------------------------------------------------------


def test_a_recorder_and_a_worker_announce_their_build(world: World, tmp_path: Path) -> None:
    with EventBroadcaster(world.url, settings=world.settings) as broadcaster:
        broadcaster.new_recorder("c").event(make_reference(), "Normal", "Tried", "m")
        assert broadcaster.flush(60)
    env, changes = environment(world.url, world.settings.prefix), world.bus.keys[0].changes_of("events")
    with Program("worker", "sink", env=env, folder=tmp_path) as worker:
        eventually(lambda: world.admin.xlen(changes))
        assert len(read_announcements(world.admin, world.bus.prefix)) == 2, "before it stores an event"
        assert worker.stop() == 0
    found = {each.role: each for each in read_announcements(world.admin, world.bus.prefix)}
    assert {each.build for each in found.values()} == {build()}
    assert all(each.in_use for each in found.values())
    assert (found["worker"].formats, found["worker"].codecs) == (formats.FORMATS, formats.CODECS)
    assert found["worker"].name.startswith("eventbus-sink ")


@pytest.mark.parametrize(
    ("announce", "left"),
    [
        (lambda world: None, False),
        (lambda world: world.announce(OTHER, 3600), False),
        (lambda world: world.announce(OTHER, 30), True),
        (lambda world: world.announce(OTHER, 30, what="recorder"), True),
        (lambda world: world.announce(OTHER, 30, database=3), True),
    ],
    ids=["by nobody", "an hour ago", "by a worker", "by a recorder", "on a bus in another database"],
)
def test_functions_of_another_build_go_unless_they_are_used(
    world: World, announce: Callable[[World], None], left: bool
) -> None:
    world.load_other()
    announce(world)
    prune(world.admin)
    assert world.libraries() == {library_name()} | ({library_name(OTHER)} if left else set())


def test_prune_names_who_uses_functions_and_force_deletes_them(world: World) -> None:
    env = environment(world.url, world.settings.prefix)
    world.load_other()
    world.announce(OTHER, 30, text="3 0,1 eventbus-sink host-7")
    refused = run("functions", "prune", env=env)
    assert refused.returncode == 1
    assert f"build {OTHER} is in use (worker eventbus-sink host-7 of bus {world.bus.prefix}" in refused.stderr
    tried = json.loads(run("functions", "prune", "--force", "--dry-run", "-o", "json", env=env).stdout)
    assert tried["wouldDelete"] == [library_name(OTHER)]
    assert len(world.libraries()) == 2
    assert run("functions", "prune", "--force", env=env).returncode == 0
    assert world.libraries() == {library_name()}


def test_doctor_names_the_functions_of_other_builds(world: World) -> None:
    assert list(check_other_builds(world.admin)) == []
    world.load_other()
    (unused,) = check_other_builds(world.admin)
    assert (unused.severity, unused.cure) == (Severity.WARNING, "eventbus functions prune")
    assert OTHER in unused.message
    world.announce(OTHER, 30, text="3 0,1 eventbus-sink host-7")
    (used,) = check_other_builds(world.admin)
    assert used.severity is Severity.OK
    assert "eventbus-sink host-7" in used.message


def test_up_loads_its_functions_on_its_own_server_and_prunes_others(short_path: Path, prefix: str) -> None:
    with own_server(short_path) as server:
        url = str(server.url)
        with make_client(url) as admin:
            admin.function_load(library().replace(build(), OTHER))
            env = environment("", prefix, state_dir=str(short_path))
            env.pop("EVENTBUS_REDIS_URL")
            with Program("up", env=env, folder=short_path) as up:
                eventually(lambda: {each.name for each in read_libraries(admin)} == {library_name()})
                up.stop()


# -- rights ----------------------------------------------------------------------------------------------------------


def test_rights_that_are_added_leave_a_user_what_it_has(world: World) -> None:
    env = environment(world.url, world.settings.prefix)

    def may(verb: str, of: str) -> bool:
        keys = world.bus.keys[0]
        words = ("FCALL", f"eb_{of}_{verb}", 1, keys.incoming)
        return bool(world.admin.execute_command("ACL", "DRYRUN", f"{world.bus.prefix}-producer", *words) == b"OK")

    both = run("acl", "--role", "producer", "--with-build", OTHER, env=env).stdout
    world.admin.execute_command(*shlex.split(both.replace("#SHA256-OF-THE-PASSWORD", ">secret")))
    assert may("publish", OTHER)
    assert may("publish", build())
    only = run("acl", "--role", "producer", env=env).stdout.replace(build(), OTHER)
    world.admin.execute_command(*shlex.split(only.replace("#SHA256-OF-THE-PASSWORD", ">secret")))
    assert not may("publish", build())
    added = run("acl", "--role", "producer", "--add", env=env)
    assert (added.stderr, "reset" in added.stdout) == ("", False)
    world.admin.execute_command(*shlex.split(added.stdout))
    assert may("publish", OTHER)
    assert may("publish", build())
    assert not may("trim", build())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with-build", "eb_*"), "is no id of a build"),
        (("--add", "--format", "aclfile"), "use --with-build"),
    ],
)
def test_what_acl_cannot_print_is_refused(embedded_url: str, prefix: str, words: tuple[str, ...], said: str) -> None:
    refused = run("acl", "--role", "producer", *words, env=environment(embedded_url, prefix))
    assert refused.returncode == 2
    assert said in refused.stderr


# -- what builds must agree on -----------------------------------------------------------------------------------------


@pytest.fixture
def later_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is of a build that knows format 4 besides, and one codec more."""
    for module in (build_module, bus_module):
        monkeypatch.setattr(module, "FORMATS", (3, 4), raising=False)
        monkeypatch.setattr(module, "CODECS", (0, 1, 2, 7), raising=False)


def held(world: World) -> tuple[bytes, bytes]:
    format_, codecs = world.admin.hmget(bus_key(world.bus.prefix), ["format", "codecs"])
    return format_, codecs


def test_a_later_build_opens_a_bus_as_it_is_and_upgrades_it_only_by_command(world: World, later_build: None) -> None:
    bus = open_bus(world.url, world.settings)
    bus.revalidate(world.admin)
    assert (bus.format, bus.codecs, held(world)) == (3, (0, 1, 2), (b"3", b"0,1,2"))
    assert upgrade_format(world.admin, bus, force=False) == (4, (0, 1, 2, 7))
    assert held(world) == (b"4", b"0,1,2,7")
    bus.revalidate(world.admin)
    assert (bus.format, bus.codecs) == (4, (0, 1, 2, 7))


def test_a_bus_that_a_later_build_makes_has_its_newest_format(world: World, prefix: str, later_build: None) -> None:
    made = open_bus(world.url, Settings(prefix=f"{prefix}-new"))
    assert (made.format, made.codecs) == (4, (0, 1, 2, 7))
    assert world.admin.hget(bus_key(made.prefix), "format") == b"4"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("3 0,1,2 w", True),
        ("3,4 0,1,2 w", True),
        ("3,4 0,1,2,7 w", False),
    ],
    ids=["lacks the format", "lacks the codec", "reads both"],
)
def test_an_upgrade_is_refused_while_a_worker_that_cannot_read_it_is_there(
    world: World, later_build: None, text: str, refused: bool
) -> None:
    world.announce(OTHER, 30, text=text)
    bus = open_bus(world.url, world.settings)
    if refused:
        with pytest.raises(ConfigError, match=f"cannot be read by build {OTHER}, worker w"):
            upgrade_format(world.admin, bus, force=False)
        assert held(world) == (b"3", b"0,1,2")
    assert upgrade_format(world.admin, bus, force=refused) == (4, (0, 1, 2, 7))


def test_a_build_refuses_a_format_that_it_does_not_know_in_one_line(world: World) -> None:
    world.admin.hset(bus_key(world.bus.prefix), "format", "4")
    with pytest.raises(ConfigError, match="the bus has format 4, this build reads and writes format 3: use a version"):
        open_bus(world.url, world.settings)
    with pytest.raises(ConfigError):
        world.bus.revalidate(world.admin)
    said = run("get", "events", env=environment(world.url, world.settings.prefix))
    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1


def test_workers_refuse_a_bus_with_a_codec_that_they_cannot_read_and_bury_nothing(world: World) -> None:
    opener = Opener(Settings(prefix=world.bus.prefix, redis_url=world.url), None, wait=lambda _s: False)
    world.admin.hset(bus_key(world.bus.prefix), "codecs", "0,1,7")
    with pytest.raises(ConfigError, match="may use codecs 0,1,7, and this build reads 0,1,2, not 7"):
        opener.open()
    with pytest.raises(ConfigError):
        opener.news(world.bus, world.admin)
    runner = sink_worker(bus=open_bus(world.url, world.settings), clock=SystemClock(), block_ms=20)
    runner.start()
    try:
        eventually(lambda: runner.loop_health()[0].counts["failures"] > 1)
    finally:
        runner.stop()
    assert world.admin.xlen(world.bus.keys[0].dead) == 0


def test_a_consumer_that_runs_when_a_codec_is_announced_leaves_its_batches_to_newer_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs the sink itself: no worker process looks for another codec."""
    monkeypatch.setattr(bus_module, "CODECS", (0,))
    monkeypatch.setattr(wire, "BASELINE_CODECS", (0,))
    world.admin.hset(bus_key(world.bus.prefix), "codecs", "0")
    runner = sink_worker(bus=open_bus(world.url, world.settings), clock=SystemClock(), block_ms=20)
    runner.start()
    try:
        eventually(lambda: runner.loop_health()[0].ready)
        world.admin.hset(bus_key(world.bus.prefix), "codecs", "0,1")
        with EventBroadcaster(world.url, settings=world.settings) as broadcaster:
            recorder = broadcaster.new_recorder("c")
            for _ in range(20):
                recorder.event(make_reference(), "Normal", "Tried", "the same long message " * 10)
            assert broadcaster.flush(60)
        dead = world.bus.keys[0].dead
        eventually(lambda: runner.loop_health()[0].counts["failures"] > 1 or world.admin.xlen(dead))
        assert world.admin.xlen(dead) == 0
        monkeypatch.undo()
        eventually(lambda: sum(event.count for event in stored_events(world.bus)) == 20)
    finally:
        runner.stop()
    assert world.admin.xlen(dead) == 0


def test_a_producer_uses_only_codecs_that_the_bus_names_or_those_of_every_build(world: World) -> None:
    key, events = bus_key(world.bus.prefix), [b"x" * 200] * 8
    for said, codec in ((None, 1), (b"many", 1), (b"1,7", 1), (b"0,1", 1), (b"0", 0)):
        world.admin.hdel(key, "codecs")
        if said is not None:
            world.admin.hset(key, "codecs", said)
        assert pack_events(events, open_bus(world.url, world.settings).codecs).codec == codec, said
    with EventBroadcaster(world.url, settings=world.settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        for _ in range(64):
            recorder.event(make_reference(), "Normal", "Tried", "the same long message " * 10)
        assert broadcaster.flush(60)
    bodies = [fields[b"b"] for _, fields in world.admin.xrange(world.bus.keys[0].incoming)]
    assert {msgpack.unpackb(body)[3] for body in bodies} == {0}


def test_a_library_that_is_deleted_twice_or_loaded_twice_is_no_error(world: World) -> None:
    world.load_other()
    delete_library(world.admin, library_name(OTHER))
    delete_library(world.admin, library_name(OTHER))
    assert load(world.admin) is False
