"""Rows 9 and 9b: a replica takes over without what it was never told, and a master that nobody listens to any more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import Scene, reached, until
from tests.faults.test_server import NO_RING
from tests.support.ports import free_port

FAILOVER = "9 failover"
SPLIT = "9b split brain"

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class Pair(NamedTuple):
    """A master, its replica behind a line of their own, and the line that clients use."""

    scene: Scene
    replica: EmbeddedServer
    link: Proxy
    line: Proxy


@pytest.fixture
def pair(scene: MakeScene, short_path: Path, seed: int) -> Iterator[Pair]:
    ports = {"port": str(free_port()), "bind": "127.0.0.1", "repl-diskless-sync-delay": "0"}
    here = scene(config=ports)
    with (
        Proxy(f"redis://127.0.0.1:{ports['port']}", seed=seed) as link,
        Proxy(here.url, seed=seed) as line,
    ):
        following = {"replicaof": f"127.0.0.1 {link.port}", "repl-diskless-sync-delay": "0"}
        replica = EmbeddedServer(short_path / "r", config=ports | {"port": str(free_port())} | following)
        replica.start()
        until(lambda: b"master_link_status:up" in info(replica))
        yield Pair(here, replica, link, line)
        replica.stop()


def info(server: EmbeddedServer) -> bytes:
    with make_client(server.url or "") as client:
        found: bytes = client.execute_command("INFO", "replication")
    return found if isinstance(found, bytes) else str(found).replace("'", "").replace(": ", ":").encode()


def promote(server: EmbeddedServer) -> None:
    with make_client(server.url or "") as client:
        client.replicaof("NO", "ONE")


def replace_master(pair: Pair) -> float:
    """Kill the master, and let clients go on with the replica. Returns: when that was."""
    scene, replica, _, line = pair
    os.kill(scene.server.pid or 0, signal.SIGKILL)
    line.mode = Mode.REFUSE
    line.hang_up()
    promote(replica)
    line.switch(replica.url or "")
    line.mode = Mode.PASS
    scene.go_to(replica.url or "")
    return time.monotonic()


def fail_over(pair: Pair, env: dict[str, str]) -> Verdict:
    """The replica hears nothing for a while, then the master dies, and the replica takes its place."""
    scene, _, link, line = pair
    scene.worker(url=line.url)
    producers = [scene.producer(url=line.url, rate=4_000, env=env) for _ in range(2)]
    until(lambda: all(producer.acknowledged > 20 for producer in producers))
    link.mode = Mode.BLACK_HOLE
    for producer in producers:
        producer.go_on()
    taken_over = replace_master(pair)
    for producer in producers:
        producer.go_on()
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    return scene.verdict(since=taken_over)


@pytest.mark.parametrize("run", range(8))
def test_the_ring_brings_a_replica_what_it_was_never_told(pair: Pair, run: int, note: Note) -> None:
    verdict = fail_over(pair, {})
    note(FAILOVER, verdict)
    assert verdict.clean, verdict
    assert not any(producer.losses for producer in pair.scene.producers)


def test_control_a_failover_without_a_ring(pair: Pair, note_control: NoteControl) -> None:
    verdict = fail_over(pair, NO_RING)
    note_control(FAILOVER, verdict, "no ring")
    assert sum(producer.losses.get("lost", 0) for producer in pair.scene.producers) == verdict.lost


def fail_over_the_idle(pair: Pair, *breakage: str) -> Verdict:
    """Fail over when only the master has the last events of a producer that then falls silent."""
    scene, replica, link, line = pair
    producer = scene.producer(url=line.url, count=2_000, pause_s=3, stay=1, breakage=breakage)
    until(lambda: len(scene.accepted.uids_of) >= 1_000)
    link.mode = Mode.BLACK_HOLE
    until(lambda: len(scene.accepted.uids_of) == 2_000)
    taken_over = replace_master(pair)
    meta = scene.keys.incoming_meta
    reached(lambda: int(scene.client.hget(meta, "events") or 0) >= 2_000, 5 if breakage else 60)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    scene.worker(url=replica.url or "")
    return scene.verdict(since=taken_over)


def test_an_idle_producer_brings_a_replica_what_it_was_never_told(pair: Pair, note: Note) -> None:
    verdict = fail_over_the_idle(pair)
    note(FAILOVER, verdict)
    assert verdict.clean, verdict


def test_control_a_failover_while_the_idle_do_not_ask(pair: Pair, note_control: NoteControl) -> None:
    note_control(FAILOVER, fail_over_the_idle(pair, "the-idle-do-not-ask"), "the idle do not ask")


def split(pair: Pair, seed: int, env: dict[str, str]) -> Verdict:
    """One producer stays with the old master, which lives; another goes with the new one; then the line heals."""
    scene, replica, link, line = pair
    with Proxy(scene.url, seed=seed) as minority:
        scene.worker(url=line.url)
        left_behind = scene.producer(url=minority.url, rate=2_000, env=env)
        moved = scene.producer(url=line.url, rate=2_000, env=env)
        until(lambda: left_behind.acknowledged > 20 and moved.acknowledged > 20)
        link.mode = Mode.BLACK_HOLE
        promote(replica)
        line.switch(replica.url or "")
        scene.go_to(replica.url or "")
        for producer in (left_behind, moved):
            producer.go_on()
        # It heals: the old master is told to follow, and forgets what only it has heard.
        minority.switch(replica.url or "")
        healed = time.monotonic()
        for producer in (left_behind, moved):
            producer.go_on()
            producer.signal(signal.SIGTERM)
        for producer in (left_behind, moved):
            assert producer.wait() == 0
        return scene.verdict(since=healed)


@pytest.mark.parametrize("run", range(3))
def test_what_only_the_old_master_has_heard_is_sent_again(pair: Pair, seed: int, run: int, note: Note) -> None:
    verdict = split(pair, seed, {})
    note(SPLIT, verdict)
    assert verdict.clean, verdict


def test_control_a_split_without_a_ring(pair: Pair, seed: int, note_control: NoteControl) -> None:
    note_control(SPLIT, split(pair, seed, NO_RING), "no ring")
