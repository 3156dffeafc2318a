"""Pod of core/v1: processes that are started and stopped together, with their spec and status.

Unused fields (affinity, tolerations, …) have the type `Any` and are stored and returned unchanged. Defaults are the API
server's, and are written to the JSON as the API server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from eventbus.model.event import Instant, Int32, Int64, ObjectMeta
from eventbus.model.frozen import EMPTY, FrozenStruct
from eventbus.model.objects.container import Container, PodSecurityContext
from eventbus.model.objects.volume import Volume


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


#: The finalizer of the agent that runs a pod of the bus: a deleted pod stays until all its processes have ended, or
#: until it is deleted by force.
RUNNING_FINALIZER: Final = "agent.eventbus.dev/running"
#: The error for a change of a pod's node: for a while, the agents of both nodes would run the pod.
STAYS: Final = "a pod stays on its node; delete it, and create it again for another node"


def _always() -> str:
    return "Always"


def _grace() -> int:
    return 30


class PodSpec(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """The processes to run. Times are seconds; *restart_policy* is Always, OnFailure or Never.

    Source: k8s.io/api core/v1 types.go PodSpec.
    """

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = msgspec.field(default_factory=tuple)
    ephemeral_containers: Any = None
    restart_policy: str = msgspec.field(default_factory=_always)
    termination_grace_period_seconds: Int64 = msgspec.field(default_factory=_grace)
    active_deadline_seconds: Int64 | None = None
    dns_policy: str = ""
    node_selector: Mapping[str, str] = EMPTY
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: Any = None
    hostname: str = ""
    subdomain: str = ""
    affinity: Any = None
    scheduler_name: str = ""
    tolerations: Any = None
    host_aliases: Any = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    dns_config: Any = None
    readiness_gates: Any = None
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: Any = None
    topology_spread_constraints: Any = None
    set_hostname_as_fqdn: bool | None = msgspec.field(default=None, name="setHostnameAsFQDN")
    os: Any = None
    host_users: bool | None = None
    scheduling_gates: Any = None
    resource_claims: Any = None
    resources: Any = None

    @property
    def every_container(self) -> tuple[Container, ...]:
        """Return its init containers, and then the others."""
        return (*self.init_containers, *self.containers)


class Pod(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One core/v1 Pod, in a namespace.

    Change it with `msgspec.structs.replace`.

    Source: k8s.io/api core/v1 types.go. Departure: fields that are not of core/v1 are dropped when JSON is read.
    """

    kind: ClassVar[str] = "Pod"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
