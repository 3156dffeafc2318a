"""Node of core/v1: a machine or process that others watch. Fields for the scheduler and the cloud are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from eventbus.model.event import Instant, ObjectMeta
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


__all__ = ["Node", "NodeAddress", "NodeCondition", "NodeSpec", "NodeStatus", "NodeSystemInfo", "Taint"]
