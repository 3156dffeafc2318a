"""Answers of probes against their thresholds, as the kubelet's worker counts them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eventbus.agent.pods.prober import ProbeState, probes_of
from eventbus.agent.runtime.contract import ContainerId, ContainerPhase, ContainerRuntimeStatus, ProbeType
from eventbus.model.objects.container import Container, Probe
from eventbus.model.objects.pod import Pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_worker(type: ProbeType, **probe: Any) -> ProbeState:
    worker = ProbeState(Pod(), Container(name="web"), type, Probe(**probe), 0.0)
    worker.note_run(make_run())
    return worker


def make_run(attempt: int = 0, phase: ContainerPhase = ContainerPhase.RUNNING) -> ContainerRuntimeStatus:
    id = ContainerId(f"u/web/{attempt}")
    return ContainerRuntimeStatus(id=id, name="web", attempt=attempt, phase=phase, hash="", started_at=NOW)


@pytest.mark.parametrize(
    ("type", "answers", "changes", "result"),
    [
        (ProbeType.LIVENESS, "ok ok", "- -", True),
        (ProbeType.LIVENESS, "no no", "- -", True),
        (ProbeType.LIVENESS, "no no ok no no", "- - - - -", True),
        (ProbeType.LIVENESS, "no no no", "- - told", False),
        (ProbeType.READINESS, "ok", "told", True),
        (ProbeType.READINESS, "no no no no", "- - told -", False),
        (ProbeType.READINESS, "ok no no no ok", "told - - told told", True),
        (ProbeType.STARTUP, "no no ok", "- - told", True),
        (ProbeType.STARTUP, "no no no", "- - told", False),
    ],
)
def test_a_result_changes_when_its_threshold_is_reached(
    type: ProbeType, answers: str, changes: str, result: bool
) -> None:
    worker = make_worker(type)
    told = ["told" if worker.count(ok=answer == "ok", message="why") else "-" for answer in answers.split()]

    assert (" ".join(told), worker.result) == (changes, result)


def test_after_a_failure_that_ends_the_run_nothing_is_asked_until_the_next() -> None:
    worker = make_worker(ProbeType.LIVENESS, failure_threshold=1)
    worker.count(ok=False, message="dead")
    assert not worker.wants(make_run(), 0.0, started=True)

    assert worker.note_run(make_run(1))
    assert (worker.result, worker.message) == (True, "")
    assert worker.wants(make_run(1), 0.0, started=True)


@pytest.mark.parametrize(
    ("type", "started", "wanted"),
    [
        (ProbeType.STARTUP, False, True),
        (ProbeType.STARTUP, True, False),
        (ProbeType.LIVENESS, False, False),
        (ProbeType.READINESS, True, True),
    ],
)
def test_until_it_has_started_only_the_startup_probe_is_asked(type: ProbeType, started: bool, wanted: bool) -> None:
    assert make_worker(type).wants(make_run(), 0.0, started=started) is wanted


def test_the_initial_delay_counts_from_the_start_of_the_run() -> None:
    worker = make_worker(ProbeType.READINESS, initial_delay_seconds=10)

    assert not worker.wants(make_run(), 9.0, started=True)
    assert worker.wants(make_run(), 10.0, started=True)


def test_what_does_not_run_is_not_asked() -> None:
    worker = make_worker(ProbeType.LIVENESS)

    assert not worker.wants(None, 0.0, started=True)
    assert not worker.wants(make_run(phase=ContainerPhase.EXITED), 0.0, started=True)


def test_a_container_has_the_probes_it_names() -> None:
    container = Container(name="a", readiness_probe=Probe(), startup_probe=Probe())

    assert [type for type, _ in probes_of(container)] == [ProbeType.STARTUP, ProbeType.READINESS]
