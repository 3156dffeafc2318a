"""The columns of every kind as kubectl prints them: pure functions from an object and the time to cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from eventbus.model.columns.events import get_headers, get_row
from eventbus.model.event import Event
from eventbus.model.kinds import ACKNOWLEDGEMENT, CONFIGMAP, EVENT, LEASE, NODE, POD, SECRET, SILENCE, Kind
from eventbus.model.objects.cluster import Lease, Node
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import ContainerStatus, Pod
from eventbus.model.objects.silence import Acknowledgement, Silence
from eventbus.util.human_duration import age
from eventbus.util.table import Row

_ROLE = "node-role.kubernetes.io/"
NONE, _UNKNOWN = "<none>", "<unknown>"


class Columns(NamedTuple):
    """The headers of a table, and the cells of an object: narrow and wide. The namespace is put before them."""

    headers: tuple[str, ...]
    wide_headers: tuple[str, ...]
    row: Callable[[Any, datetime, bool, bool], Row]  #: object, now, wide, colour


def columns_of(kind: Kind[Any]) -> Columns:
    """Return the columns of the kind; for a kind defined by a user, name and age."""
    return _COLUMNS.get(kind.plural, _PLAIN)


def object_name(kind: Kind[Any], name: str) -> str:
    """Format the name as `-o name` does: `node/n1`, `lease.coordination.k8s.io/n1`."""
    group, slash, _ = kind.api_version.rpartition("/")
    return f"{kind.name.lower()}.{group}/{name}" if slash else f"{kind.name.lower()}/{name}"


def node_status(node: Node) -> str:
    """Format a node's status. Source: kubernetes `pkg/printers/internalversion/printers.go` printNode."""
    ready = node.status.condition("Ready")
    status = "Unknown" if ready is None else "Ready" if ready.status == "True" else "NotReady"
    return status + (",SchedulingDisabled" if node.spec.unschedulable else "")


def node_roles(node: Node) -> str:
    """Format a node's roles from its labels; `<none>` without any."""
    labels = node.metadata.labels
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    return ",".join(sorted(roles)) or NONE


def _node(node: Node, now: datetime, wide: bool, _colour: bool) -> Row:
    info = node.status.node_info
    row = (
        node.metadata.name,
        node_status(node),
        node_roles(node),
        age(now, node.metadata.creation_timestamp),
        info.kubelet_version,
    )
    if not wide:
        return row
    addresses = {one.type: one.address for one in reversed(node.status.addresses)}
    return (
        *row,
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.os_image or _UNKNOWN,
        info.kernel_version or _UNKNOWN,
        info.container_runtime_version or _UNKNOWN,
    )


def _lease(lease: Lease, now: datetime, _wide: bool, _colour: bool) -> Row:
    return lease.metadata.name, lease.spec.holder_identity or "", age(now, lease.metadata.creation_timestamp)


def _event(event: Event, now: datetime, wide: bool, colour: bool) -> Row:
    return get_row(event, now=now, wide=wide, colour=colour)


def _config_map(item: ConfigMap, now: datetime, _wide: bool, _colour: bool) -> Row:
    number = len(item.data) + len(item.binary_data)
    return item.metadata.name, str(number), age(now, item.metadata.creation_timestamp)


def _secret(item: Secret, now: datetime, _wide: bool, _colour: bool) -> Row:
    return item.metadata.name, item.type, str(len(item.data)), age(now, item.metadata.creation_timestamp)


def _silence(silence: Silence, now: datetime, wide: bool, _colour: bool) -> Row:
    spec = silence.spec
    row = (
        silence.metadata.name,
        ",".join(map(str, spec.matchers)),
        _moment(spec.starts_at),
        _moment(spec.ends_at),
        spec.created_by or NONE,
        spec.state(now),
    )
    return (*row, spec.comment or NONE) if wide else row


def _moment(time: datetime | None) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if time else _UNKNOWN


def _acknowledgement(item: Acknowledgement, now: datetime, wide: bool, _colour: bool) -> Row:
    spec = item.spec
    row = (item.metadata.name, str(spec.object), spec.created_by or NONE, age(now, item.metadata.creation_timestamp))
    return (*row, spec.comment or NONE) if wide else row


def _plain(item: Any, now: datetime, _wide: bool, _colour: bool) -> Row:
    return item.metadata.name, age(now, item.metadata.creation_timestamp)


