"""The status of a pod, made of what runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eventbus.agent.pods.api_status import Observed, ended_status, pod_status
from eventbus.agent.runtime.contract import (
    ContainerId,
    ContainerPhase,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUid,
    StartFailure,
)
from eventbus.broker.functions import GroupPolicy
from eventbus.model.objects.pod import Pod, PodStatus
from tests.unit.agent.pods.pods import a_pod

THEN = datetime(2024, 1, 1, tzinfo=UTC)


def a_run(phase: str, exit_code: int = 0, attempt: int = 0) -> ContainerRuntimeStatus:
    return ContainerRuntimeStatus(
        id=ContainerId(f"uid-web/main/{attempt}"),
        name="main",
        attempt=attempt,
        phase=ContainerPhase(phase),
        hash="h",
        exit_code=exit_code,
        reason="Error" if exit_code else "Completed",
        started_at=THEN,
    )


def status_of(
    pod: Pod, *runs: ContainerRuntimeStatus, former: PodStatus | None = None, waiting: StartFailure | None = None
) -> PodStatus:
    runtime = PodRuntimeStatus(uid=PodUid("uid-web"), name="web", namespace="default", containers=runs)
    seen = Observed(
        runtime=runtime if runs else None,
        waiting={"main": waiting} if waiting else {},
        started=lambda _container, run: run is not None and run.running,
        ready=lambda _container, run: run is not None and run.running,
    )
    return pod_status(pod, seen, former or PodStatus())


@pytest.mark.parametrize(
    ("policy", "run", "phase"),
    [
        ("Always", None, "Pending"),
        ("Always", a_run("created"), "Pending"),
        ("Always", a_run("running"), "Running"),
        ("Always", a_run("exited"), "Running"),
        ("OnFailure", a_run("exited"), "Succeeded"),
        ("OnFailure", a_run("exited", 3), "Running"),
        ("Never", a_run("exited", 3), "Failed"),
        ("Never", a_run("exited"), "Succeeded"),
    ],
)
def test_the_phase_follows_the_policy(policy: GroupPolicy, run: ContainerRuntimeStatus | None, phase: str) -> None:
    pod = a_pod(restart_policy=policy)
    assert status_of(pod, *([run] if run else [])).phase == phase


def test_a_container_in_back_off_waits_and_its_last_run_is_told() -> None:
    waiting = StartFailure("CrashLoopBackOff", "back-off 10s", 10.0)
    [found] = status_of(a_pod(), a_run("exited", 3, attempt=4), waiting=waiting).container_statuses
    assert found.state.waiting is not None
    assert found.state.waiting.reason == "CrashLoopBackOff"
    assert found.last_state.terminated is not None
    assert found.last_state.terminated.exit_code == 3
    assert found.restart_count == 4


def test_a_final_phase_stays_whatever_is_seen() -> None:
    evicted = ended_status(status_of(a_pod(), a_run("running")), "Evicted", "low on memory")
    found = status_of(a_pod(), a_run("running"), former=evicted)
    assert (found.phase, found.reason) == ("Failed", "Evicted")


def test_a_refused_pod_has_no_containers() -> None:
    refused = ended_status(PodStatus(), "OutOfcpu", "too much")
    assert status_of(a_pod(), former=refused).container_statuses == ()
