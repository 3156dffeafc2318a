"""The sections of `eventbus describe` for a node, in kubectl's order, from the lease on. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventbus.model.columns.events import DESCRIPTION
from eventbus.model.names import parse_quantity
from eventbus.model.objects.cluster import Lease, Node
from eventbus.util.human_duration import age, local_time
from eventbus.util.table import format_table
from eventbus.util.text import printable

#: Phases of pods that use no resources any more.
_TERMINATED: Final = ("Succeeded", "Failed")
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


class Around(NamedTuple):
    """The objects stored besides a node: its lease, and its pods as JSON."""

    lease: Lease | None = None
    pods: Sequence[Mapping[str, Any]] = ()


def node_sections(node: Node, around: Around, now: datetime) -> str:
    """Everything from the lease on, up to the events. Source: kubectl `pkg/describe` describeNode."""
    status = node.status
    info = status.node_info
    system = {
        "Machine ID": info.machine_id,
        "System UUID": info.system_uuid,
        "Boot ID": info.boot_id,
        "Kernel Version": info.kernel_version,
        "OS Image": info.os_image,
        "Operating System": info.operating_system,
        "Architecture": info.architecture,
        "Container Runtime Version": info.container_runtime_version,
        "Kubelet Version": info.kubelet_version,
        "Kube-Proxy Version": info.kube_proxy_version,
    }
    pods = [pod for pod in around.pods if _part(pod, "status", "phase") not in _TERMINATED]
    return (
        _lease(node, around.lease, now)
        + _conditions(node)
        + _section("Addresses", [(one.type, one.address) for one in status.addresses])
        + _section("Capacity", sorted(status.capacity.items()))
        + _section("Allocatable", sorted(status.allocatable.items()))
        + _section("System Info", list(system.items()))
        + _pods(pods, status.allocatable, now)
        + _allocated(pods, status.allocatable)
    )


def _lease(node: Node, lease: Lease | None, now: datetime) -> str:
    if lease is None:
        problem = f'Failed to get lease: leases.coordination.k8s.io "{node.metadata.name}" not found'
        return f"Lease:  {printable(problem)}\n"

    def when(moment: datetime | None) -> str:
        return "<unset>" if moment is None else f"{local_time(moment)} ({age(now, moment)} ago)"

    spec = lease.spec
    rows = [
        ("HolderIdentity", spec.holder_identity or "<unset>"),
        ("AcquireTime", "<unset>" if spec.acquire_time is None else when(spec.acquire_time)),
        ("RenewTime", when(spec.renew_time)),
        ("LeaseDuration", "<unset>" if spec.lease_duration_seconds is None else f"{spec.lease_duration_seconds}s"),
    ]
    return _section("Lease", rows)


def _conditions(node: Node) -> str:
    if not node.status.conditions:
        return ""

    def when(moment: datetime | None) -> str:
        return local_time(moment) if moment else "<unknown>"

    rows = [
        (one.type, one.status, when(one.last_heartbeat_time), when(one.last_transition_time), one.reason, one.message)
        for one in node.status.conditions
    ]
    headers = ("Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message")
    return "Conditions:\n" + _table(headers, rows)


def _pods(pods: Sequence[Mapping[str, Any]], allocatable: Mapping[str, str], now: datetime) -> str:
    headers = ("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age")
    rows = []
    for pod in pods:
        cells = [
            _share(_sum([pod], which, resource), resource, allocatable)
            for resource in ("cpu", "memory")
            for which in ("requests", "limits")
        ]
        created = _part(pod, "metadata", "creationTimestamp")
        aged = age(now, datetime.fromisoformat(created)) if isinstance(created, str) else "<unknown>"
        rows.append((_part(pod, "metadata", "namespace") or "", _part(pod, "metadata", "name") or "", *cells, aged))
    return f"Non-terminated Pods:  ({len(pods)} in total)\n" + _table(headers, rows)


def _allocated(pods: Sequence[Mapping[str, Any]], allocatable: Mapping[str, str]) -> str:
    rows = [
        (
            resource,
            _share(_sum(pods, "requests", resource), resource, allocatable),
            _share(_sum(pods, "limits", resource), resource, allocatable),
        )
        for resource in _RESOURCES
    ]
    head = "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n"
    return head + _table(("Resource", "Requests", "Limits"), rows)


def _sum(pods: Iterable[Mapping[str, Any]], which: str, resource: str) -> float:
    """Sum the resources of all containers of *pods*. Values that are not quantities count as 0."""
    return sum(
        _amount(_part(container, "resources", which, resource))
        for pod in pods
        for container in _part(pod, "spec", "containers") or ()
    )


def _share(amount: float, resource: str, allocatable: Mapping[str, str]) -> str:
    most = _amount(allocatable.get(resource))
    return f"{_quantity(amount, resource)} ({int(100 * amount / most) if most else 0}%)"


def _amount(quantity: object) -> float:
    return parse_quantity(quantity or 0) or 0.0


def _quantity(amount: float, resource: str) -> str:
    if resource == "cpu" and amount % 1:
        return f"{round(amount * 1000)}m"
    if resource != "cpu":
        for suffix, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount and not amount % factor:
                return f"{int(amount / factor)}{suffix}"
    return str(int(amount))


def _part(value: object, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _section(title: str, rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    labels = [f"{printable(name)}:" for name, _ in rows]
    width = max(map(len, labels)) + 2
    lines = [f"  {name:<{width}}{printable(value)}".rstrip() for name, (_, value) in zip(labels, rows, strict=True)]
    return f"{title}:\n" + "".join(f"{line}\n" for line in lines)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruled = [tuple("-" * len(header) for header in headers), *rows]
    return format_table(headers, ruled, layout=DESCRIPTION)
