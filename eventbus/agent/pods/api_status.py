"""Makes a Pod's status from the runtime's status: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventbus.agent.runtime.contract import (
    ContainerPhase,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    StartFailure,
)
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
)

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL = (SUCCEEDED, FAILED)
CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"

#: Container, and its newest run → whether it is so.
Judge = Callable[[Container, ContainerRuntimeStatus | None], bool]


class Observed(NamedTuple):
    """The observations that a pod's status is made from, besides its manifest."""

    runtime: PodRuntimeStatus | None
    waiting: Mapping[str, StartFailure]
    started: Judge
    ready: Judge
    address: str = ""
    qos_class: str = ""


def pod_status(pod: Pod, observed: Observed, former: PodStatus) -> PodStatus:
    """Return the status of *pod*; the status manager sets transition times.

    A final phase stays, even if the runtime reports other values.

    Source: kubelet `kubelet_pods.go` generateAPIPodStatus, getPhase; `status/generate.go`.
    """
    spec = pod.spec
    init = _statuses(spec.init_containers, observed, CREATING)
    initialized = all(_succeeded(status) for status in init)
    main = _statuses(spec.containers, observed, CREATING if initialized else INITIALIZING)
    if former.phase in TERMINAL and observed.runtime is None:  # it was refused, or its leftovers are removed
        init, main = former.init_container_statuses, former.container_statuses
    phase = former.phase if former.phase in TERMINAL else _phase(spec.restart_policy, init, main)
    return PodStatus(
        phase=phase,
        conditions=_conditions(pod, phase, init, main),
        reason=former.reason if former.phase in TERMINAL else "",
        message=former.message if former.phase in TERMINAL else "",
        host_ip=observed.address,
        host_ips=(PodIP(observed.address),) if observed.address else (),
        pod_ip=observed.address,
        pod_ips=(PodIP(observed.address),) if observed.address else (),
        start_time=former.start_time,
        init_container_statuses=init,
        container_statuses=main,
        qos_class=observed.qos_class,
    )


def _statuses(containers: Sequence[Container], observed: Observed, default: str) -> tuple[ContainerStatus, ...]:
    return tuple(_status(container, observed, default) for container in containers)


def _status(container: Container, observed: Observed, default: str) -> ContainerStatus:
    run = observed.runtime.container(container.name) if observed.runtime is not None else None
    before = observed.runtime.previous(container.name) if observed.runtime is not None else None
    failure = observed.waiting.get(container.name)
    if run is None or run.phase is ContainerPhase.CREATED:
        reason, message = (failure.reason, failure.message) if failure is not None else (default, "")
        state = ContainerState(waiting=ContainerStateWaiting(reason, message))
    elif run.running:
        state = ContainerState(running=ContainerStateRunning(run.started_at))
    elif failure is not None:
        state, before = ContainerState(waiting=ContainerStateWaiting(failure.reason, failure.message)), run
    else:
        state = _terminated(run)
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=_terminated(before) if before is not None else ContainerState(),
        ready=observed.ready(container, run),
        restart_count=run.attempt if run is not None else 0,
        image=container.image,
        image_id=run.image if run is not None else "",
        container_id=f"process://{run.id}" if run is not None else "",
        started=observed.started(container, run),
    )


def _terminated(run: ContainerRuntimeStatus) -> ContainerState:
    state = ContainerStateTerminated(
        exit_code=run.exit_code,
        signal=run.signal,
        reason=run.reason,
        message=run.message,
        started_at=run.started_at,
        finished_at=run.finished_at,
        container_id=f"process://{run.id}",
    )
    return ContainerState(terminated=state)


def _succeeded(status: ContainerStatus) -> bool:
    ended = status.state.terminated
    return ended is not None and ended.exit_code == 0


def _phase(policy: str, init: Sequence[ContainerStatus], main: Sequence[ContainerStatus]) -> str:
    if policy == "Never" and any(status.state.terminated and not _succeeded(status) for status in init):
        return FAILED
    if not all(_succeeded(status) for status in init):
        return PENDING
    ended = [
        status for status in main if status.state.terminated or (status.state.waiting and status.last_state.terminated)
    ]
    running = [status for status in main if status.state.running]
    if len(ended) + len(running) < len(main):
        return PENDING
    if running or not ended:
        return RUNNING if running else PENDING
    if policy == "Always":
        return RUNNING
    if all(_succeeded(status) for status in ended):
        return SUCCEEDED
    return FAILED if policy == "Never" else RUNNING


def _conditions(
    pod: Pod, phase: str, init: Sequence[ContainerStatus], main: Sequence[ContainerStatus]
) -> tuple[PodCondition, ...]:
    incomplete = [status.name for status in init if not _succeeded(status)]
    unready = [status.name for status in main if not status.ready]
    bad = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]") if unready else ("", "")
    if phase in TERMINAL:
        bad = ("PodCompleted" if phase == SUCCEEDED else "PodFailed", "")
    ready = not unready and phase not in TERMINAL
    not_initialized = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    conditions = (
        ("Initialized", not incomplete, not_initialized),
        ("Ready", ready, bad),
        ("ContainersReady", ready, bad),
        ("PodScheduled", True, ("", "")),
    )
    return tuple(
        PodCondition(
            type=name,
            status="True" if good else "False",
            reason="" if good else why[0],
            message="" if good else why[1],
            observed_generation=pod.metadata.generation,
        )
        for name, good, why in conditions
    )


def ended_status(status: PodStatus, reason: str, message: str) -> PodStatus:
    """Return *status* of a pod that is Failed for a reason of its node's: OutOfcpu, DeadlineExceeded."""
    return msgspec.structs.replace(status, phase=FAILED, reason=reason, message=message)
