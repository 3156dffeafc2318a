"""Two builds on one bus: a fleet is upgraded and rolled back under load, in the order of docs/production.md.

The other build is another code tree, or a wheel of the last release (`tests/support/build_tree.py`). Users have the
rights that `eventbus acl` prints.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
from redis import Redis

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.consume.dead_letter import DeadLetter
from eventbus.model.encoding.wire import SCHEMA_VERSION
from eventbus.settings import Settings
from tests.functions.cluster import Cluster
from tests.functions.servers import binaries, own_server
from tests.support.build_tree import Build, BuildTree, BuildWheel, changed_wheel, released_wheel
from tests.support.harness import stored_events
from tests.support.installed import build
from tests.waiting import PATIENCE_S, eventually

ROLES = ("producer", "worker", "deploy", "admin")
PASSWORD = "of-all-users"
OBJECTS = 40
#: Records until its stdin ends, some 500 events a second about OBJECTS pods whose names begin with its argument.
RECORDER = f"""
import sys, threading, time
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster

end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
broadcaster = EventBroadcaster()
recorder = broadcaster.new_recorder("fleet")
n = 0
while not end.is_set():
    for _ in range(10):
        about = ObjectReference(kind="Pod", namespace="default", name=f"{{sys.argv[1]}}-{{n % {OBJECTS}}}")
        recorder.eventf(about, "Normal", "Counted", "one more")
        n += 1
    time.sleep(0.02)
print("recorded", n, broadcaster.flush(120), flush=True)
broadcaster.shutdown(10)
"""


class Child:
    """One process of a fleet, and the file that has what it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def has_said(self, *words: str) -> bool:
        return all(word in self.said for word in words)

    def stop(self) -> None:
        """End a worker as systemd does. It ends well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.said

    def finish(self) -> int:
        """End a recorder. Returns: how many events it has recorded, all of which were sent."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S * 2) == 0, self.said
        found = re.search(r"^recorded (\d+) True$", self.said, re.M)
        assert found, self.said
        return int(found[1])


