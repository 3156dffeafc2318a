"""Pods on a disk that is full to its last byte: each can be ended, by its grace time, and how it ended is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.agent.logs import LocalPods
from eventbus.agent.shim.state import EXITED, RUNNING, read_state
from tests.support.agent_machine import AgentMachine
from tests.support.runtime_world import UID, RuntimeWorld, make_pod, runtime_world
from tests.support.small_disk import fill, small_disk
from tests.waiting import eventually

TRAPPED = "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    with small_disk(tmp_path, size_kib=512) as disk, runtime_world(disk) as made:
        yield made


def phases(world: RuntimeWorld) -> set[str]:
    """Return the phases of the pod's runs on disk."""
    state = read_state(str(world.folder / "pods" / UID))
    assert state is not None
    return {run["phase"] for run in state["runs"]}


def test_a_pod_is_ended_and_its_exit_codes_are_known(world: RuntimeWorld) -> None:
    pod = make_pod(TRAPPED, "exec sleep 1000", terminationGracePeriodSeconds=3600)
    world.sync(pod)
    eventually(lambda: "up" in world.log("c0"))
    fill(world.folder)
    world.runtime.kill_pod(UID, pod)

    assert world.processes() == []
    assert not world.status().active
    assert [(world.run(name).exit_code, world.run(name).reason) for name in ("c0", "c1")] == [
        (5, "Error"),
        (143, "Error"),
    ]
    assert phases(world) == {RUNNING}  # which could not be changed
    world.runtime.remove(UID)
    assert world.runtime.status(UID) is None


def test_one_that_does_not_end_is_killed_after_its_grace_time(world: RuntimeWorld) -> None:
    pod = make_pod("trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=1)
    world.sync(pod)
    eventually(lambda: "up" in world.log())
    fill(world.folder)
    world.runtime.kill_pod(UID, pod)

    assert (world.processes(), world.run().exit_code) == ([], 137)
    assert world.told.reasons[-2:] == ["Killing", "ExceededGracePeriod"]


def test_one_container_is_ended_and_starts_again_once_there_is_room(world: RuntimeWorld) -> None:
    pod = make_pod(TRAPPED)
    world.sync(pod)
    eventually(lambda: "up" in world.log())
    filler = fill(world.folder)
    world.runtime.kill_container(pod, "main", "it is not well")
    assert (world.run().running, world.run().exit_code) == (False, 5)

    filler.unlink()
    assert not world.sync(pod).failed
    assert (world.run().attempt, world.run().running, phases(world)) == (1, True, {RUNNING, EXITED})


def test_what_a_dead_shim_left_is_ended_and_unknown(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000", terminationGracePeriodSeconds=1)
    world.sync(pod)
    os.kill(world.shim_pid, signal.SIGKILL)
    eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]
    fill(world.folder)
    world.runtime.kill_pod(UID, pod)

    assert world.processes() == []
    assert (world.run().exit_code, world.run().reason) == (137, "ContainerStatusUnknown")
    assert not world.status().active


def test_an_agent_ends_pods_of_which_the_file_is_gone_and_all_when_it_ends_itself(tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    with small_disk(tmp_path, size_kib=2048) as disk, AgentMachine(folder, "none", "eb") as machine:
        machine.env["EVENTBUS_STATE_DIR"], machine.local = str(disk), LocalPods(disk / "agent")
        for name in ("web", "stays"):
            machine.write(name, "exec sleep 1000")
        agent = machine.agent_alone()
        stays = (machine.wait_alive("web"), machine.wait_alive("stays"))[1]
        fill(disk)
        machine.remove("web")
        machine.wait_gone("web")
        assert machine.alive("stays") == [stays]
        assert agent.stop() == 0
        machine.wait_gone("stays")
