"""Pods in cgroups of a real kernel: each container in its own, and nothing left of them. Without controllers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eventbus.agent.runtime.isolation import CgroupIsolation, own_cgroup
from tests.support.runtime_world import UID, RuntimeWorld, make_pod
from tests.waiting import eventually


@pytest.fixture
def root() -> Iterator[Path]:
    """Make a cgroup below our own, for the test alone."""
    own = own_cgroup()
    if own is None:
        pytest.skip("this machine has no cgroups of version 2")
    folder = own.folder / f"eventbus-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup may be made here: {error.strerror}")
    try:
        yield folder
    finally:
        for below in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):
                below.rmdir()
        folder.rmdir()


@pytest.fixture
def world(tmp_path: Path, root: Path) -> Iterator[RuntimeWorld]:
    made = RuntimeWorld(tmp_path / "state", CgroupIsolation(root))
    yield made
    made.end()


def test_each_container_lives_in_a_cgroup_of_its_own_with_all_it_starts(world: RuntimeWorld, root: Path) -> None:
    world.sync(make_pod("sleep 1000 & exec sleep 1000", "exec sleep 1000"))
    folders = {name: root / f"besteffort/pod{UID}" / name for name in ("c0", "c1")}
    eventually(lambda: len((folders["c0"] / "cgroup.procs").read_text().split()) == 2)
    assert (folders["c1"] / "cgroup.procs").read_text().split() == [str(world.run("c1").pid)]
    where = Path(f"/proc/{world.run('c0').pid}/cgroup").read_text()
    assert f"/besteffort/pod{UID}/c0\n" in where


def test_nothing_is_left_of_a_pod_that_is_gone(world: RuntimeWorld, root: Path) -> None:
    pod = make_pod("exec sleep 1000", terminationGracePeriodSeconds=1)
    world.sync(pod)
    world.runtime.kill_pod(UID, pod)
    world.runtime.remove(UID)
    assert list((root / "besteffort").glob("pod*")) == []
