"""Pod of core/v1: processes that are started and stopped together, with their spec and status.

Unused fields (affinity, tolerations, …) have the type `Any` and are stored and returned unchanged. Defaults are the API
server's, and are written to the JSON as the API server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from eventbus.model.event import Int32, Int64, ObjectMeta
from eventbus.model.frozen import EMPTY, FrozenStruct
from eventbus.model.objects.container import Container, PodSecurityContext
from eventbus.model.objects.pod_status import PodStatus
from eventbus.model.objects.volume import Volume

#: The finalizer of the agent that runs a pod of the bus: a deleted pod stays until all its processes have ended, or
#: until it is deleted by force.
RUNNING_FINALIZER: Final = "agent.eventbus.dev/running"
#: The error for a change of a pod's node: for a while, the agents of both nodes would run the pod.
STAYS: Final = "a pod stays on its node; delete it, and make it anew for another one"


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


__all__ = ["Pod", "PodSpec"]
