"""Pods in kubectl's columns: pure functions from a pod and the time to cells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from eventbus.model.objects.pod import ContainerStatus, Pod
from eventbus.util.human_duration import age
from eventbus.util.table import Row

NONE: Final = "<none>"
HEADERS: Final = ("Name", "Ready", "Status", "Restarts", "Age")
WIDE_HEADERS: Final = (*HEADERS, "IP", "Node", "Nominated Node", "Readiness Gates")


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
