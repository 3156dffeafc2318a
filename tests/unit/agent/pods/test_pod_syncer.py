"""What a pod that may not run here may still do: nothing, also not by the hooks of its end."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.pod_syncer import PodSyncer, SyncFailed
from eventbus.agent.pods.pod_workers import PodWork
from eventbus.agent.pods.status_manager import StatusManager
from eventbus.agent.pods.updates import Work
from eventbus.agent.runtime.contract import ContainerId, ContainerPhase, ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.model.objects.container import ExecAction, Lifecycle, LifecycleHandler
from eventbus.model.objects.pod import Pod, PodStatus
from eventbus.testing.clock import FakeClock
from tests.unit.agent.pods.pods import a_pod

ALLOWED = "/bin/true"
permitting = partial(Permission, [ALLOWED, "/usr/bin/true"])


class Runtime:
    """One pod that runs. *ended_with*: the pod whose hooks were to run at its end, or None."""

    def __init__(self) -> None:
        self.ended_with: list[Pod | None] = []

    def status(self, uid: str) -> PodRuntimeStatus:
        run = ContainerRuntimeStatus(id=ContainerId("r"), name="main", attempt=0, hash="", phase=ContainerPhase.RUNNING)
        return PodRuntimeStatus(uid=cast(Any, uid), name="web", namespace="default", containers=(run,))

    def kill_pod(self, _uid: str, pod: Pod | None, _grace_s: float | None = None) -> None:
        self.ended_with.append(pod)


class Anything:
    """A part whose answers do not matter here."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_named: None


def perform(work: PodWork, permission: Permission) -> list[Pod | None]:
    runtime, clock = Runtime(), FakeClock()
    parts = dict.fromkeys(("mirrors", "events", "is_ending"), cast(Any, Anything())) | {
        "runtime": runtime,
        "clock": clock,
        "statuses": StatusManager(PodManager(), clock=clock, changed=lambda: None),
        "probes": SimpleNamespace(
            started=lambda *_: True,
            ready=lambda *_: True,
            remove_pod=lambda _uid: None,
            stop_liveness_and_startup=lambda _uid: None,
        ),
        "refuse": permission.problem,
        "store": lambda: None,
        "address": "",
    }
    syncer = PodSyncer(**cast(Any, parts))
    with suppress(SyncFailed):
        syncer.perform(work)
    return runtime.ended_with


def pod_with_hook(command: str) -> Pod:
    pod = a_pod(command=(ALLOWED,))
    hook = LifecycleHandler(exec=ExecAction(command=(command,)))
    main = msgspec.structs.replace(pod.spec.containers[0], lifecycle=Lifecycle(pre_stop=hook))
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(main,)))


def failed(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, status=PodStatus(phase="Failed", reason="CommandNotAllowed"))


NOT_ALLOWED = pod_with_hook("/bin/sh")


@pytest.mark.parametrize(
    "work",
    [PodWork(Work.UPDATE, NOT_ALLOWED), PodWork(Work.CREATE, failed(NOT_ALLOWED)), PodWork(Work.KILL, NOT_ALLOWED)],
    ids=["changed", "refused before", "deleted"],
)
@pytest.mark.parametrize(
    "permission", [permitting(namespaces=["default"]), Permission(["/**"])], ids=["command", "namespace"]
)
def test_a_hook_that_may_not_run_here_is_left_out_when_its_pod_is_ended(work: PodWork, permission: Permission) -> None:
    assert perform(work, permission) == [None]


@pytest.mark.parametrize("kind", [Work.CREATE, Work.KILL])
def test_a_hook_that_may_run_runs_when_its_pod_is_ended(kind: Work) -> None:
    pod = failed(pod_with_hook(ALLOWED))
    assert perform(PodWork(kind, pod), permitting(namespaces=["default"])) == [pod]
