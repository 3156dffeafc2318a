"""The containers of a Pod: one process each, its environment, hooks and probes.

Defaults are the API server's, and stand in the JSON as they do there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from eventbus.model.event import Int32, Int64
from eventbus.model.frozen import EMPTY, FrozenStruct

#: The number of a port, or the name of one of the container's.
Port: TypeAlias = int | str


def _empty() -> str:
    return ""


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A port that the process listens on. Without a network of its own, hostPort is the same port."""

    name: str = ""
    host_port: Int32 = 0
    container_port: Int32 = 0
    #: Written always, as the API server's defaults are.
    protocol: str = msgspec.field(default_factory=lambda: "TCP")
    host_ip: str = msgspec.field(default="", name="hostIP")


class KeySelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One key of a ConfigMap or Secret; *optional*: without it the variable is left out."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class ObjectFieldSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A field of the pod itself: metadata.name, spec.nodeName, status.podIP, metadata.labels['KEY'], …"""

    api_version: str = ""
    field_path: str = ""


class ResourceFieldSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A limit or request of a container, as a number of *divisor*s."""

    container_name: str = ""
    resource: str = ""
    divisor: str | int = ""


class EnvVarSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The source of a variable's value: one of these."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A variable. `$(NAME)` in *value* is an earlier one's value, `$$` a dollar sign."""

    name: str = msgspec.field(default_factory=_empty)
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvFrom(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str = ""
    config_map_ref: KeySelector | None = None
    secret_ref: KeySelector | None = None


class ResourceRequirements(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """A container's resource limits and requests. Quantities are text or numbers: `500m`, `64Mi`, 2."""

    limits: Mapping[str, Any] = EMPTY
    requests: Mapping[str, Any] = EMPTY
    claims: Any = None


class VolumeMount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The place of a volume in a container's files."""

    name: str = msgspec.field(default_factory=_empty)
    read_only: bool = False
    mount_path: str = msgspec.field(default_factory=_empty)
    sub_path: str = ""
    mount_propagation: str | None = None
    sub_path_expr: str = ""
    recursive_read_only: str | None = None


class ExecAction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A command without a shell; exit code 0 is success."""

    command: tuple[str, ...] = ()


class HTTPHeader(msgspec.Struct, frozen=True, rename="camel"):
    """A header to send."""

    name: str = ""
    value: str = ""


class HTTPGetAction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A GET; 200..399 is success. *host* "" is this machine."""

    path: str = ""
    port: Port = msgspec.field(default_factory=int)
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A connection; that it is accepted is success."""

    port: Port = msgspec.field(default_factory=int)
    host: str = ""


class SleepAction(msgspec.Struct, frozen=True, rename="camel"):
    """A pause."""

    seconds: Int64 = 0


def _one() -> int:
    return 1


def _three() -> int:
    return 3


class Probe(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """A question asked of a container again and again. Times are seconds."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: Any = None
    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = msgspec.field(default_factory=_one)
    period_seconds: Int32 = msgspec.field(default_factory=lambda: 10)
    success_threshold: Int32 = msgspec.field(default_factory=_one)
    failure_threshold: Int32 = msgspec.field(default_factory=_three)
    termination_grace_period_seconds: Int64 | None = None


class LifecycleHandler(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The action of a hook: one of these."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Hooks: after the start, and before the end."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None


class SecurityContext(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """The permissions of a container; each field overrides the pod's."""

    capabilities: Any = None
    privileged: bool | None = None
    se_linux_options: Any = None
    windows_options: Any = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: Any = None
    app_armor_profile: Any = None


class PodSecurityContext(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """The rights of all containers of a pod."""

    se_linux_options: Any = None
    windows_options: Any = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int64, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: Int64 | None = None
    sysctls: Any = None
    fs_group_change_policy: str | None = None
    seccomp_profile: Any = None
    app_armor_profile: Any = None
    se_linux_change_policy: str | None = None


def _no_resources() -> ResourceRequirements:
    return ResourceRequirements()


class Container(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """One process of a pod. Without a *command*, the image (a `file:` archive) has to name one.

    Source: k8s.io/api core/v1 types.go Container.
    """

    name: str = msgspec.field(default_factory=_empty)
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = msgspec.field(default_factory=_no_resources)
    resize_policy: Any = None
    restart_policy: str | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: Any = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
