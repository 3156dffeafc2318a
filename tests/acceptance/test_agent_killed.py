"""kill -9 of an agent at each step of a sync: processes go on, none runs twice, and no exit code is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_machine import AgentMachine
from tests.thin import one, thin
from tests.waiting import eventually

#: Every step of a start, then those of an end.
STARTING = (
    "pod:status",
    "pod:mirror",
    "pod:volumes",
    "pod:sandbox",
    "container:start",
    "container:started",
    "pod:runtime",
)
ENDING = ("pod:kill", "pod:ended")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[AgentMachine]:
    with AgentMachine(tmp_path, "none", "eb") as made:
        yield made


@pytest.mark.parametrize("place", thin(STARTING, lambda place: place == "container:started"))
def test_killed_while_pods_start_the_next_agent_runs_each_once(machine: AgentMachine, place: str) -> None:
    machine.write("web", "exec sleep 1000")
    machine.write("job", "exit 7", restartPolicy="Never")
    first = machine.agent("--standalone", crash=f"kill:{place}")
    assert first.wait() == -signal.SIGKILL
    second = machine.agent_alone()
    machine.wait_alive("web")
    eventually(lambda: machine.ended_with("job") == 7)
    assert len(machine.starts("web")) == 1
    assert len(machine.starts("job")) == 1
    assert second.stop() == 0
    machine.wait_gone("web")


@pytest.mark.parametrize("place", one(ENDING))
def test_killed_while_a_pod_ends_the_next_agent_ends_it(machine: AgentMachine, place: str) -> None:
    machine.write("web", "exec sleep 1000")
    machine.write("stays", "exec sleep 1000")
    first = machine.agent("--standalone", crash=f"kill:{place}")
    machine.wait_alive("web")
    machine.wait_alive("stays")
    machine.remove("web")
    assert first.wait() == -signal.SIGKILL
    second = machine.agent_alone()
    machine.wait_gone("web")
    assert len(machine.alive("stays")) == 1
    assert second.stop() == 0
    machine.wait_gone("stays")


def test_what_ends_while_there_is_no_agent_is_known_to_the_next(machine: AgentMachine) -> None:
    machine.write("web", "exec sleep 1000")
    machine.write("job", "while [ ! -e go ]; do sleep 0.05; done; exit 9", restartPolicy="Never")
    first = machine.agent("--standalone")
    pid = machine.wait_alive("web")
    machine.wait_alive("job")
    first.kill()
    pod = machine.pod("job")
    assert pod is not None
    (machine.folder / "state/agent/pods" / pod.uid / "containers/main/go").touch()
    eventually(lambda: not machine.alive("job"))
    second = machine.agent_alone()
    eventually(lambda: machine.ended_with("job") == 9)
    assert machine.alive("web") == [pid]
    assert second.stop() == 0
    machine.wait_gone("web")


def test_an_agent_that_is_to_leave_its_pods_hands_them_to_the_next(machine: AgentMachine) -> None:
    machine.write("web", "exec sleep 1000")
    first = machine.agent("--standalone", "--leave-pods")
    pid = machine.wait_alive("web")
    assert first.stop() == 0
    assert machine.alive("web") == [pid]
    second = machine.agent_alone()
    machine.write("other", "exec sleep 1000")
    machine.wait_alive("other")
    assert machine.alive("web") == [pid]
    assert second.stop() == 0
    machine.wait_gone("web")
    machine.wait_gone("other")
