"""A clock that is set an hour back or forth while pods run: the agent goes by the seconds that pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.driven_agent import DrivenAgent
from tests.support.runtime_world import Told
from tests.support.set_clock import SetClock

PODS: dict[str, dict[str, Any]] = {
    "crash": {"containers": [{"name": "c", "command": ["/bin/sh", "-c", "exit 3"]}]},
    "sick": {
        "containers": [
            {
                "name": "c",
                "command": ["/bin/sh", "-c", "exec sleep 1000"],
                "livenessProbe": {"exec": {"command": ["/bin/false"]}, "periodSeconds": 5, "failureThreshold": 1000},
            }
        ]
    },
    "late": {
        "activeDeadlineSeconds": 60,
        "containers": [{"name": "c", "command": ["/bin/sh", "-c", "exec sleep 1000"]}],
    },
}


class World:
    """An agent of three pods, and the clock that is set."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        manifests = folder / "manifests"
        manifests.mkdir(mode=0o700)
        for name, spec in PODS.items():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            (manifests / f"{name}.yaml").write_text(yaml.safe_dump(pod))
            (manifests / f"{name}.yaml").chmod(0o600)
        self.clock, self.told = SetClock(), Told()
        self.agent = DrivenAgent(
            folder / "state",
            manifests=manifests,
            events=self.told,
            clock=self.clock,
            monkeypatch=monkeypatch,
        )

    def runs(self, name: str) -> int:
        """Return how often the container of a pod was started."""
        return max(
            run.attempt + 1 for pod in self.agent.runtime.pods() if pod.name == name + "-n1" for run in pod.containers
        )

    def look_again(self) -> None:
        """Have every pod synced, as when something happens to it."""
        for pod in self.agent.agent.manager.pods():
            self.agent.agent.workers.sync_after(pod.metadata.uid, 0.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: Any) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    try:
        yield made
    finally:
        made.agent.close()


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_a_clock_that_is_set_changes_no_back_off_no_probe_and_no_deadline(world: World, set_by_s: float) -> None:
    world.agent.advance(5)
    assert world.runs("crash") == 2, "the first crash is followed by a run at once"
    asked = world.agent._probes.asked
    world.clock.set_by(set_by_s)
    world.look_again()
    world.agent.advance(3)
    assert world.runs("crash") == 2, "ten seconds are not over"
    world.agent.advance(9)

    assert world.runs("crash") == 3
    assert world.agent._probes.asked >= asked + 2
    assert "DeadlineExceeded" not in world.told.reasons
    world.agent.advance(50)
    assert "DeadlineExceeded" in world.told.reasons
