"""Pods of a node that falls silent, on a real server and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from eventbus.broker.bus import open_bus
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import POD
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.model.objects.pod import Pod, PodCondition, PodSpec, PodStatus
from eventbus.settings import Settings
from eventbus.store.change_hub import ChangeHub
from eventbus.store.writer import ObjectWriter
from eventbus.testing.clock import FakeClock
from tests.support.node_world import NodeWorld


@pytest.fixture
def world(any_server_url: str, prefix: str) -> Iterator[NodeWorld]:
    made = NodeWorld(open_bus(any_server_url, Settings(prefix=prefix)), FakeClock())
    yield made
    made.close()


def a_pod(name: str, node: str, phase: str = "Running") -> Pod:
    status = PodStatus(phase=phase, conditions=(PodCondition(type="Ready", status="True"),))
    return Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=PodSpec(node_name=node), status=status)


def ready_of(world: NodeWorld, name: str) -> tuple[str, str]:
    status = world.pods.get(name, "default").status
    ready = status.condition("Ready")
    return ready.status if ready else "", status.reason


def test_pods_of_a_lost_node_are_not_ready_and_say_why_and_no_others(world: NodeWorld) -> None:
    for pod in (a_pod("web", "n1"), a_pod("done", "n1", "Succeeded"), a_pod("other", "n2")):
        world.pods.create(pod)
    world.worker()
    world.agent("n1")
    world.agent("n2")
    world.run(30)
    world.kill("n1")
    world.run(60)
    assert ready_of(world, "web") == ("False", "NodeLost")
    assert "n1 which was running pod web is unresponsive" in world.pods.get("web", "default").status.message
    assert ready_of(world, "done") == ("True", "")
    assert ready_of(world, "other") == ("True", "")


def test_what_the_agent_writes_when_it_is_back_stays(world: NodeWorld) -> None:
    pod = world.pods.create(a_pod("web", "n1"))
    world.worker()
    world.agent("n1")
    world.run(30)
    world.kill("n1")
    world.run(60)
    world.agent("n1")
    world.run(30)
    held = world.pods.get("web", "default")
    world.pods.update_status(msgspec.structs.replace(held, status=pod.status))
    world.run(30)
    assert ready_of(world, "web") == ("True", "")


@pytest.mark.parametrize(("phase", "marked"), [("Running", True), ("Failed", False)])
def test_a_pod_that_is_written_in_the_same_moment_is_judged_by_what_was_written(
    world: NodeWorld, phase: str, marked: bool
) -> None:
    class WrittenBetween(ObjectWriter[Pod]):
        """Pods that another client writes between the list of them and the mark."""

        def list(self, options: ListOptions | None = None) -> ObjectList[Pod]:
            found = super().list(options)
            for pod in found.items:
                self.update_status(
                    msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))
                )
            return found

    world.pods.create(a_pod("web", "n1", "Pending"))
    between = WrittenBetween(bus=world.bus, client=world.client, hub=ChangeHub(world.bus), kind=POD)
    LostPods(between, lambda: datetime.now(UTC)).look(["n1"])
    assert (ready_of(world, "web")[1] == "NodeLost") == marked
    assert world.pods.get("web", "default").status.phase == phase


def test_a_worker_that_takes_over_marks_what_the_first_one_did_not(world: NodeWorld) -> None:
    world.worker("w1")
    world.agent("n1")
    world.run(30)
    world.kill("n1")
    world.run(60)
    world.pods.create(a_pod("late", "n1"))  # as if w1 had died between the node and its pods
    world.kill("w1")
    world.worker("w2")
    world.run(60)
    assert ready_of(world, "late") == ("False", "NodeLost")