class Fleet:
    """A bus at *url* whose processes are of two trees. *nodes* are all of its servers, where users are made."""

    def __init__(
        self, url: str, nodes: list[Redis], folder: Path, prefix: str, ends: ExitStack, builds: tuple[Build, Build]
    ) -> None:
        self.url, self.prefix = url, prefix
        self._nodes, self._folder, self._ends = nodes, folder, ends
        self.old, self.new = builds
        assert self.old.build != self.new.build
        self._password = folder / "password"
        self._password.write_text(PASSWORD)
        self._password.chmod(0o600)
        (folder / "recorder.py").write_text(RECORDER)
        self.recorded: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()

    def env(self, role: str = "") -> dict[str, str]:
        """The variables of a process whose user has *role*; "": the one that may do everything."""
        url, parts = self.url, urlsplit(self.url)
        if role:
            netloc = f"{self.prefix}-{role}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}"
            url = parts._replace(netloc=netloc).geturl()
        found = {"EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": self.prefix}
        return found | {"EVENTBUS_PARTITIONS": "4"}

    def make_users(self, tree: Build, *more: str) -> None:
        """Make all users anew, with the rights that *tree* prints."""
        for role in ROLES:
            self._apply(tree.run("acl", "--role", role, "--password-file", str(self._password), *more, env=self.env()))

    def add_rights(self, tree: Build) -> None:
        """Give the users of the bus what *tree* needs besides."""
        for role in ROLES[:3]:
            self._apply(tree.run("acl", "--role", role, "--add", env=self.env()))

    def _apply(self, line: str) -> None:
        for node in self._nodes:
            node.execute_command(*shlex.split(line))  # type: ignore[no-untyped-call]

    def worker(self, tree: Build, role: str = "worker") -> Child:
        return self._child(tree, ["-m", "eventbus", "worker", "sink"], role)

    def recorder(self, tree: Build, name: str, role: str = "producer") -> Child:
        return self._child(tree, [str(self._folder / "recorder.py"), name], role)

    def _child(self, tree: Build, words: list[str], role: str) -> Child:
        log = self._folder / f"{len(list(self._folder.glob('*.log')))}.log"
        process = tree.start(words, self.env(role), log)
        assert process.stdin is not None
        self._ends.callback(process.stdin.close)
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        return Child(process, log)

    def finish(self, recorder: Child, name: str) -> None:
        """End *recorder*, and expect all that it has recorded."""
        n = recorder.finish()
        self.recorded.update({f"{name}-{k}": len(range(k, n, OBJECTS)) for k in range(min(n, OBJECTS))})

    def bus(self) -> Bus:
        """The bus, for who only reads: nothing is loaded."""
        return open_bus(self.url, Settings(prefix=self.prefix))

    def counted(self) -> Counter[str]:
        """How often the event of each recorded object is counted; workers record about themselves, too."""
        found: Counter[str] = Counter()
        for event in stored_events(self.bus()):
            if event.involved_object.kind == "Pod":
                found[event.involved_object.name] += event.count
        return found

    def go_on(self, events: int, *names: str) -> None:
        """Wait until so many more events are stored, of each of the recorders *names*."""

        def counts() -> list[int]:
            found = self.counted()
            return [sum(count for one, count in found.items() if one.startswith(f"{name}-")) for name in names]

        wanted = [count + events for count in counts()]
        eventually(lambda: all(a >= b for a, b in zip(counts(), wanted, strict=True)), within_s=2 * PATIENCE_S)

    def builds(self) -> set[str]:
        """The builds whose functions are on every server that takes writes."""
        found = []
        for node in self._nodes:
            if node.execute_command("ROLE")[0] == b"master":  # type: ignore[no-untyped-call]
                libraries: Any = node.execute_command("FUNCTION", "LIST")  # type: ignore[no-untyped-call]
                names = [
                    (each if isinstance(each, dict) else {each[0]: each[1]})[b"library_name"] for each in libraries
                ]
                found.append({name.decode().removeprefix("eventbus_") for name in names})
        assert all(each == found[0] for each in found), found
        return found[0]

    def upgrade(self, old: Build, new: Build, worker: Child, recorder: Child, *, events: int) -> tuple[Child, Child]:
        """Replace a worker and a recorder (named for its tree) of *old* under load, in the order of the page.

        Returns: those of *new*, named for its tree, which have begun before they could.
        """
        of_old, of_new = self.name(old), self.name(new, begin=True)
        early, early_recorder = self.worker(new), self.recorder(new, of_new)
        for waiting in (early, early_recorder):
            eventually(partial(waiting.has_said, f"build {new.build}", "eventbus acl --add"))
        self.go_on(events, of_old)

        new.run("functions", "load", env=self.env("admin"))
        assert self.builds() == {old.build, new.build}
        self.add_rights(new)
        self.go_on(events, of_old, of_new)
        worker.stop()
        self.go_on(events, of_old, of_new)
        self.finish(recorder, of_old)

        self.make_users(new)
        refused = new.run("functions", "prune", env=self.env("admin"), code=1)
        assert f"build {old.build} is in use" in refused
        new.run("functions", "prune", "--force", env=self.env("admin"))
        assert self.builds() == {new.build}
        self.go_on(events, of_new)
        return early, early_recorder

    def name(self, tree: Build, *, begin: bool = False) -> str:
        """The name of the tree's recorder: another one each time that one begins."""
        if begin:
            self._begun[tree.folder.name] += 1
        return f"{tree.folder.name}{self._begun[tree.folder.name]}"

    def settled(self) -> None:
        """All that was recorded is stored, once, and nothing is buried or lost."""
        eventually(lambda: self.counted().total() >= self.recorded.total())
        assert self.counted() == self.recorded
        bus = self.bus()
        with bus.client() as client:
            assert list(DeadLetter(bus, client).list()) == []
            for keys in bus.keys:
                losses = {field: n for field, n in client.hgetall(keys.incoming_meta).items() if b"losses:" in field}
                assert not losses
                assert client.hgetall(keys.attempts + b"sink") == {}


