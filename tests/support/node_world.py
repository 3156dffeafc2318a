"""Nodes, their agents and lifecycle workers on a real server, and a clock that is the test's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from eventbus.agent.node.agent import Agent
from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.factory import open_objects
from eventbus.agent.node.lease_renewal import LeaseRenewal
from eventbus.agent.node.machine import Disk, Identity, Machine, Memory
from eventbus.agent.node.node_status import NodeStatusFunc, NodeStatusSetters
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_transport import RedisTransport
from eventbus.errors import NotFound
from eventbus.lifecycle.election import Election
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.lifecycle.node_monitor import NodeMonitor, Pace
from eventbus.lifecycle.runner import LifecycleRunner
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event
from eventbus.model.kinds import LEASE, NODE, POD
from eventbus.model.objects.cluster import NODE_LEASES, Lease
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.testing.clock import FakeClock

#: Seconds that the clock moves at a time.
STEP_S = 2.0
GIB = 1024**3


class FakeMachine(Machine):
    """A machine with numbers that a test sets."""

    def __init__(self) -> None:
        self.available, self.free, self.processes, self.boot = 8 * GIB, 80 * GIB, 200, "boot-1"

    def hostname(self) -> str:
        return "host-1"

    def addresses(self) -> tuple[str, ...]:
        return ("192.0.2.10",)

    def cpus(self) -> int:
        return 2

    def memory(self) -> Memory:
        return Memory(16 * GIB, self.available)

    def disk(self) -> Disk:
        return Disk(100 * GIB, self.free)

    def pids(self) -> tuple[int, int]:
        return self.processes, 32_768

    def boot_id(self) -> str:
        return self.boot


IDENTITY = Identity("m", "s", "6.1.0", "Debian GNU/Linux 12 (bookworm)", "linux", "amd64", "v0.2.0", "process://0.2.0")


class OffsetClock:
    """Another machine's clock: the same seconds, another time of day."""

    def __init__(self, clock: FakeClock, offset_s: float) -> None:
        self._clock = clock
        self.offset_s = offset_s
        self.monotonic, self.sleep = clock.monotonic, clock.sleep

    def time_ns(self) -> int:
        return self._clock.time_ns() + int(self.offset_s * 1e9)


class SimulatedAgent:
    """An agent that does its rounds when the world's clock says so. *frozen*: it was stopped, or its machine was."""

    def __init__(self, agent: Agent, machine: FakeMachine, every_s: float, begun: float) -> None:
        self.agent, self.machine = agent, machine
        self.frozen = False
        self._every_s = every_s
        self._due = begun

    def tick(self, now: float) -> None:
        if not self.frozen and now >= self._due:
            self._due = now + self._every_s
            self.agent.status_round()
            self.agent.lease_round()


def recorded_events(bus: Bus, client: Client) -> list[Event]:
    """All of the stream, oldest first and before correlation: a repeat is an event of its own."""
    found: list[Event] = []
    for keys in bus.keys:
        entries: Any = client.xrange(keys.incoming)
        for _, fields in entries:
            found += [unpack_event(packed) for packed in unpack_batch(fields[b"b"]).events]
    return found


