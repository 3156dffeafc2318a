"""Shims with a full disk or no descriptors: no run is half begun, no end is forgotten, the shim goes on.

A limit of the size of its files is a shim's full disk: longer files cannot be written.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.runtime.shim_client import call
from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.state import EXITED, RUNNING, STATE, read_state
from eventbus.model.kinds import POD
from eventbus.model.objects.pod import Pod
from tests.support.runtime_world import UID, RuntimeWorld, children, container, is_idle, lowest_free, runtime_world
from tests.waiting import eventually

#: Bytes between two bounds that are tried.
STEP = 16


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    with runtime_world(tmp_path / "state") as made:
        yield made


def test_a_start_that_finds_no_room_leaves_nothing_behind_and_can_be_tried_again(world: RuntimeWorld) -> None:
    world.sync(sleeping("c0"))
    full, failed = size(world), 0
    while True:  # past the first word of the run, and past the second, which is longer
        with limited(world, resource.RLIMIT_FSIZE, full):
            if not world.sync(sleeping("c0", "c1")).failed:
                break
            assert [one.pid for one in children(world.shim_pid) if not one.gone] == [world.run("c0").pid]
        full, failed = full + STEP, failed + 1
    assert failed > 2
    assert (world.run("c1").running, world.run("c1").attempt) == (True, 0)


@pytest.mark.parametrize("spare", range(5))  # one more might do, if a connection that was counted has just been closed
def test_a_start_without_descriptors_leaves_nothing_behind_and_can_be_tried_again(
    world: RuntimeWorld, spare: int
) -> None:
    world.sync(sleeping("c0"))
    used = descriptors(world)
    with limited(world, resource.RLIMIT_NOFILE, used + 2 + spare):
        result = world.sync(sleeping("c0", "c1"))
        assert "Too many open files" in str(result)
    eventually(lambda: descriptors(world) <= used)

    assert not world.sync(sleeping("c0", "c1")).failed
    assert (world.run("c1").running, world.run("c1").attempt) == (True, 0)


def test_an_end_that_finds_no_room_is_written_when_there_is_some(world: RuntimeWorld) -> None:
    world.sync(sleeping("c0"))
    run, shim = world.run("c0"), world.shim_pid
    with limited(world, resource.RLIMIT_FSIZE, 1):
        os.kill(run.pid, signal.SIGTERM)
        eventually(lambda: all(one.gone for one in children(shim)))
        assert phases(world) == {"c0": RUNNING}

    eventually(lambda: phases(world) == {"c0": EXITED})
    assert (world.run("c0").exit_code, world.run("c0").signal, world.shim_pid) == (143, 15, shim)
    assert not list(world.folder.glob(f"pods/{UID}/{STATE}.*"))  # of the tries that found none


def test_an_end_that_found_no_room_is_written_when_the_shim_ends(world: RuntimeWorld) -> None:
    world.sync(sleeping("c0"))
    run, shim = world.run("c0"), world.shim_pid
    with limited(world, resource.RLIMIT_FSIZE, 1):
        os.kill(run.pid, signal.SIGTERM)
        eventually(lambda: not children(shim))
    call(world.folder / "pods" / UID, {"op": "exit"}, 60.0)  # before it tries again, on a machine that is not busy
    eventually(lambda: read_process(shim) is None)

    assert phases(world) == {"c0": EXITED}


def test_an_end_that_cannot_be_kept_is_tried_again(world: RuntimeWorld, tmp_path: Path) -> None:
    counted, run, shim = tmp_path / "memory.events", start_in(world, tmp_path), world.shim_pid
    os.mkfifo(counted)
    os.kill(run["pid"], signal.SIGKILL)
    counted.write_text("oom_kill many")
    told = world.folder / "pods" / UID / "shim.log"
    eventually(lambda: "ValueError" in told.read_text())  # the shim has read it, and closes it
    counted.write_text("oom_kill 1")
    eventually(lambda: phases(world)["late"] == EXITED)

    assert (world.run("late").exit_code, world.run("late").reason, world.shim_pid) == (137, "OOMKilled", shim)


def test_a_shim_that_can_never_keep_an_end_dies_and_forgets_no_process(world: RuntimeWorld, tmp_path: Path) -> None:
    run, shim = start_in(world, tmp_path), world.shim_pid
    (tmp_path / "memory.events").write_text("oom_kill many")
    os.kill(run["pid"], signal.SIGKILL)
    eventually(lambda: read_process(shim) is None)

    assert world.run("late").reason == "ContainerStatusUnknown"


def start_in(world: RuntimeWorld, cgroup: Path) -> dict[str, Any]:
    """Start a process that its shim takes for one of *cgroup*, a folder."""
    world.sync(sleeping("c0"))
    process = {
        "path": "/bin/sleep",
        "argv": ["sleep", "1000"],
        "env": {},
        "cwd": "/",
        "uid": -1,
        "gid": -1,
        "groups": [],
        "limits": {},
        "cgroup": "",
    }
    run = {"id": f"{UID}/late/0", "name": "late", "log": str(cgroup / "log"), "cgroup": str(cgroup)}
    request = {"op": "start", "run": run, "process": process}
    started: dict[str, Any] = call(world.folder / "pods" / UID, request, 60.0)["run"]
    return started


def test_an_end_is_written_with_one_free_descriptor(world: RuntimeWorld) -> None:
    world.sync(sleeping("c0"))
    run, shim = world.run("c0"), world.shim_pid
    eventually(lambda: is_idle(shim))  # it is done with the requests before
    with limited(world, resource.RLIMIT_NOFILE, lowest_free(shim) + 1):
        os.kill(run.pid, signal.SIGTERM)
        eventually(lambda: phases(world) == {"c0": EXITED})

    assert (world.run("c0").exit_code, world.run("c0").signal, world.shim_pid) == (143, 15, shim)


def sleeping(*names: str) -> Pod:
    containers = [container(name, "exec sleep 1000") for name in names]
    spec = {"containers": containers, "restartPolicy": "Never"}
    return POD.decode({"metadata": {"name": "web-0", "namespace": "shop", "uid": UID}, "spec": spec})


@contextmanager
def limited(world: RuntimeWorld, which: int, bound: int) -> Iterator[None]:
    """Bound the pod's shim, and let it go again."""
    shim = world.shim_pid
    former = resource.prlimit(shim, which)
    resource.prlimit(shim, which, (bound, former[1]))
    try:
        yield
    finally:
        resource.prlimit(shim, which, former)


def descriptors(world: RuntimeWorld) -> int:
    return len(os.listdir(f"/proc/{world.shim_pid}/fd"))


def size(world: RuntimeWorld) -> int:
    return (world.folder / "pods" / UID / STATE).stat().st_size


def phases(world: RuntimeWorld) -> dict[str, str]:
    state = read_state(str(world.folder / "pods" / UID))
    assert state is not None
    return {run["name"]: run["phase"] for run in state["runs"]}