@pytest.fixture
def fleet(request: pytest.FixtureRequest, short_path: Path, tmp_path: Path, prefix: str) -> Iterator[Fleet]:
    """On a Redis of PATH, 7.0 or later, if there is one; or on a cluster of three nodes."""
    builds = wheels(tmp_path) if request.param == "wheels" else trees(tmp_path)
    with ExitStack() as ends:
        if request.param == "cluster":
            cluster = ends.enter_context(Cluster(short_path, replicas=False))
            nodes = [ends.enter_context(cluster.node(i)) for i in range(3)]
            yield Fleet(cluster.url, nodes, tmp_path, prefix, ends, builds)
            return
        server = ends.enter_context(own_server(short_path, binaries().get("redis on PATH")))
        client = ends.enter_context(make_client(str(server.url)))
        yield Fleet(str(server.url), [client], tmp_path, prefix, ends, builds)


def trees(folder: Path) -> tuple[Build, Build]:
    return BuildTree(folder / "old", changed=False), BuildTree(folder / "new", changed=True)


def wheels(folder: Path) -> tuple[Build, Build]:
    """The last release and this tree; this tree and a changed one, if there is no release or it has the same build."""
    ours = BuildWheel(folder / "ours", build(folder))
    (others := folder / "wheels").mkdir()
    if released := released_wheel(others):
        release = BuildWheel(folder / "release", released)
        if release.build != ours.build:
            return release, ours
    return ours, BuildWheel(folder / "changed", changed_wheel(folder / "more"))


@pytest.mark.parametrize(
    ("fleet", "events"),
    [
        pytest.param("server", 300, marks=pytest.mark.volume),
        pytest.param("server", 4_000, marks=pytest.mark.long),
        pytest.param("cluster", 2_000, marks=pytest.mark.long),
        pytest.param("wheels", 1_000, marks=pytest.mark.long),
    ],
    indirect=["fleet"],
)
def test_a_fleet_is_upgraded_and_rolled_back_under_load(fleet: Fleet, events: int) -> None:
    old, new = fleet.old, fleet.new
    fleet.make_users(old)
    old.run("functions", "load", env=fleet.env("admin"))
    old.run("options", "set", "burst=1000000", env=fleet.env("deploy"))
    worker, recorder = fleet.worker(old), fleet.recorder(old, fleet.name(old, begin=True))
    fleet.go_on(events, fleet.name(old))

    worker, recorder = fleet.upgrade(old, new, worker, recorder, events=events)
    worker, recorder = fleet.upgrade(new, old, worker, recorder, events=events)

    fleet.finish(recorder, fleet.name(old))
    fleet.settled()
    worker.stop()


@pytest.mark.volume
@pytest.mark.short
@pytest.mark.parametrize("fleet", ["server"], indirect=True)
def test_a_newer_recorder_uses_a_codec_that_older_workers_lack_only_after_the_bus_was_upgraded(fleet: Fleet) -> None:
    old, new = fleet.old, fleet.new
    old.run("options", "set", "burst=1000000", env=fleet.env())
    worker, recorder = fleet.worker(old, ""), fleet.recorder(new, "a", "")
    fleet.go_on(500, "a")
    assert codecs(fleet) <= {0, 1}
    refused = new.run("format", "upgrade", env=fleet.env(), code=2)
    assert f"cannot be read by build {old.build}" in refused

    worker.stop()
    newer = fleet.worker(new, "")
    new.run("format", "upgrade", "--force", env=fleet.env())
    fleet.finish(recorder, "a")
    recorder = fleet.recorder(new, "b", "")
    eventually(lambda: 3 in codecs(fleet))
    older = fleet.worker(old, "")
    assert older.process.wait(PATIENCE_S) == 2
    assert "codecs 0,1,2,3, and this build reads 0,1,2" in older.said
    fleet.finish(recorder, "b")
    fleet.settled()
    newer.stop()


def codecs(fleet: Fleet) -> set[int]:
    """The codecs of the batches that the stream has now."""
    bus = fleet.bus()
    with bus.client() as client:
        bodies = [fields[b"b"] for keys in bus.keys for _, fields in client.xrange(keys.incoming)]
    opened = [msgpack.unpackb(body) for body in bodies]
    assert all(each[0] == SCHEMA_VERSION for each in opened)
    return {each[3] for each in opened}