class NodeWorld:
    """Everything of one test. Events are read from the stream, so that repeats are seen one by one."""

    def __init__(self, bus: Bus, clock: FakeClock) -> None:
        self.bus, self.clock = bus, clock
        self.client: Client = bus.client(name="node-world")
        self.nodes = open_objects(bus, self.client, NODE, clock)
        self.leases = open_objects(bus, self.client, LEASE, clock)
        self.pods = open_objects(bus, self.client, POD, clock)
        self.agents: dict[str, SimulatedAgent] = {}
        self.workers: dict[str, LifecycleRunner] = {}
        self.lost: list[tuple[str, str]] = []  # what `on_lost` of the workers was called with: node and reason
        self._occurrences: list[OccurrenceRecorder] = []

    def agent(
        self,
        name: str,
        *,
        lease_s: int = 40,
        offset_s: float = 0.0,
        machine: FakeMachine | None = None,
        functions: tuple[NodeStatusFunc, ...] = (),
        keep_node: bool = False,
    ) -> SimulatedAgent:
        """Start an agent: its first rounds come with the next step."""
        clock, machine = OffsetClock(self.clock, offset_s), machine or FakeMachine()
        contact = BusContact(clock)
        setters = NodeStatusSetters(machine=machine, identity=IDENTITY, clock=clock, contact=contact)
        agent = Agent(
            name=name,
            nodes=self.nodes,
            remove_node=lambda: self.nodes.delete(name),
            lease=LeaseRenewal(leases=self.leases, clock=clock, name=name, holder=name, duration_s=lease_s),
            lease_s=lease_s,
            occurrences=self._recorder("eventbus-agent"),
            clock=clock,
            contact=contact,
            labels=lambda: {"kubernetes.io/hostname": name},
            node_status_funcs=[*setters.in_order(), *functions],
            keep_node=lambda: keep_node,
        )
        every_s = min(10.0, lease_s / 4)
        self.agents[name] = SimulatedAgent(agent, machine, every_s, self.clock.monotonic())
        return self.agents[name]

    def worker(
        self, identity: str = "w1", *, offset_s: float = 0.0, pace: Pace | None = None, **more: Any
    ) -> LifecycleRunner:
        """Start a lifecycle worker, which ticks with every step."""
        clock, pace = OffsetClock(self.clock, offset_s), pace or Pace()
        occurrences = more.pop("occurrences", None) or self._recorder("eventbus-lifecycle")
        monitor = NodeMonitor(
            nodes=more.pop("nodes", self.nodes),
            leases=self.leases,
            clock=clock,
            now=self.now,
            occurrences=occurrences,
            identity=identity,
            pace=pace,
            lost_pods=LostPods(self.pods, self.now),
            on_lost=lambda name, transition: self.lost.append((name, transition.reason)),
        )
        election = Election(leases=self.leases, clock=clock, identity=identity, now=self.now)
        self.workers[identity] = LifecycleRunner(
            monitor=monitor, election=election, occurrences=occurrences, clock=clock, pace=pace, **more
        )
        return self.workers[identity]

    def now(self) -> datetime:
        """The server's time, which goes as the test's."""
        return datetime.fromtimestamp(self.clock.time_ns() / 1e9, UTC)

    def run(self, seconds: float, each: Callable[[], object] = lambda: None) -> None:
        """Let *seconds*, a multiple of STEP_S, pass: agents do their due work, then workers."""
        steps, rest = divmod(seconds, STEP_S)
        assert not rest
        for _ in range(int(steps)):
            for agent in list(self.agents.values()):
                agent.tick(self.clock.monotonic())
            for worker in list(self.workers.values()):
                worker.tick()
            each()
            self.clock.advance(STEP_S)

    def kill(self, name: str) -> None:
        """An agent or a worker dies, without a word."""
        if self.agents.pop(name, None) is None:
            del self.workers[name]

    def ready(self, name: str) -> str:
        """The status of the condition Ready; "": there is no such node."""
        with suppress(NotFound):
            condition = self.nodes.get(name).status.condition("Ready")
            return condition.status if condition else "none"
        return ""

    def renew(self, name: str, *, lease_s: int = 40, at: datetime | None = None, holder: str = "") -> None:
        """Put a lease as a client of the API would, without an agent."""
        spec = LEASE.type().spec
        spec = type(spec)(holder_identity=holder or name, lease_duration_seconds=lease_s, renew_time=at or self.now())
        metadata = NODE.type().metadata
        lease = Lease(metadata=type(metadata)(name=name, namespace=NODE_LEASES), spec=spec)
        try:
            self.leases.update(lease)
        except NotFound:
            self.leases.create(lease)

    def events(self) -> list[Event]:
        """All that were ever recorded, oldest first."""
        return recorded_events(self.bus, self.client)

    def reasons(self, name: str) -> Counter[str]:
        """Return the number of events of the node by reason."""
        about = [event for event in self.events() if event.involved_object.name == name]
        return Counter(event.reason for event in about if event.involved_object.kind == "Node")

    def close(self) -> None:
        for recorder in self._occurrences:
            recorder.close()
        self.client.close()

    def _recorder(self, component: str) -> OccurrenceRecorder:
        made = OccurrenceRecorder(RedisTransport(self.bus), clock=self.clock, component=component)
        self._occurrences.append(made)
        return made
