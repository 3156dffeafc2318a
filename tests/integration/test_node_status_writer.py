"""The writer of a node's status among other writers of the same node, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
import pytest

from eventbus.agent.node.status_writer import ATTEMPTS, NodeStatusWriter
from eventbus.broker.bus import open_bus
from eventbus.errors import BusUnavailable, Conflict, NotFound
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import Node, Transition, with_condition
from eventbus.settings import Settings
from eventbus.testing.clock import FakeClock
from tests.support.node_world import NodeWorld


@pytest.fixture
def world(any_server_url: str, prefix: str) -> Iterator[NodeWorld]:
    made = NodeWorld(open_bus(any_server_url, Settings(prefix=prefix)), FakeClock())
    yield made
    made.close()


def writer(
    world: NodeWorld, told: list[str], meanwhile: Callable[[], object] = lambda: None, value: str = "True"
) -> NodeStatusWriter:
    def status_of(node: Node) -> Node:
        meanwhile()
        now = world.now()
        return msgspec.structs.replace(
            node, status=with_condition(node.status, "Ready", value, "AgentReady", "ready", now, now)
        )

    def tell(node: Node, transition: Transition) -> None:
        told.append(transition.reason)

    return NodeStatusWriter(
        nodes=world.nodes, clock=world.clock, name="n1", labels=dict, status_of=status_of, report=tell
    )


def somebody_writes(world: NodeWorld, times: int) -> Callable[[], object]:
    """Writes the node's status before the next *times* writes of the agent."""
    left = [times]

    def write() -> None:
        if left[0]:
            left[0] -= 1
            world.clock.advance(1)
            node, now = world.nodes.get("n1"), world.now() + timedelta(seconds=left[0])
            status = with_condition(node.status, "Corp", f"{left[0]}", "R", "m", now, now)
            world.nodes.update_status(msgspec.structs.replace(node, status=status))

    return write


def test_a_round_tries_five_times_over_somebody_elses_writes(world: NodeWorld) -> None:
    told: list[str] = []
    writer(world, told).register()
    assert told == ["NodeReady"]
    assert writer(world, told, somebody_writes(world, ATTEMPTS - 1), "False").write()
    assert told == ["NodeReady", "NodeNotReady"]
    with pytest.raises(Conflict):
        writer(world, told, somebody_writes(world, ATTEMPTS), "True").write()
    assert told == ["NodeReady", "NodeNotReady"]


def test_a_transition_that_somebody_else_has_made_is_not_told_again(world: NodeWorld) -> None:
    told: list[str] = []
    writer(world, told).register()

    def fails() -> None:
        node = world.nodes.get("n1")
        ready = node.status.condition("Ready")
        if ready is not None and ready.status == "True":
            lost = with_condition(node.status, "Ready", "False", "AgentReady", "ready", world.now(), world.now())
            world.nodes.update_status(msgspec.structs.replace(node, status=lost))

    writer(world, told, fails, "False").write()
    assert told == ["NodeReady"]


class Unanswered:
    """The nodes of a server. Its next answer to a write is lost."""

    def __init__(self, world: NodeWorld) -> None:
        self.get, self.update = world.nodes.get, world.nodes.update
        self._nodes = world.nodes
        self.lost = True

    def create(self, found: Node) -> Node:
        return self._answer(self._nodes.create(found))

    def update_status(self, found: Node) -> Node:
        return self._answer(self._nodes.update_status(found))

    def _answer(self, written: Node) -> Node:
        lost, self.lost = self.lost, False
        if lost:
            raise BusUnavailable("no answer")
        return written


@pytest.mark.parametrize("exists", [True, False])
def test_a_write_whose_answer_was_lost_is_told_when_it_is_seen(world: NodeWorld, exists: bool) -> None:
    told: list[str] = []
    if exists:
        world.nodes.create(Node(metadata=ObjectMeta(name="n1")))
    made = writer(world, told)
    made._nodes = Unanswered(world)
    with pytest.raises(BusUnavailable):
        made.register()
    assert told == []
    made.register()
    assert told == ["NodeReady"]
    made.register()
    assert told == ["NodeReady"]


def test_a_node_that_is_gone_is_not_made_anew_by_a_round(world: NodeWorld) -> None:
    told: list[str] = []
    made = writer(world, told)
    made.register()
    world.nodes.delete("n1")
    with pytest.raises(NotFound):
        made.write()
