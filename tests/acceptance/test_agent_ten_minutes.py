"""Ten minutes of five pods, by a clock of the test's own: each restart at its time in the table, and all events."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventbus import EventBroadcaster, ObjectStore, Settings
from eventbus.agent.runtime.contract import ContainerRuntimeStatus
from eventbus.broker.bus import open_bus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import CONFIGMAP
from eventbus.model.objects.config import ConfigMap
from eventbus.record.recorder import EventRecorder
from eventbus.testing.clock import FakeClock
from eventbus.util.clock import SystemClock
from tests.acceptance.programs import environment, run
from tests.support.driven_agent import STEP_S, DrivenAgent
from tests.waiting import eventually

LASTS_S, CONFIG_AFTER_S = 600, 180
#: The kubelet's: pauses before the runs of a container that ends again and again, the first run being due at once.
PAUSES_S = (0, 10, 20, 40, 80, 160, 300)
#: A liveness probe asks every 10 s, and its third failure in a row ends the container.
PERIOD_S, FAILURES = 10, 3
#: Pods of one command, each with its own name as the container's.
COMMANDS = {"web": "exec sleep 1000", "job": "exit 0", "crash": "exit 3"}
#: A command that is late by the real clock would fail with other words than one that says no.
LIVENESS = {"periodSeconds": PERIOD_S, "failureThreshold": FAILURES, "timeoutSeconds": 60}
SICK = {"livenessProbe": {"exec": {"command": ["/bin/false"]}} | LIVENESS}
LATE = {"volumeMounts": [{"name": "settings", "mountPath": "settings"}]}
VOLUMES = [{"name": "settings", "configMap": {"name": "settings"}}]


class Story:
    """The agent, its bus, and when which run of a pod began and ended, in seconds of the story."""

    def __init__(self, agent: DrivenAgent, store: ObjectStore, env: dict[str, str]) -> None:
        self.agent, self.store, self.env = agent, store, env
        self._began = agent.clock.time_ns() / 1e9
        self._runs: dict[str, dict[int, ContainerRuntimeStatus]] = {}

    def advance(self, seconds: float) -> None:
        self.agent.advance(seconds, self._note)

    def describe(self, pod: str) -> str:
        return run("describe", f"pod/{pod}-n1", env=self.env).stdout

    def starts(self, pod: str) -> list[float]:
        return [self._at(one.started_at) for _, one in sorted(self._runs.get(pod, {}).items())]

    def pauses(self, pod: str) -> list[float]:
        """Return the seconds between the end of each run and the start of the next."""
        ends = [self._at(one.finished_at) for _, one in sorted(self._runs[pod].items()) if one.finished_at is not None]
        return [start - end for start, end in zip(self.starts(pod)[1:], ends, strict=False)]

    def _at(self, when: datetime | None) -> float:
        assert when is not None
        return round(when.timestamp() - self._began, 1)

    def _note(self) -> None:
        for pod in self.agent.runtime.pods():
            runs = self._runs.setdefault(pod.name.removesuffix("-n1"), {})
            runs.update({one.attempt: one for one in pod.containers if one.started_at is not None})


def write(folder: Path, name: str, container: dict[str, Any], **spec: Any) -> None:
    main = {"name": "main", "command": ["/bin/sh", "-c", "exec sleep 1000"]} | container
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [main]} | spec}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(pod))
    (folder / f"{name}.yaml").chmod(0o600)


@pytest.fixture
def story(tmp_path: Path, embedded_url: str, prefix: str, monkeypatch: Any) -> Iterator[Story]:
    manifests = tmp_path / "manifests"
    manifests.mkdir(mode=0o700)
    for name, command in COMMANDS.items():
        write(manifests, name, {"name": name, "command": ["/bin/sh", "-c", command]}, restartPolicy="OnFailure")
    write(manifests, "sick", SICK)
    write(manifests, "late", LATE, volumes=VOLUMES)
    clock = FakeClock(time.time_ns() - LASTS_S * 1_000_000_000)
    settings = Settings(prefix=prefix)
    bus = open_bus(embedded_url, settings)
    sink = sink_worker(bus=bus, clock=SystemClock(), block_ms=100)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster, ObjectStore(bus, bus.client()) as store:
        events = EventRecorder("eventbus-agent", "n1", put=broadcaster._accept, losses=broadcaster.losses, clock=clock)
        agent = DrivenAgent(
            tmp_path / "state",
            manifests=manifests,
            events=events,
            clock=clock,
            monkeypatch=monkeypatch,
        )
        sink.start()
        try:
            agent.attach(store)
            yield Story(agent, store, environment(embedded_url, prefix))
        finally:
            agent.close()
            sink.stop(30)


def test_ten_minutes_of_five_pods_follow_the_table_and_are_told(story: Story) -> None:
    story.advance(CONFIG_AFTER_S)
    assert story.starts("late") == []
    settings = ConfigMap(metadata=ObjectMeta(name="settings", namespace="default"), data={"colour": "blue"})
    story.store.objects(CONFIGMAP).create(settings)
    story.advance(LASTS_S - CONFIG_AFTER_S)

    assert [len(story.starts(name)) for name in ("web", "job", "late")] == [1, 1, 1]
    for name in ("crash", "sick"):
        late_by = [pause - wanted for pause, wanted in zip(story.pauses(name), PAUSES_S, strict=False)]
        assert len(late_by) == 6, "the seventh pause is not over yet"
        assert all(0 <= one <= 2 * STEP_S for one in late_by), late_by
    eventually(lambda: said(story.describe("crash"), "Started") == 7)
    eventually(lambda: said(story.describe("crash"), "BackOff") > 7)
    killed = (7, 7 * FAILURES)
    eventually(lambda: (said(page := story.describe("sick"), "Killing"), said(page, "Unhealthy")) == killed)
    eventually(lambda: said(story.describe("sick"), "BackOff") >= 6)
    crash, sick, late = (story.describe(name) for name in ("crash", "sick", "late"))
    assert "back-off 5m0s restarting failed container=crash" in crash
    assert "Container main failed liveness probe, will be restarted" in sick
    assert 'configmap "settings" not found' in late
    assert said(late, "FailedMount") > 1
    assert said(late, "FailedSync") == 1, "after two minutes"
    assert said(late, "Started") == 1
    rows = {row.split()[0]: row.split()[2] for row in run("get", "pods", env=story.env).stdout.splitlines()[1:]}
    assert rows == {
        "web-n1": "Running",
        "job-n1": "Completed",
        "crash-n1": "CrashLoopBackOff",
        "sick-n1": "CrashLoopBackOff",
        "late-n1": "Running",
    }


def said(page: str, reason: str) -> int:
    """Return how often *reason* is among the events of a description; 0: never."""
    found = re.search(rf"^  (?:Normal|Warning) +{reason} +\S+ (?:\(x(\d+) over \S+\))?", page, re.MULTILINE)
    return int(found[1] or 1) if found else 0
