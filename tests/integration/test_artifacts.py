"""Archives that containers run from: unpacked once, with the kubelet's events, never without their digest."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.runtime import artifacts
from eventbus.model.objects.pod import Pod
from tests.support.runtime_world import UID, RuntimeWorld, make_pod


@pytest.fixture
def image(tmp_path: Path) -> str:
    """An archive with a program `bin/hello`."""
    return archive(tmp_path / "app.tar.gz", b"#!/bin/sh\necho hello from $(basename $PWD)\n")


def archive(path: Path, program: bytes) -> str:
    """Write an archive with *program* as `bin/hello`. Returns: the image that names it."""
    with tarfile.open(path, "w:gz") as made:
        member = tarfile.TarInfo("bin/hello")
        member.size, member.mode = len(program), 0o755
        made.addfile(member, io.BytesIO(program))
    return f"file:{path}@sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def pod_of(image: str, **more: Any) -> Pod:
    return make_pod(
        containers=[{"name": "main", "image": image, "command": ["bin/hello"], **more}], restartPolicy="Never"
    )


def test_an_archive_is_unpacked_and_its_program_runs_in_it(world: RuntimeWorld, image: str) -> None:
    world.sync(pod_of(image))
    world.ended()

    assert world.log() == f"hello from {image.rpartition(':')[2]}\n"
    assert world.told.reasons == ["Pulling", "Pulled", "Created", "Started"]


def test_what_is_in_the_cache_is_not_unpacked_again(world: RuntimeWorld, image: str) -> None:
    world.sync(pod_of(image))
    world.ended()
    again = make_pod(containers=[{"name": "other", "image": image, "command": ["bin/hello"]}], restartPolicy="Never")
    world.told.events.clear()
    world.sync(again)

    assert "Pulling" not in world.told.reasons
    assert world.told.message("Pulled") == f'Container image "{image}" already present on machine'


def test_what_may_never_be_pulled_has_to_be_there(world: RuntimeWorld, image: str) -> None:
    result = world.sync(pod_of(image, imagePullPolicy="Never"))

    assert result.waiting["main"].reason == "ErrImageNeverPull"
    assert world.told.reasons == ["ErrImageNeverPull", "Failed"]
    assert world.told.events[1][3] == "Error: ErrImageNeverPull"


def test_an_archive_with_another_digest_is_not_run_and_tried_again_later(world: RuntimeWorld, image: str) -> None:
    other = f"{image.rpartition(':')[0]}:{'0' * 64}"
    first, second = world.sync(pod_of(other)), world.sync(pod_of(other))

    assert first.waiting["main"].reason == "ErrImagePull"
    assert "has the digest sha256:" in first.waiting["main"].message
    assert second.waiting["main"].reason == "ImagePullBackOff"
    assert 0 < (second.retry_s or 0) <= 10
    assert world.told.reasons == ["Pulling", "Failed", "Failed", "BackOff"]
    assert not list((world.folder / "artifacts").glob("*"))


def test_an_archive_that_is_replaced_or_changed_after_its_digest_was_checked_is_not_unpacked(
    world: RuntimeWorld, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, extract = tmp_path / "app.tar.gz", artifacts._extract
    archive(tmp_path / "other.tar.gz", b"#!/bin/sh\necho evil\n")

    def late(*args: Any) -> None:
        path.write_bytes((tmp_path / "other.tar.gz").read_bytes())
        extract(*args)

    monkeypatch.setattr(artifacts, "_extract", late)
    world.sync(pod_of(image))
    world.ended()
    assert world.log() == f"hello from {image.rpartition(':')[2]}\n"


def test_an_archive_that_no_pod_has_used_for_ten_minutes_is_removed(world: RuntimeWorld, image: str) -> None:
    world.sync(pod_of(image))
    world.ended()
    unpacked = world.folder / "artifacts" / image.rpartition(":")[2]
    # By an agent that was killed while it unpacked, and had the same pid, as agents of a container have.
    left = unpacked.with_name(f".{unpacked.name}-{os.getpid()}-0")
    left.mkdir()
    unused_s = artifacts.UNUSED_S + 1

    age(unpacked, unused_s)
    world.open().collect()
    assert unpacked.is_dir(), "a pod may start it again"
    assert not left.exists()

    world.runtime.kill_pod(UID, None, 0.0)
    world.runtime.remove(UID)
    world.open().collect()
    assert unpacked.is_dir(), "it was used a moment ago"

    age(unpacked, unused_s)
    world.open().collect()
    assert not list((world.folder / "artifacts").iterdir())
    world.sync(pod_of(image))
    assert world.told.reasons.count("Pulling") == 2


def age(path: Path, seconds: float) -> None:
    """Have *path* look as if it was last used so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize("name", ["nginx:1.27", "file:/opt/app.tar.gz", "file:app.tar@sha256:" + "0" * 64])
def test_an_image_that_is_no_archive_is_explained(world: RuntimeWorld, name: str) -> None:
    result = world.sync(pod_of(name))

    assert result.waiting["main"].reason == "InvalidImageName"
    assert "file:/path/app.tar.gz@sha256:DIGEST" in world.told.message("InspectFailed")


def test_an_archive_that_leads_elsewhere_is_refused(world: RuntimeWorld, tmp_path: Path) -> None:
    path = tmp_path / "bad.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../../out")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    assert world.sync(pod_of(f"file:{path}@sha256:{digest}")).waiting["main"].reason == "ErrImagePull"
    assert not (world.folder / "out").exists()
