"""Node of core/v1 with the rules of its conditions, Lease of coordination.k8s.io/v1, and Namespace of core/v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

import msgspec

from eventbus.model.event import Instant, Int32, ObjectMeta
from eventbus.model.frozen import EMPTY, FrozenStruct


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    """Keeps work away from the node: *effect* is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Instant | None = None


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The desired state of the node."""

    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition: true, false or unknown. *type* is Ready and others; *status* is True, False, Unknown."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: Instant | None = None
    last_transition_time: Instant | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(msgspec.Struct, frozen=True, rename="camel"):
    """An address of the node: *type* is Hostname, InternalIP, ExternalIP, …"""

    type: str = ""
    address: str = ""


class NodeSystemInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Facts about the node's machine and system."""

    machine_id: str = msgspec.field(default="", name="machineID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")
    boot_id: str = msgspec.field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class NodeStatus(FrozenStruct, frozen=True, rename="camel"):
    """The state that the node reports of itself. Capacities are quantities as text, `4`, `16Gi`."""

    capacity: Mapping[str, str] = EMPTY
    allocatable: Mapping[str, str] = EMPTY
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    phase: str = ""

    def condition(self, type: str) -> NodeCondition | None:
        """Return the condition of that type."""
        return next((condition for condition in self.conditions if condition.type == type), None)


class Node(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One core/v1 Node, cluster-scoped.

    Change it with `msgspec.structs.replace`.

    Source: k8s.io/api core/v1 types.go. Departure: only these fields; others are dropped when JSON is read.
    """

    kind: ClassVar[str] = "Node"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


#: The namespace of the nodes' leases; each lease has its node's name.
NODE_LEASES: Final = "kube-node-lease"
#: Namespace and name of the lease for the leader election of lifecycle workers.
LIFECYCLE_LEASE: Final = ("eventbus-system", "eventbus-lifecycle")
#: The duration of a lease that does not set its own.
DEFAULT_LEASE_S: Final = 40

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
READY: Final = "Ready"
MEMORY_PRESSURE: Final = "MemoryPressure"
DISK_PRESSURE: Final = "DiskPressure"
PID_PRESSURE: Final = "PIDPressure"
NETWORK_UNAVAILABLE: Final = "NetworkUnavailable"

#: The reasons of a lost node: it stopped its reports, or never sent one.
STATUS_UNKNOWN, NEVER_UPDATED = "NodeStatusUnknown", "NodeStatusNeverUpdated"

NORMAL, WARNING = "Normal", "Warning"
#: Condition → reasons of the events that say it is True, and that it is not.
_REASONS: Final = {
    READY: ("NodeReady", "NodeNotReady"),
    MEMORY_PRESSURE: ("NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    DISK_PRESSURE: ("NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    PID_PRESSURE: ("NodeHasInsufficientPID", "NodeHasSufficientPID"),
}


class Transition(NamedTuple):
    """An event for a change of a node's status: its type, reason, message and the time of the change."""

    type: str
    reason: str
    message: str
    at: datetime | None


def with_condition(
    status: NodeStatus, type: str, value: str, reason: str, message: str, now: datetime, heartbeat: datetime | None
) -> NodeStatus:
    """*status* with that condition in its place; lastTransitionTime moves only if *value* is another than before."""
    now, heartbeat = now.replace(microsecond=0), heartbeat and heartbeat.replace(microsecond=0)
    former = status.condition(type)
    since = former.last_transition_time if former and former.status == value else now
    condition = NodeCondition(type, value, heartbeat, since or now, reason, message)
    if former is None:
        return msgspec.structs.replace(status, conditions=(*status.conditions, condition))
    conditions = tuple(
        condition if former_condition.type == type else former_condition for former_condition in status.conditions
    )
    return msgspec.structs.replace(status, conditions=conditions)


def differs_beyond_heartbeats(status: NodeStatus, other: NodeStatus) -> bool:
    """True if more than the heartbeat times of the conditions differs."""
    return _without_heartbeats(status) != _without_heartbeats(other)


def transitions(before: NodeStatus, after: NodeStatus, name: str) -> Iterator[Transition]:
    """Yield the events for a write that changed *before* to *after*.

    Source:     kubelet `nodestatus/setters.go`, node controller `RecordNodeStatusChange`.
    Departures: bad conditions are Warnings, so that a list of warnings contains dead nodes; a pressure condition that
                was unknown before and is absent now makes no event.
    """
    for condition in after.conditions:
        former = before.condition(condition.type)
        was = former.status if former else ""
        if condition.type in _REASONS and condition.status != was and _is_news(condition, was):
            holds = condition.status == TRUE
            good = holds == (condition.type == READY)
            reason = _REASONS[condition.type][0 if holds else 1]
            message = f"Node {name} status is now: {reason}"
            yield Transition(NORMAL if good else WARNING, reason, message, condition.last_transition_time)


def _is_news(condition: NodeCondition, was: str) -> bool:
    """Return False if the condition has only its default, or again the value from before the node was lost."""
    if condition.type == READY:
        return not (was == UNKNOWN and condition.status == FALSE)
    return condition.status == TRUE or (condition.status == FALSE and was == TRUE)


def rebooted(before: Node, after: Node) -> Transition | None:
    """Return the event for a reboot of the node's machine since the last write of its status, or None."""
    former, boot_id = before.status.node_info.boot_id, after.status.node_info.boot_id
    if not former or not boot_id or former == boot_id:
        return None
    message = f"Node {after.metadata.name} has been rebooted, boot id: {boot_id}"
    return Transition(WARNING, "Rebooted", message, None)


def _without_heartbeats(status: NodeStatus) -> NodeStatus:
    conditions = tuple(msgspec.structs.replace(condition, last_heartbeat_time=None) for condition in status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The holder and the times of a lease. None is unset, as Go's pointers are; times have microseconds in JSON."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Instant | None = None
    renew_time: Instant | None = None
    lease_transitions: Int32 | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One coordination.k8s.io/v1 Lease, in a namespace.

    Change it with `msgspec.structs.replace`.

    Source: k8s.io/api coordination/v1 types.go. Departure: without strategy and preferredHolder.
    """

    kind: ClassVar[str] = "Lease"
    api_version: ClassVar[str] = "coordination.k8s.io/v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


#: The finalizer in every namespace's spec.
FINALIZER: Final = "kubernetes"


class NamespaceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """*finalizers* are stored unchanged; deletion does not wait for them."""

    finalizers: tuple[str, ...] = (FINALIZER,)


class NamespaceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """*phase* is always Active: a namespace that is deleted is gone at once."""

    phase: str = "Active"


class Namespace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A core/v1 Namespace. A namespace can be used without creating this object.

    Source: k8s.io/api core/v1 types.go. Departure: without conditions.
    """

    kind: ClassVar[str] = "Namespace"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()
