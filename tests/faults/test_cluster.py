"""Row 33: a node of a Redis Cluster dies, the one that the url names; only its partitions wait, and only until then.

Three primaries, three replicas, all on loopback, made of the embedded server's program.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus.broker.connection.cluster import key_slot
from tests.faults.checker import Verdict
from tests.faults.conftest import Harm, Note, NoteControl
from tests.faults.scene import Producing, Scene, reached, until
from tests.functions.cluster import SLOTS, Cluster

DEATH = "33 cluster, named node killed"
FREEZE = "33 cluster, named node frozen"
WAITS = "33 cluster, without a failover"
MOVE = "33 cluster, slots moved"

PARTITIONS = 6
#: Events that each partition of a living node has to take while the dead node's wait.
PROGRESS = 200

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class World(NamedTuple):
    """A bus on a cluster; the first node, which the url names, has some of its partitions."""

    scene: Scene
    cluster: Cluster

    @property
    def dead(self) -> list[int]:
        """The partitions of the first node."""
        return [p for p in range(PARTITIONS) if key_slot(self.scene.bus.keys[p].meta) < SLOTS // 3]

    @property
    def living(self) -> list[int]:
        return [p for p in range(PARTITIONS) if p not in self.dead]

    def published(self, partition: int) -> int:
        return int(self.scene.client.hget(self.scene.bus.keys[partition].incoming_meta, "events") or 0)

    def recorded(self, partition: int) -> int:
        return int(self.scene.client.hget(self.scene.bus.keys[partition].meta, "events") or 0)

    def all_of(self, count: Callable[[int], int], partitions: Iterable[int] = range(PARTITIONS)) -> dict[int, int]:
        """Return the counts of these partitions, as soon as all of them can be read."""
        found: dict[int, int] = {}

        def read() -> bool:
            found.update({partition: count(partition) for partition in partitions})
            return True

        until(read)
        return found

    def have_gone_on(self, since: dict[int, int], count: Callable[[int], int], by: int = PROGRESS) -> bool:
        return all(count(partition) >= before + by for partition, before in since.items())


@pytest.fixture
def world(scene: MakeScene, short_path: Path) -> World:
    cluster = Cluster(short_path)
    return World(scene(server=cluster, partitions=PARTITIONS), cluster)


def begin(world: World, breakage: tuple[str, ...] = ()) -> list[Producing]:
    """A worker and two producers that have all begun."""
    world.scene.worker(breakage=breakage)
    producers = [world.scene.producer(rate=800, breakage=breakage) for _ in range(2)]
    until(lambda: all(producer.acknowledged > 20 for producer in producers))
    until(lambda: all(world.recorded(p) for p in range(PARTITIONS)))
    return producers


def end(world: World, producers: list[Producing], since: float) -> Verdict:
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    assert not any(producer.losses for producer in producers)
    return world.scene.verdict(since=since)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_the_death_of_the_named_node_loses_nothing_and_all_go_on(world: World, how: str, note: Note) -> None:
    producers = begin(world)
    if how == "killed":
        world.cluster.kill(0)
    else:
        world.cluster.freeze(0)
    until(lambda: world.cluster.is_primary(3))
    taken_over = time.monotonic()
    published, recorded = world.all_of(world.published), world.all_of(world.recorded)
    until(lambda: world.have_gone_on(published, world.published), 60)
    until(lambda: world.have_gone_on(recorded, world.recorded), 60)
    # Who comes new finds the bus by another node than the one the url names.
    seeds = ",".join(f"127.0.0.1:{port}" for port in world.cluster.ports[:2])
    producers.append(world.scene.producer(url=f"redis://{seeds}", rate=200))
    until(lambda: producers[-1].acknowledged > 5)
    verdict = end(world, producers, taken_over)
    note(DEATH if how == "killed" else FREEZE, verdict)
    assert verdict.clean, verdict


def test_partitions_that_move_to_other_nodes_under_load_lose_nothing(world: World, note: Note) -> None:
    producers = begin(world)
    for partition in world.dead:
        slot = key_slot(world.scene.bus.keys[partition].meta)
        for source, target in ((0, 1), (1, 2), (2, 0)):
            assert world.cluster.move_slot(slot, source, target) > 0
            before = world.all_of(world.recorded)
            until(lambda before=before: world.have_gone_on(before, world.recorded, by=20), 60)  # type: ignore[misc]
    verdict = end(world, producers, time.monotonic())
    note(MOVE, verdict)
    assert verdict.clean, verdict


def test_control_slots_that_move_and_are_not_followed(world: World, note_control: NoteControl) -> None:
    begin(world, ("moved-is-not-followed",))
    partition = world.dead[0]
    world.cluster.move_slot(key_slot(world.scene.bus.keys[partition].meta), 0, 1)
    before = world.all_of(world.published, [partition])
    went_on = reached(lambda: world.have_gone_on(before, world.published, by=1), 5)
    note_control(MOVE, Harm(not went_on, "0 events in 5 s"), "MOVED is not followed")


def goes_on_without(world: World, breakage: tuple[str, ...]) -> tuple[bool, int, list[Producing]]:
    """Kill the first node, let nobody take over, and look whether the living partitions go on."""
    producers = begin(world, breakage)
    with world.cluster.node(3) as replica:
        replica.config_set("cluster-replica-no-failover", "yes")
        world.cluster.kill(0)
        before = world.all_of(world.published, world.living)
        went_on = reached(lambda: world.have_gone_on(before, world.published), 6 if breakage else 60)
        more = sum(world.published(p) - before[p] for p in world.living)
        assert not world.cluster.is_primary(3)
        replica.config_set("cluster-replica-no-failover", "no")
    return went_on, more, producers


def test_only_the_partitions_of_the_dead_node_wait_and_nothing_is_lost(world: World, note: Note) -> None:
    went_on, _, producers = goes_on_without(world, ())
    assert went_on
    until(lambda: world.cluster.is_primary(3))
    taken_over = time.monotonic()
    waited = world.all_of(world.published, world.dead)
    until(lambda: world.have_gone_on(waited, world.published), 60)
    verdict = end(world, producers, taken_over)
    note(WAITS, verdict)
    assert verdict.clean, verdict


def test_control_a_pipeline_that_fails_whole(world: World, note_control: NoteControl) -> None:
    went_on, more, _ = goes_on_without(world, ("a-pipeline-fails-whole",))
    note_control(WAITS, Harm(not went_on, f"{more} events in 6 s"), "a pipeline fails whole")


def test_control_only_the_url_is_asked(world: World, note_control: NoteControl) -> None:
    begin(world, ("only-the-url-is-asked",))
    world.cluster.kill(0)
    until(lambda: world.cluster.is_primary(3))
    before = world.all_of(world.published, world.dead)
    went_on = reached(lambda: world.have_gone_on(before, world.published, by=1), 10)
    note_control(DEATH, Harm(not went_on, "0 events of its partitions in 10 s"), "only the url is asked")
