"""Status of a Pod: its phase and conditions, and the states of its containers."""

from __future__ import annotations

from typing import Any

import msgspec

from eventbus.model.event import Instant, Int32, Int64
from eventbus.model.frozen import FrozenStruct


def _pending() -> str:
    return "Pending"


class ContainerStateWaiting(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Not running yet, or not again: *reason* is ContainerCreating, CrashLoopBackOff, ErrImageNeverPull, …"""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Its process runs."""

    started_at: Instant | None = None


class ContainerStateTerminated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Its process has ended: *exit_code*, or 128 + *signal*. *reason*: Completed, Error, OOMKilled, …"""

    exit_code: Int32 = msgspec.field(default_factory=int)
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of a container: at most one field is set; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one container, and the end of its last run (`lastState`)."""

    name: str = msgspec.field(default_factory=str)
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    ready: bool = msgspec.field(default_factory=bool)
    restart_count: Int32 = msgspec.field(default_factory=int)
    image: str = msgspec.field(default_factory=str)
    image_id: str = msgspec.field(default_factory=str, name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    started: bool | None = None
    allocated_resources: Any = None
    resources: Any = None
    volume_mounts: Any = None
    user: Any = None
    allocated_resources_status: Any = None
    stop_signal: str | None = None


class PodCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition: *type* is PodScheduled, Initialized, ContainersReady, Ready, …; *status* True, False, Unknown."""

    type: str = msgspec.field(default_factory=str)
    observed_generation: Int64 = 0
    status: str = msgspec.field(default_factory=str)
    last_probe_time: Instant | None = None
    last_transition_time: Instant | None = None
    reason: str = ""
    message: str = ""


class PodIP(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An address of the pod, or of its host."""

    ip: str = ""


class PodStatus(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """The state that the agent reports of a pod. *phase*: Pending, Running, Succeeded, Failed, Unknown.

    A pod begins as Pending, as the API server makes it.

    Source: k8s.io/api core/v1 types.go PodStatus.
    """

    observed_generation: Int64 = 0
    phase: str = msgspec.field(default_factory=_pending)
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    host_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="hostIPs")
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    start_time: Instant | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    ephemeral_container_statuses: Any = None
    resize: str = ""
    resource_claim_statuses: Any = None

    def condition(self, type: str) -> PodCondition | None:
        """Return the condition of that type."""
        return next((condition for condition in self.conditions if condition.type == type), None)


__all__ = [
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "PodCondition",
    "PodIP",
    "PodStatus",
]
