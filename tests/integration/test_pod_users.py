"""Pods that run as another user than the agent (needs root): only that user has access to their files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime_world import UID, RuntimeWorld, container, make_pod, runtime_world
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run a pod as another user")
NOBODY = 65534


@pytest.fixture
def world() -> Iterator[RuntimeWorld]:
    # Not pytest's own, which other users may not enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        with runtime_world(Path(folder) / "state") as made:
            yield made


def test_a_pod_of_another_user_has_its_folder_and_its_own_volumes(world: RuntimeWorld) -> None:
    mounts = [{"name": "scratch", "mountPath": "scratch"}]
    script = (
        "id -u; id -g; touch here scratch/there && echo made; ls ../.. 2>/dev/null; cat ../../state.json 2>/dev/null"
    )
    as_nobody = {"securityContext": {"runAsUser": NOBODY}}
    main = container("main", script, volumeMounts=mounts, **as_nobody)
    pod = make_pod(containers=[main], volumes=[{"name": "scratch", "emptyDir": {}}], restartPolicy="Never")
    assert not world.sync(pod).failed

    world.ended()
    eventually(lambda: world.log() == f"{NOBODY}\n{NOBODY}\nmade\n")
    folder = world.folder / "pods" / UID
    assert (folder.stat().st_mode & 0o777, folder.stat().st_gid) == (0o710, NOBODY)


def test_users_of_two_groups_share_a_pod(world: RuntimeWorld) -> None:
    containers = [
        container(f"c{user}", "touch here && echo made", securityContext={"runAsUser": NOBODY - user})
        for user in (0, 1)
    ]
    assert not world.sync(make_pod(containers=containers, restartPolicy="Never")).failed
    eventually(lambda: [world.log(f"c{user}") for user in (0, 1)] == ["made\n", "made\n"])