def pod_row(pod: Pod, now: datetime, wide: bool, _colour: bool) -> Row:
    """Return the cells of a pod. Source: kubernetes `pkg/printers/internalversion/printers.go` printPod."""
    status = pod.status
    counted = status.container_statuses if _begun_reason(pod) is None else status.init_container_statuses
    ready = sum(one.ready and one.state.running is not None for one in status.container_statuses)
    row = (
        pod.metadata.name,
        f"{ready if counted is status.container_statuses else 0}/{len(pod.spec.containers)}",
        _pod_reason(pod),
        _restarts(counted, now),
        age(now, pod.metadata.creation_timestamp),
    )
    if not wide:
        return row
    return (*row, status.pod_ip or NONE, pod.spec.node_name or NONE, status.nominated_node_name or NONE, NONE)


def _pod_reason(pod: Pod) -> str:
    """Return the cell under STATUS: the reason why the pod does not run, else its phase."""
    status = pod.status
    reason = _begun_reason(pod)
    if reason is None:
        reason, running = status.reason or status.phase, False
        for one in reversed(status.container_statuses):
            if said := _why(one, ""):
                reason = said
            running = running or (one.ready and one.state.running is not None)
        if reason == "Completed" and running:
            condition = status.condition("Ready")
            reason = "Running" if condition is not None and condition.status == "True" else "NotReady"
    if pod.metadata.deletion_timestamp is not None:
        return "Unknown" if status.reason == "NodeLost" else "Terminating"
    return reason


def _begun_reason(pod: Pod) -> str | None:
    """Return the state of the current init container, or None if all are done."""
    status = pod.status
    initialized = status.condition("Initialized")
    if initialized is not None and initialized.status == "True":
        return None
    for place, one in enumerate(status.init_container_statuses):
        if one.state.terminated is not None and one.state.terminated.exit_code == 0:
            continue
        waiting = one.state.waiting
        if waiting is not None and waiting.reason == "PodInitializing":
            waiting = None
        said = _why(one, "Init:") if waiting is not None or one.state.terminated is not None else ""
        return said or f"Init:{place}/{len(pod.spec.init_containers)}"
    return None


def _why(one: ContainerStatus, prefix: str) -> str:
    waiting, ended = one.state.waiting, one.state.terminated
    if waiting is not None and waiting.reason:
        return prefix + waiting.reason
    if ended is None:
        return ""
    if ended.reason:
        return prefix + ended.reason
    return f"{prefix}Signal:{ended.signal}" if ended.signal else f"{prefix}ExitCode:{ended.exit_code}"


def _restarts(statuses: Sequence[ContainerStatus], now: datetime) -> str:
    restarts = sum(one.restart_count for one in statuses)
    ends = [one.last_state.terminated.finished_at for one in statuses if one.last_state.terminated is not None]
    last = max((end for end in ends if end is not None), default=None)
    return f"{restarts} ({age(now, last)} ago)" if restarts and last is not None else str(restarts)


_POD_HEADERS = ("Name", "Ready", "Status", "Restarts", "Age")
_WIDE_POD_HEADERS = (*_POD_HEADERS, "IP", "Node", "Nominated Node", "Readiness Gates")
_NODE_HEADERS = ("Name", "Status", "Roles", "Age", "Version")
_WIDE_NODE_HEADERS = ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_SILENCE_HEADERS = ("Name", "Matchers", "Starts", "Ends", "Created By", "State")
_ACKNOWLEDGEMENT_HEADERS = ("Name", "Object", "Created By", "Age")
_PLAIN = Columns(("Name", "Age"), ("Name", "Age"), _plain)
_COLUMNS = {
    EVENT.plural: Columns(get_headers(), get_headers(wide=True), _event),
    NODE.plural: Columns(_NODE_HEADERS, (*_NODE_HEADERS, *_WIDE_NODE_HEADERS), _node),
    LEASE.plural: Columns(("Name", "Holder", "Age"), ("Name", "Holder", "Age"), _lease),
    POD.plural: Columns(_POD_HEADERS, _WIDE_POD_HEADERS, pod_row),
    CONFIGMAP.plural: Columns(("Name", "Data", "Age"), ("Name", "Data", "Age"), _config_map),
    SECRET.plural: Columns(("Name", "Type", "Data", "Age"), ("Name", "Type", "Data", "Age"), _secret),
    SILENCE.plural: Columns(_SILENCE_HEADERS, (*_SILENCE_HEADERS, "Comment"), _silence),
    ACKNOWLEDGEMENT.plural: Columns(_ACKNOWLEDGEMENT_HEADERS, (*_ACKNOWLEDGEMENT_HEADERS, "Comment"), _acknowledgement),
}
