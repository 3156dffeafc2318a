"""Decides the actions for a pod: pure, from its spec and its runs.

Source: kubelet `kuberuntime_manager.go` computePodActions. Departure: no sidecars, ephemeral containers, resizing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from eventbus.agent.runtime.contract import ContainerId, ContainerPhase, ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.agent.runtime.pod_facts import container_hash, sandbox_hash
from eventbus.model.frozen import EMPTY, FrozenStruct
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod

NEVER: Final = "Never"
ON_FAILURE: Final = "OnFailure"


class PodActions(FrozenStruct, frozen=True, kw_only=True):
    """Steps to take, in this order. *kill*: container → why. *start_init*: one at a time, "" none."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_attempt: int = 0
    kill: Mapping[str, str] = EMPTY
    start_init: str = ""
    start: tuple[str, ...] = ()


def pod_actions(pod: Pod, status: PodRuntimeStatus | None, restart: Collection[ContainerId]) -> PodActions:
    """Return the steps that bring *status* to *pod*.

    Args: restart: runs that were killed to be restarted, with any exit code: their probe failed.
    """
    changed, attempt = _sandbox_changed(pod, status)
    if changed:
        return _afresh(pod, status, attempt)
    assert status is not None
    upcoming, initialized = _next_init(pod, status)
    if not initialized:
        if upcoming is not None and _failed_for_good(pod, status, upcoming):
            return PodActions(kill_pod=True)
        return PodActions(start_init=upcoming.name if upcoming is not None else "")
    return _for_containers(pod, status, restart)


def _for_containers(pod: Pod, status: PodRuntimeStatus, restart: Collection[ContainerId]) -> PodActions:
    start: list[str] = []
    kill: dict[str, str] = {}
    unchanged = 0
    for container in pod.spec.containers:
        run = status.container(container.name)
        if run is None or run.phase is ContainerPhase.EXITED:
            if _should_start(pod, run, restart):
                start.append(container.name)
        elif run.running and run.hash != container_hash(container):
            # Restarted under any policy: the running container is not the wanted one.
            kill[container.name] = f"Container {container.name} definition changed, will be restarted"
            start.append(container.name)
        else:
            unchanged += 1
    wanted = {container.name for container in (*pod.spec.containers, *pod.spec.init_containers)}
    for run in status.containers:
        if run.running and run.name not in wanted:
            kill[run.name] = f"Container {run.name} is not part of the pod any more"
    return PodActions(kill=kill, start=tuple(start), kill_pod=unchanged == 0 and not start)


def _should_start(pod: Pod, run: ContainerRuntimeStatus | None, restart: Collection[ContainerId] = ()) -> bool:
    """Return whether a container with the last run *run* is to be started. Source: ShouldContainerBeRestarted."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if run is None:
        return True
    if run.phase is not ContainerPhase.EXITED or pod.spec.restart_policy == NEVER:
        return False
    return pod.spec.restart_policy != ON_FAILURE or run.exit_code != 0 or run.id in restart


def _sandbox_changed(pod: Pod, status: PodRuntimeStatus | None) -> tuple[bool, int]:
    """Return whether a new sandbox is needed, and its number."""
    if status is None or status.sandbox is None:
        return True, 0
    sandbox = status.sandbox
    return (not sandbox.ready or sandbox.hash != sandbox_hash(pod)), sandbox.attempt + 1


def _afresh(pod: Pod, status: PodRuntimeStatus | None, attempt: int) -> PodActions:
    """Start everything again; processes outside the sandbox are killed first."""
    ran = status is not None and bool(status.containers)
    if pod.metadata.deletion_timestamp is not None or (ran and pod.spec.restart_policy == NEVER):
        return PodActions(kill_pod=True)
    start = [
        container.name
        for container in pod.spec.containers
        if _should_start(pod, None if status is None else _as_ended(status.container(container.name)))
    ]
    if not start:
        return PodActions(kill_pod=True)
    if pod.spec.init_containers:
        return PodActions(
            kill_pod=ran, create_sandbox=True, sandbox_attempt=attempt, start_init=pod.spec.init_containers[0].name
        )
    return PodActions(kill_pod=ran, create_sandbox=True, sandbox_attempt=attempt, start=tuple(start))


def _as_ended(run: ContainerRuntimeStatus | None) -> ContainerRuntimeStatus | None:
    """*run* as it will be when it was killed with its sandbox."""
    if run is None or run.phase is ContainerPhase.EXITED:
        return run
    return msgspec.structs.replace(run, phase=ContainerPhase.EXITED, exit_code=137)


def _next_init(pod: Pod, status: PodRuntimeStatus) -> tuple[Container | None, bool]:
    """The init container to start next, and whether all are done. None and not done: one runs.

    Those of this sandbox count; after `SandboxChanged` they all run again. Source: findNextInitContainerToRun.
    """
    if not pod.spec.init_containers or any(
        run.phase is not ContainerPhase.CREATED
        for container in pod.spec.containers
        if (run := _in_sandbox(status, container.name)) is not None
    ):
        return None, True
    for container in reversed(pod.spec.init_containers):
        run = _in_sandbox(status, container.name)
        if run is None:
            continue
        if run.phase is not ContainerPhase.EXITED:
            return None, False
        if run.exit_code != 0:
            return container, False
        place = pod.spec.init_containers.index(container)
        if place == len(pod.spec.init_containers) - 1:
            return None, True
        return pod.spec.init_containers[place + 1], False
    return pod.spec.init_containers[0], False


def _in_sandbox(status: PodRuntimeStatus, name: str) -> ContainerRuntimeStatus | None:
    """Return the newest run of a container, if it is of the current sandbox."""
    run, sandbox = status.container(name), status.sandbox
    if run is None or sandbox is None or run.created_at is None or sandbox.created_at is None:
        return run
    return run if run.created_at >= sandbox.created_at else None


def _failed_for_good(pod: Pod, status: PodRuntimeStatus, container: Container) -> bool:
    run = _in_sandbox(status, container.name)
    return run is not None and run.exit_code != 0 and pod.spec.restart_policy == NEVER
