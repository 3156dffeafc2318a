"""Makes an agent of this machine for a bus: its clients, its node's name and labels, its measurements."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from eventbus.agent.node.agent import COMPONENT, STATUS_EVERY_S, Agent
from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.lease_renewal import LeaseObjects, LeaseRenewal
from eventbus.agent.node.machine import Identity, Machine, local_identity
from eventbus.agent.node.node_status import (
    MOST_PODS,
    USUAL,
    NodeStatusFunc,
    NodeStatusSetters,
    Thresholds,
    registered_node_status_funcs,
)
from eventbus.agent.node.status_writer import NodeObjects
from eventbus.agent.runtime.isolation import ISOLATION_LABEL, isolation_name
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_transport import RedisTransport
from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.store import RemoteObjects
from eventbus.client.transport import open_http_transport
from eventbus.errors import ConfigError
from eventbus.model.kinds import LEASE, NODE, Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.model.names import is_dns_subdomain
from eventbus.model.objects.cluster import DEFAULT_LEASE_S
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.store.change_hub import ChangeHub
from eventbus.store.writer import ObjectWriter
from eventbus.util.clock import Clock, SystemClock

T = TypeVar("T", bound=HasMetadata)

_NO_NAME = re.compile(r"[^a-z0-9.-]+")


class Reached(NamedTuple):
    """The bus as an agent reaches it. *close* closes the connections but that of *occurrences*."""

    nodes: NodeObjects
    leases: LeaseObjects
    remove_node: Callable[[str], None]
    occurrences: OccurrenceRecorder
    close: Callable[[], object]


def _reach_redis(bus: Bus, clock: Clock) -> Reached:
    """Reach *bus* itself; the lease has a connection of its own."""
    clients = [bus.client(name=f"{COMPONENT}-{part}") for part in ("status", "lease")]
    nodes = open_objects(bus, clients[0], NODE, clock)
    leases = open_objects(bus, clients[1], LEASE, clock)
    occurrences = OccurrenceRecorder(RedisTransport(bus), clock=clock, component=COMPONENT)
    return Reached(nodes, leases, nodes.delete, occurrences, lambda: _close_all(clients))


def _reach_api(address: ApiAddress, clock: Clock) -> Reached:
    """Reach the bus through an API worker. Raises: BusUnavailable, BusRefused."""
    lines = [ApiConnection(address) for _ in ("status", "lease")]
    nodes = RemoteObjects(address, lines[0], NODE)
    leases = RemoteObjects(address, lines[1], LEASE)
    occurrences = OccurrenceRecorder(open_http_transport(address), clock=clock, component=COMPONENT)
    return Reached(nodes, leases, nodes.delete, occurrences, lambda: _close_all(lines))


def open_agent(
    bus: Bus | ApiAddress,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    node_status_funcs: Sequence[NodeStatusFunc] = (),
    clock: Clock | None = None,
    state_dir: Path | None = None,
    status_every_s: float = STATUS_EVERY_S,
    lease_s: int = DEFAULT_LEASE_S,
    thresholds: Thresholds = USUAL,
    max_pods: int = MOST_PODS,
    keep_node: Callable[[], bool] = lambda: False,
    started: threading.Event | None = None,
    on_change: Callable[[str, str], object] = lambda _reason, _message: None,
) -> Agent:
    """Return an agent for this machine; it sends nothing before its `start`.

    Args:   name: of the node; "": the host's.  labels: besides the host's name, system and architecture.
            node_status_funcs: run after the default ones and before those of the entry points.
            state_dir: a folder on the disk that is watched; None: the current folder.  started: see `Agent`.
    Raises: ConfigError: psutil is missing, or *name* is no name of a node.
    """
    clock = clock or SystemClock()
    machine, identity, contact = Machine(state_dir or Path.cwd()), local_identity(), BusContact(clock, on_change)
    name = name or node_name(machine.hostname())
    if not is_dns_subdomain(name):
        raise ConfigError(f"{name!r} is no name of a node: lower case letters, digits, '-' and '.'; give --node-name")
    own = node_labels(name, identity, labels or {})
    setters = NodeStatusSetters(
        machine=machine,
        identity=identity,
        clock=clock,
        contact=contact,
        thresholds=thresholds,
        max_pods=max_pods,
    )
    reached = _reach_redis(bus, clock) if isinstance(bus, Bus) else _reach_api(bus, clock)
    return Agent(
        name=name,
        nodes=reached.nodes,
        remove_node=lambda: reached.remove_node(name),
        lease=LeaseRenewal(
            leases=reached.leases,
            clock=clock,
            name=name,
            holder=f"{name}_{os.getpid()}",
            duration_s=lease_s,
        ),
        lease_s=lease_s,
        occurrences=reached.occurrences,
        clock=clock,
        contact=contact,
        labels=lambda: own,
        node_status_funcs=[*setters.in_order(), *node_status_funcs, *registered_node_status_funcs()],
        status_every_s=status_every_s,
        keep_node=keep_node,
        started=started,
        closing=reached.close,
    )


def node_labels(name: str, identity: Identity, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the node *name*, with *labels* among them; a pod's nodeSelector may name these."""
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": identity.operating_system,
        "kubernetes.io/arch": identity.architecture,
        ISOLATION_LABEL: isolation_name(),
    }
    return own | dict(labels)


def node_name(hostname: str) -> str:
    """Return the node's name for a host name: the same in lower case, as the kubelet has it."""
    return _NO_NAME.sub("-", hostname.lower()).strip("-.") or "localhost"


def open_objects(bus: Bus, client: Client, kind: Kind[T], clock: Clock) -> ObjectWriter[T]:
    """Return the objects of *kind* over *client*, without watches."""
    return ObjectWriter(bus=bus, client=client, hub=ChangeHub(bus), kind=kind, clock=clock)


def _close_all(clients: Iterable[Client | ApiConnection]) -> None:
    """Close the connections of *clients*."""
    for client in clients:
        client.close()
