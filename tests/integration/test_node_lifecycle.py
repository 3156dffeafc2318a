"""Agents, leases and lifecycle workers on a real server and a clock of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from eventbus.agent.node.status_writer import ATTEMPTS, NodeStatusWriter
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import BusUnavailable, Conflict, NotFound
from eventbus.lifecycle.election import Election
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.lifecycle.node_monitor import Pace
from eventbus.lifecycle.polled_cache import Polled, PolledCache
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE, POD
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.model.objects.cluster import LIFECYCLE_LEASE, NODE_LEASES, Lease, Node, Transition, with_condition
from eventbus.model.objects.pod import Pod, PodCondition, PodSpec, PodStatus
from eventbus.settings import Settings
from eventbus.store.change_hub import ChangeHub
from eventbus.store.writer import ObjectWriter
from eventbus.testing.clock import FakeClock
from tests.support.node_world import GIB, FakeMachine, NodeWorld
from tests.thin import one

#: Of a lease that holds for long, seconds.
LONG_S = 600


@pytest.fixture
def world(any_server_url: str, prefix: str) -> Iterator[NodeWorld]:
    made = NodeWorld(open_bus(any_server_url, Settings(prefix=prefix)), FakeClock())
    yield made
    made.close()


@pytest.fixture
def own_world(tmp_path: Path, prefix: str) -> Iterator[tuple[NodeWorld, EmbeddedServer]]:
    """A server that the test may stop."""
    server = EmbeddedServer(tmp_path / "server")
    made = NodeWorld(open_bus(server.start(), Settings(prefix=prefix)), FakeClock())
    yield made, server
    made.close()
    server.stop()


def test_an_agent_registers_its_node_and_says_that_it_starts(world: NodeWorld) -> None:
    world.agent("n1")
    world.run(2)
    node = world.nodes.get("n1")
    assert node.metadata.labels == {"kubernetes.io/hostname": "n1"}
    assert [(one.type, one.status) for one in node.status.conditions] == [
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
        ("NetworkUnavailable", "False"),
        ("Ready", "True"),
    ]
    assert node.status.capacity == {
        "cpu": "2",
        "memory": f"{16 * GIB // 1024}Ki",
        "ephemeral-storage": f"{100 * GIB // 1024}Ki",
        "pods": "110",
    }
    assert world.leases.get("n1", NODE_LEASES).spec.lease_duration_seconds == 40
    assert [event.reason for event in world.events()] == ["NodeReady", "Starting"]
    assert {event.type for event in world.events()} == {"Normal"}


def test_labels_of_an_existing_node_are_reconciled_and_others_stay(world: NodeWorld) -> None:
    labels = {"zone": "a", "kubernetes.io/hostname": "other"}
    world.nodes.create(Node(metadata=ObjectMeta(name="n1", labels=labels)))
    world.agent("n1")
    world.run(2)
    assert world.nodes.get("n1").metadata.labels == {"zone": "a", "kubernetes.io/hostname": "n1"}


def test_status_is_written_when_something_changes_and_else_every_five_minutes(world: NodeWorld) -> None:
    agent = world.agent("n1")
    versions: list[str] = []
    world.run(294, lambda: versions.append(world.nodes.get("n1").metadata.resource_version))
    assert len(set(versions)) == 1
    world.run(20, lambda: versions.append(world.nodes.get("n1").metadata.resource_version))
    assert len(set(versions)) == 2
    agent.machine.free = 5 * GIB
    world.run(12)
    condition = world.nodes.get("n1").status.condition("DiskPressure")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "AgentHasDiskPressure")
    assert world.reasons("n1")["NodeHasDiskPressure"] == 1


def test_what_a_machine_is_short_of_is_told_and_that_it_is_no_more(world: NodeWorld) -> None:
    machine = world.agent("n1").machine
    world.run(2)
    first = world.nodes.get("n1").status.condition("MemoryPressure")
    world.run(310)
    later = world.nodes.get("n1").status.condition("MemoryPressure")
    assert first is not None
    assert later is not None
    assert later.last_transition_time == first.last_transition_time
    assert later.last_heartbeat_time != first.last_heartbeat_time
    machine.available, machine.free, machine.processes = 50 * 1024 * 1024, 5 * GIB, 32_000
    world.run(12)
    fresh = FakeMachine()
    machine.available, machine.free, machine.processes = fresh.available, fresh.free, fresh.processes
    world.run(12)
    told = world.reasons("n1")
    for short, enough in (
        ("NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
        ("NodeHasDiskPressure", "NodeHasNoDiskPressure"),
        ("NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ):
        assert (told[short], told[enough]) == (1, 1)


def test_a_machine_that_was_started_anew_is_told(world: NodeWorld) -> None:
    world.agent("n1")
    world.run(6)
    world.kill("n1")
    machine = FakeMachine()
    machine.boot = "boot-2"
    world.agent("n1", machine=machine)
    world.run(30)
    assert world.reasons("n1") == {"NodeReady": 1, "Starting": 2, "Rebooted": 1}
    assert next(event for event in world.events() if event.reason == "Rebooted").type == "Warning"


def test_a_node_that_falls_silent_is_lost_once_after_its_grace_and_back_once(world: NodeWorld) -> None:
    world.worker()
    for name in ("n1", "n2", "n3"):
        world.agent(name)
    world.run(100)
    last = world.leases.get("n1", NODE_LEASES).spec.renew_time
    world.kill("n1")
    seen: list[float] = []
    assert last is not None

    def look() -> None:
        if world.ready("n1") == "Unknown" and not seen:
            seen.append((world.now() - last).total_seconds())

    world.run(120, look)
    assert 40 <= seen[0] <= 46
    node = world.nodes.get("n1")
    assert {one.status for one in node.status.conditions} == {"Unknown"}
    assert {one.reason for one in node.status.conditions} == {"NodeStatusUnknown"}
    assert {one.message for one in node.status.conditions} == {"Agent stopped posting node status."}
    assert world.reasons("n1") == {"NodeReady": 1, "Starting": 1, "NodeNotReady": 1}
    [event] = [event for event in world.events() if event.reason == "NodeNotReady"]
    assert (event.type, event.involved_object.uid) == ("Warning", node.metadata.uid)
    world.agent("n1")
    world.run(10)
    assert world.ready("n1") == "True"
    assert world.reasons("n1") == {"NodeReady": 2, "Starting": 2, "NodeNotReady": 1}
    assert "NodeNotReady" not in world.reasons("n2") | world.reasons("n3")
    assert world.lost == [("n1", "NodeNotReady")]


@pytest.mark.parametrize("agent_s", one([3600.0, 0.0, -3600.0]))
@pytest.mark.parametrize("worker_s", one([-3600.0, 0.0, 3600.0]))
def test_clocks_that_are_an_hour_off_change_nothing(world: NodeWorld, agent_s: float, worker_s: float) -> None:
    world.worker(offset_s=worker_s)
    world.agent("n1", offset_s=agent_s)
    world.run(120)
    assert world.ready("n1") == "True"
    world.kill("n1")
    world.run(30)
    assert world.ready("n1") == "True"
    world.run(30)
    assert world.ready("n1") == "Unknown"
    world.agent("n1", offset_s=agent_s)
    world.run(60)
    assert world.reasons("n1") == {"NodeReady": 2, "Starting": 2, "NodeNotReady": 1}


def test_an_agents_clock_that_jumps_while_it_runs_changes_nothing(world: NodeWorld) -> None:
    world.worker()
    agent = world.agent("n1")
    world.run(60)
    clock = agent.agent._lease._clock  # the same for all of the agent's parts
    for offset_s in (3600.0, -3600.0):
        clock.offset_s = offset_s  # type: ignore[attr-defined]
        world.run(60)
    assert world.reasons("n1") == {"NodeReady": 1, "Starting": 1}


def test_redis_away_for_two_minutes_marks_nobody(own_world: tuple[NodeWorld, EmbeddedServer]) -> None:
    world, server = own_world
    world.worker()
    for name in ("n1", "n2", "n3", "n4"):
        world.agent(name)
    world.run(60)
    server.stop()
    world.run(120)
    server.start()
    for agent in world.agents.values():  # they come back later than the worker
        agent.frozen = True
    world.run(30)
    for agent in world.agents.values():
        agent.frozen = False
    world.run(90)
    for name in ("n1", "n2", "n3", "n4"):
        assert world.ready(name) == "True"
        assert "NodeNotReady" not in world.reasons(name)
    assert world.workers["w1"].loop_health()[0].counts["outages"] == 1
    condition = world.nodes.get("n1").status.condition("NetworkUnavailable")
    assert condition is not None
    assert condition.status == "False"  # again: it was away longer ago than a minute


def test_a_node_that_died_while_redis_was_away_is_lost_a_grace_after_it_is_back(
    own_world: tuple[NodeWorld, EmbeddedServer],
) -> None:
    world, server = own_world
    world.worker()
    world.agent("n1")
    world.agent("n2")
    world.run(60)
    server.stop()
    world.kill("n1")
    world.run(120)
    server.start()
    world.run(38)
    assert world.ready("n1") == "True"
    world.run(10)
    assert world.ready("n1") == "Unknown"
    assert world.reasons("n1")["NodeNotReady"] == 1


def test_a_worker_that_was_frozen_itself_begins_every_grace_anew(world: NodeWorld) -> None:
    world.worker()
    world.agent("n1")
    world.run(60)
    world.kill("n1")
    world.clock.advance(300)
    world.run(38)
    assert world.ready("n1") == "True"
    world.run(10)
    assert world.ready("n1") == "Unknown"


def test_another_worker_acts_within_15_seconds_and_the_transition_is_one_event(world: NodeWorld) -> None:
    world.worker("w1")
    world.run(2)
    world.worker("w2")
    world.agent("n1")
    world.run(62)
    world.kill("n1")
    world.run(36)
    world.kill("w1")
    assert world.ready("n1") == "True"
    world.run(14)
    assert world.ready("n1") == "Unknown"
    world.run(120)
    assert world.reasons("n1")["NodeNotReady"] == 1


def test_what_a_dead_leader_wrote_and_did_not_tell_its_successor_tells_once(world: NodeWorld) -> None:
    class Silent:
        def record(self, *_: object) -> None: ...
        def flush(self) -> None: ...
        def close(self) -> None: ...

    world.worker("w1", occurrences=Silent())
    world.agent("n1")
    world.run(60)
    world.kill("n1")
    world.run(60)
    assert world.ready("n1") == "Unknown"
    assert world.reasons("n1")["NodeNotReady"] == 0
    world.kill("w1")
    world.worker("w2")
    world.run(60)
    assert world.reasons("n1")["NodeNotReady"] == 1
    world.kill("w2")
    world.worker("w3")
    world.run(60)
    assert world.reasons("n1")["NodeNotReady"] == 1


def test_a_loss_whose_answer_was_lost_is_told_by_the_same_worker(world: NodeWorld) -> None:
    class Unanswered(ObjectWriter[Node]):
        lost = False

        def update_status(self, found: Node) -> Node:
            written = super().update_status(found)
            if not self.lost:
                self.lost = True
                raise BusUnavailable("no answer")
            return written

    hub = ChangeHub(world.bus)
    world.worker("w1", nodes=Unanswered(bus=world.bus, client=world.client, hub=hub, kind=NODE))
    world.renew("n1")
    world.run(60)
    assert world.ready("n1") == "Unknown"
    assert world.reasons("n1") == {"NodeReady": 1, "NodeNotReady": 1}


def test_a_worker_that_stops_lets_another_act_at_once(world: NodeWorld) -> None:
    first = world.worker("w1")
    world.worker("w2")
    world.run(10)
    first.stop()
    world.kill("w1")
    world.run(4)
    assert world.workers["w2"].loop_health()[0].gauges["leader"] == 1


def test_a_lease_alone_makes_a_node_that_is_missed(world: NodeWorld) -> None:
    world.worker()
    world.run(10)
    world.renew("backup", lease_s=LONG_S)
    world.run(10)
    assert world.ready("backup") == "True"
    world.run(100)
    assert world.ready("backup") == "True"
    world.clock.advance(0)
    for _ in range(LONG_S // 60):
        world.clock.advance(7)  # less than the time that counts as blindness
        world.run(2)
        world.clock.advance(7)
        world.run(2)
        if world.ready("backup") == "Unknown":
            break
        world.clock.advance(0)
        for _ in range(5):
            world.clock.advance(7)
            world.workers["w1"].tick()
    assert world.ready("backup") == "Unknown"
    assert world.reasons("backup") == {"NodeReady": 1, "NodeNotReady": 1}
    world.renew("backup", lease_s=LONG_S)
    world.run(10)
    assert world.ready("backup") == "True"
    assert world.reasons("backup") == {"NodeReady": 2, "NodeNotReady": 1}
    world.leases.delete("backup", NODE_LEASES)
    world.run(10)
    assert world.ready("backup") == ""
    assert world.reasons("backup") == {"NodeReady": 2, "NodeNotReady": 1}


def test_a_grace_of_a_day_survives_the_worker_that_began_it(world: NodeWorld) -> None:
    world.worker("w1")
    world.renew("backup", lease_s=25 * 3600)
    world.run(10)
    world.kill("w1")
    world.clock.advance(24.5 * 3600)
    world.worker("w2")
    world.run(60)
    assert world.ready("backup") == "True"
    world.kill("w2")
    world.clock.advance(1800)
    world.worker("w3")
    world.run(620)  # ten minutes are left to it at the least
    assert world.ready("backup") == "Unknown"


def test_a_sign_that_came_while_no_worker_ran_brings_a_node_back(world: NodeWorld) -> None:
    world.worker("w1")
    world.renew("backup")
    world.run(60)
    assert world.ready("backup") == "Unknown"
    world.kill("w1")
    world.clock.advance(100)
    world.renew("backup")
    world.worker("w2")
    world.run(14)
    assert world.ready("backup") == "True"


def test_a_worker_that_begins_does_not_bring_the_dead_back(world: NodeWorld) -> None:
    world.worker("w1")
    world.agent("n1")
    world.renew("backup")
    world.run(20)
    world.kill("n1")
    world.run(60)
    world.kill("w1")
    world.worker("w2")
    world.run(120)
    assert world.ready("n1") == world.ready("backup") == "Unknown"
    assert world.reasons("n1")["NodeNotReady"] == world.reasons("backup")["NodeNotReady"] == 1


def test_a_node_that_never_told_its_state_is_given_a_minute(world: NodeWorld) -> None:
    world.worker()
    world.nodes.create(Node(metadata=ObjectMeta(name="n1")))
    world.run(60)
    assert world.ready("n1") == "none"
    world.run(8)
    condition = world.nodes.get("n1").status.condition("Ready")
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "NodeStatusNeverUpdated")


def test_a_clean_stop_takes_lease_and_node_away_without_noise(world: NodeWorld) -> None:
    world.worker()
    agent = world.agent("n1")
    world.run(30)
    agent.agent.leave()
    world.agents.clear()
    world.run(100)
    assert world.ready("n1") == ""
    with pytest.raises(NotFound):
        world.leases.get("n1", NODE_LEASES)
    assert "NodeNotReady" not in world.reasons("n1")


def test_a_node_that_was_deleted_while_its_agent_runs_is_registered_anew(world: NodeWorld) -> None:
    world.worker()
    world.agent("n1")
    world.run(30)
    before = world.nodes.get("n1").metadata.uid
    world.leases.delete("n1", NODE_LEASES)
    world.nodes.delete("n1")
    world.run(30)
    assert world.nodes.get("n1").metadata.uid != before
    assert world.ready("n1") == "True"
    assert "NodeNotReady" not in world.reasons("n1")


def test_a_node_that_is_deleted_without_its_lease_leaves_and_a_new_sign_brings_it_back(world: NodeWorld) -> None:
    """As `kubectl delete node` does it, which knows nothing of leases."""
    world.worker("w1")
    world.worker("w2")
    world.agent("n1")
    world.renew("backup", lease_s=3600)
    world.run(30)
    world.kill("n1")
    for name in ("n1", "backup"):
        world.nodes.delete(name)
    world.run(100)
    assert [world.ready("n1"), world.ready("backup")] == ["", ""]
    assert [lease.metadata.namespace for lease in world.leases.list().items] == [LIFECYCLE_LEASE[0]]
    assert "NodeNotReady" not in world.reasons("n1") + world.reasons("backup")
    world.renew("backup", lease_s=3600)
    world.run(10)
    assert world.ready("backup") == "True"


def test_a_sign_right_behind_the_deletion_of_a_node_counts(world: NodeWorld) -> None:
    world.worker()
    world.renew("backup", lease_s=3600)
    world.run(30)
    world.nodes.delete("backup")
    world.renew("backup", lease_s=3600)
    world.run(10)
    assert world.ready("backup") == "True"


def test_an_agent_whose_node_alone_was_deleted_comes_back(world: NodeWorld) -> None:
    world.worker()
    world.agent("n1")
    world.run(30)
    world.nodes.delete("n1")
    world.run(100)
    assert world.ready("n1") == "True"
    assert world.nodes.get("n1").status.node_info.kubelet_version
    assert "NodeNotReady" not in world.reasons("n1")


def test_nodes_that_are_silent_for_long_leave(world: NodeWorld) -> None:
    world.worker(pace=Pace(forget_after_s=200))
    world.agent("n1")
    world.run(20)
    world.kill("n1")
    world.run(200)
    assert world.ready("n1") == "Unknown"
    world.run(60)
    assert world.ready("n1") == ""
    assert world.reasons("n1")["NodeNotReady"] == 1


def test_most_nodes_at_once_are_a_partial_disruption_and_go_slowly(world: NodeWorld) -> None:
    world.worker()
    names = [f"n{number}" for number in range(10)]
    for name in names:
        world.agent(name)
    world.run(60)
    for name in names[:8]:
        world.kill(name)
    world.run(60)
    lost = [name for name in names if world.ready(name) == "Unknown"]
    assert 1 <= len(lost) <= 3
    for name in names[:8]:
        if name not in lost:
            world.agent(name)
    world.run(60)
    assert [name for name in names if world.ready(name) == "Unknown"] == lost
    said = [event for event in world.events() if event.reason == "PartialDisruption"]
    assert [(event.type, event.involved_object.kind) for event in said] == [("Warning", "Worker")]


def test_a_partial_disruption_counts_nodes_that_were_marked_within_the_minute(world: NodeWorld) -> None:
    world.worker()
    for number in range(5):
        world.agent(f"n{number}")
    world.run(60)
    world.kill("n0")
    world.kill("n1")
    world.run(20)
    world.kill("n2")
    world.run(60)
    messages = [event.message for event in world.events() if event.reason == "PartialDisruption"]
    assert [message.partition(":")[0] for message in messages] == ["3 of 5 nodes fell silent within a minute"]


def test_an_agents_own_truth_stands_over_what_was_said_of_it(world: NodeWorld) -> None:
    world.worker()
    agent = world.agent("n1")
    world.run(20)
    agent.frozen = True
    world.run(60)
    found = world.nodes.get("n1")
    assert world.ready("n1") == "Unknown"
    agent.frozen, agent.machine.free = False, 1 * GIB
    world.run(12)
    ready, disk = (world.nodes.get("n1").status.condition(type) for type in ("Ready", "DiskPressure"))
    assert ready is not None
    assert disk is not None
    assert (ready.status, ready.reason, disk.status) == ("True", "AgentReady", "True")
    assert found.metadata.uid == world.nodes.get("n1").metadata.uid


def test_a_node_whose_agent_renews_and_says_nothing_is_brought_back_after_half_a_minute(world: NodeWorld) -> None:
    world.worker()
    agent = world.agent("n1")
    world.run(20)
    agent.frozen = True
    world.run(60)
    for _ in range(3):
        world.renew("n1")
        world.run(8)
    assert world.ready("n1") == "Unknown"
    world.renew("n1")
    world.run(12)
    assert world.ready("n1") == "True"
    assert world.reasons("n1") == {"NodeReady": 2, "Starting": 1, "NodeNotReady": 1}


def test_a_flushed_server_is_filled_again_by_those_who_live(own_world: tuple[NodeWorld, EmbeddedServer]) -> None:
    world, _ = own_world
    world.worker()
    world.agent("n1")
    world.run(30)
    world.client.flushall()
    world.bus.open_partition(world.client, 0)
    world.run(60)
    assert world.ready("n1") == "True"


def test_leases_reach_back_for_seconds_only(world: NodeWorld) -> None:
    keys = world.bus.keys[0]
    world.leases.kind  # noqa: B018
    storage = world.leases._storage
    bound = storage._options.changes_bytes  # type: ignore[attr-defined]
    assert bound < world.bus.options.changes_bytes
    small = msgspec.structs.replace(storage._options, changes_bytes=1024 * 1024)  # type: ignore[attr-defined]
    storage._options = small  # type: ignore[attr-defined]
    for _ in range(100):
        world.renew("n1", at=world.now() + timedelta(microseconds=1), holder=secrets.token_hex(32_000))
        world.clock.advance(0.001)
    assert world.client.memory_usage(keys.changes_of("leases"), 0) < 3 * 1024 * 1024


# -- pods of a node that is lost --------------------------------------------------------------------------------------


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


# -- the local copy that a worker polls, and the election -------------------------------------------------------------


def test_a_poll_tells_what_was_written_and_what_is_gone(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    assert cache.poll() == Polled(set(), set())
    world.renew("a")
    world.renew("b")
    assert cache.poll() == Polled({"a", "b"}, set())
    world.clock.advance(1)
    world.renew("a")
    world.leases.delete("b", NODE_LEASES)
    world.renew("c")
    world.leases.delete("c", NODE_LEASES)
    assert cache.poll() == Polled({"a"}, {"b", "c"})
    assert cache.poll() == Polled(set(), set())
    assert (list(cache.items), cache.lists) == (["a"], 1)


def test_changes_that_were_trimmed_are_made_up_for_by_a_list(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    world.renew("a")
    world.renew("b")
    cache.poll()
    world.clock.advance(1)
    world.renew("a")
    world.leases.delete("b", NODE_LEASES)
    world.renew("c")
    world.client.xtrim(world.bus.keys[0].changes_of("leases"), maxlen=1, approximate=False)
    assert cache.poll() == Polled({"a", "c"}, {"b"})
    assert cache.lists == 2


def test_a_store_that_was_made_anew_is_listed(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    world.renew("a")
    cache.poll()
    keys = world.bus.keys[0]
    for key in world.client.scan_iter(match=keys.root + b"*leases*", count=10_000):
        world.client.delete(key)
    assert cache.poll() == Polled(set(), {"a"})


def candidate(world: NodeWorld, identity: str) -> Election:
    return Election(leases=world.leases, clock=world.clock, identity=identity, now=lambda: datetime.now(UTC))


def test_one_of_two_candidates_is_elected_and_the_other_when_it_renews_no_more(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert [one.campaign(), two.campaign()] == [True, False]
    for _ in range(10):
        world.clock.advance(2)
        assert [one.campaign(), two.campaign()] == [True, False]
    world.clock.advance(6)
    assert [one.leads, two.campaign()] == [False, False]
    world.clock.advance(2)
    assert two.campaign()
    assert not one.campaign()
    namespace, name = LIFECYCLE_LEASE
    assert world.leases.get(name, namespace).spec.holder_identity == "two"


def test_who_resigns_makes_room_at_once(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert one.campaign()
    one.resign()
    assert (one.leads, two.campaign()) == (False, True)


def test_a_candidate_that_slept_does_not_take_the_lease_of_one_who_renews(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert [one.campaign(), two.campaign()] == [True, False]
    for _ in range(30):
        world.clock.advance(2)
        assert one.campaign()
    assert not two.campaign()
    assert one.campaign()


# -- the writer of a status among others ------------------------------------------------------------------------------


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
