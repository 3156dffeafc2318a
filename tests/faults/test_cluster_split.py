"""Row 33, split brain: a primary that its replica does not hear goes on alone, is taken over from, and comes back.

What only the old primary had heard is forgotten when it follows the new one. Producers send it again from their rings;
a server with `min-replicas-to-write` does not take it in the first place.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.scene import Scene, reached, until
from tests.faults.test_cluster import PARTITIONS, World
from tests.functions.cluster import Cluster

SPLIT = "33 cluster, split brain"
CAREFUL = "33 cluster, split brain, min-replicas-to-write"

CAREFULLY: dict[str, Any] = {"min-replicas-to-write": "1"}
NO_RING = {"EVENTBUS_RING_BYTES": "0"}
#: Events that the lone primary takes, at the least, where it takes any.
ALONE = 300

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def deafen(cluster: Cluster) -> None:
    """The first node's replica hears nothing of it any more, and still counts as its replica."""
    with cluster.node(3) as replica, cluster.node(0) as primary:
        replica.config_set("masterauth", "wrong")  # the primary has no password: whoever gives one is refused
        primary.execute_command("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: replica.info("replication")["master_link_status"] == "down")
        until(lambda: primary.info("replication")["connected_slaves"] == 0)


def split(scene: MakeScene, folder: Path, env: dict[str, str], careful: bool = False) -> tuple[Verdict, bool]:
    """Second, whether the primary took events while it was alone."""
    cluster = Cluster(folder, replicas=True, **CAREFULLY if careful else {})
    world = World(scene(server=cluster, partitions=PARTITIONS), cluster)
    world.scene.worker()
    producers = [world.scene.producer(rate=800, env=env) for _ in range(2)]
    until(lambda: all(producer.acknowledged > 20 for producer in producers))
    until(lambda: all(world.recorded(p) for p in range(PARTITIONS)))
    deafen(cluster)
    before = world.all_of(world.published, world.dead)
    took = reached(lambda: world.have_gone_on(before, world.published, by=ALONE), 4 if careful else 60)
    cluster.freeze(0)
    until(lambda: cluster.is_primary(3))
    cluster.thaw(0)
    until(lambda: not cluster.is_primary(0))
    healed = time.monotonic()
    after = world.all_of(world.published)
    until(lambda: world.have_gone_on(after, world.published), 60)
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    return world.scene.verdict(since=healed), took


def test_what_only_the_lone_primary_has_heard_is_sent_again(scene: MakeScene, short_path: Path, note: Note) -> None:
    verdict, took = split(scene, short_path, {})
    assert took
    note(SPLIT, verdict)
    assert verdict.clean, verdict


def test_a_lone_primary_that_wants_a_replica_takes_nothing_that_could_be_lost(
    scene: MakeScene, short_path: Path, note: Note
) -> None:
    verdict, took = split(scene, short_path, NO_RING, careful=True)
    assert not took
    note(CAREFUL, verdict)
    assert verdict.clean, verdict


def test_control_a_split_without_a_ring(scene: MakeScene, short_path: Path, note_control: NoteControl) -> None:
    verdict, took = split(scene, short_path, NO_RING)
    assert took
    note_control(SPLIT, verdict, "no ring")
