"""Pods of the bus: whose are taken, what is said of those that go, and what a list says that is empty or half there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from eventbus.agent.config.bus_source import BusSource
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, Op, PodUpdate, Source, is_static
from eventbus.model.kinds import POD
from eventbus.model.list_watch import ListOptions
from eventbus.model.objects.pod import Pod
from eventbus.testing.watch_source import FakeWatchSource
from tests.unit.agent.pods.pods import a_pod
from tests.waiting import eventually

DELETED = datetime(2024, 1, 1, tzinfo=UTC)


class World:
    """Pods of a store in memory, the source that reads them, and what it has said."""

    def __init__(self) -> None:
        fields = {"spec.nodeName": lambda pod: pod.spec.node_name, "metadata.name": lambda pod: pod.metadata.name}
        self.forced = False  #: whether what is deleted goes at once, with its mark in the last that is seen of it
        self.pods: FakeWatchSource[Pod] = FakeWatchSource(fields=fields, with_version=self._with_version)
        self.updates: list[PodUpdate] = []
        self.config = PodConfig(self.updates.append)
        self.source = BusSource(self.config, self, node="n1")

    def _with_version(self, pod: Pod, version: str) -> Pod:
        metadata = msgspec.structs.replace(pod.metadata, resource_version=version)
        changed = msgspec.structs.replace(pod, metadata=metadata)
        return marked(changed) if self.forced else changed

    def lister_watcher(self, kind: Any) -> Any:
        assert kind is POD
        return self.pods

    def heard(self, count: int = 1) -> bool:
        """Look, as the agent does twice a second; return whether so many updates came."""
        self.source.look()
        return len(self.updates) >= count

    def said(self) -> list[tuple[Op, list[str]]]:
        return [(one.op, [pod.metadata.name for pod in one.pods]) for one in tuple(self.updates)]

    def wait_for(self, *wanted: tuple[Op, list[str]]) -> None:
        """Wait until just that was said since the last wait."""
        eventually(lambda: self.heard(len(wanted)))
        assert self.said() == list(wanted)
        self.updates.clear()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.source.stop()


def pod_of(name: str, *, namespace: str = "shop", node: str = "n1", **metadata: Any) -> Pod:
    made = a_pod(name, node_name=node)
    changed = msgspec.structs.replace(made.metadata, namespace=namespace, **metadata)
    return msgspec.structs.replace(made, metadata=changed)


def marked(pod: Pod) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=DELETED)
    return msgspec.structs.replace(pod, metadata=metadata)


def test_only_pods_of_this_node_are_set_whatever_their_namespace(world: World) -> None:
    mirror = pod_of("mirror", namespace="other", annotations={CONFIG_MIRROR: "hash"})
    for pod in (pod_of("a"), pod_of("b", node="n2"), pod_of("c", namespace="other"), mirror):
        world.pods.add(pod)
    world.source.start()
    eventually(world.heard)
    [update] = world.updates
    assert (update.op, update.source) == (Op.ADD, Source.BUS)
    assert sorted(pod.metadata.name for pod in update.pods) == ["a", "c", "mirror"]
    assert [options.field_selector for options in world.pods.lists] == ["spec.nodeName=n1"]


def test_what_comes_changes_and_is_deleted_is_told_one_by_one(world: World) -> None:
    pod = world.pods.add(pod_of("a"))
    world.source.start()
    world.wait_for((Op.ADD, ["a"]))
    world.pods.add(pod_of("b"))
    world.wait_for((Op.ADD, ["b"]))
    world.pods.modify(marked(pod))
    world.wait_for((Op.DELETE, ["a"]))
    world.pods.delete(pod)
    world.wait_for((Op.REMOVE, ["a"]))


def test_one_that_is_marked_and_gone_at_once_is_deleted_before_it_is_removed(world: World) -> None:
    pod = world.pods.add(pod_of("a"))
    world.source.start()
    world.wait_for((Op.ADD, ["a"]))
    world.forced = True
    world.pods.delete(pod)
    world.wait_for((Op.DELETE, ["a"]), (Op.REMOVE, ["a"]))


def test_one_that_is_only_gone_is_removed(world: World) -> None:
    pod = world.pods.add(pod_of("a"))
    world.source.start()
    world.wait_for((Op.ADD, ["a"]))
    world.pods.delete(pod)
    world.wait_for((Op.REMOVE, ["a"]))


def test_a_first_list_of_no_pods_is_told_once(world: World) -> None:
    world.source.look()
    assert not world.config.all_ready
    world.source.start()

    def ready() -> bool:
        world.source.look()
        return world.config.all_ready

    eventually(ready)
    world.source.look()
    world.wait_for((Op.ADD, []))


def test_a_pod_does_not_make_itself_a_static_one(world: World) -> None:
    world.pods.add(pod_of("a", annotations={CONFIG_SOURCE: "file", CONFIG_HASH: "x", "mine": "stays"}))
    world.source.start()
    eventually(world.heard)
    pods: Sequence[Pod] = world.updates[0].pods
    assert [(dict(pod.metadata.annotations), is_static(pod)) for pod in pods] == [({"mine": "stays"}, False)]


def test_a_bus_that_is_away_takes_no_pods_away(world: World) -> None:
    world.pods.add(pod_of("a"))
    world.source.start()
    world.wait_for((Op.ADD, ["a"]))
    world.pods.drop_watches()
    world.pods.expire()
    world.pods.add(pod_of("b"))
    world.wait_for((Op.ADD, ["b"]))
    assert all(isinstance(options, ListOptions) for options in world.pods.lists)
