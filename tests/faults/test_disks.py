"""Rows 3, 4 and 5: a server that is killed with its last second unwritten, on a slow disk, on a full one."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.machine import SmallDisk, slow_fsync
from tests.faults.scene import Scene, until
from tests.faults.test_server import NO_RING, kill_often

#: What is written stays when only the server dies; it is a slow disk that leaves something unwritten. So both are one
#: row, and the control run has the slow disk.
EVERYSEC = "3, 4 Redis killed, AOF everysec"
DISK_FULL = "5 disk full"

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_the_ring_repairs_a_server_that_is_killed_with_everysec(scene: MakeScene, seed: int, note: Note) -> None:
    here = scene()
    back = kill_often(here, seed, 20, rate=8_000)
    verdict = here.verdict(since=back)
    note(EVERYSEC, verdict)
    assert verdict.clean, verdict
    assert not any(producer.losses for producer in here.producers)


def kill_on_a_slow_disk(scene: Scene, seed: int, kills: int, env: dict[str, str]) -> Verdict:
    chance = random.Random(seed)
    scene.worker()
    producers = [scene.producer(rate=5_000, env=env) for _ in range(2)]
    for _ in range(kills):
        until(lambda: all(producer.acknowledged > 5 for producer in producers))
        with slow_fsync(scene.server.pid or 0, 1.5):
            time.sleep(chance.uniform(2.0, 4.0))
            scene.kill_server()
        scene.restart_server()
        time.sleep(1)
    back = time.monotonic()
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    return scene.verdict(since=back)


def test_the_ring_repairs_what_a_slow_disk_never_wrote(scene: MakeScene, seed: int, note: Note) -> None:
    here = scene()
    verdict = kill_on_a_slow_disk(here, seed, 6, {})
    note(EVERYSEC, verdict)
    assert verdict.clean, verdict


def test_control_a_slow_disk_without_a_ring(scene: MakeScene, seed: int, note_control: NoteControl) -> None:
    here = scene()
    verdict = kill_on_a_slow_disk(here, seed, 6, NO_RING)
    note_control(EVERYSEC, verdict, "no ring, fsync 1.5 s")
    # what it is told to be lost is what is lost
    assert sum(producer.losses.get("lost", 0) for producer in here.producers) == verdict.lost


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_full_disk_is_waited_for(scene: MakeScene, short_path: Path, fsync: str, note: Note) -> None:
    verdict, _ = fill_the_disk(scene, short_path, fsync, [])
    note(f"{DISK_FULL}, {fsync}", verdict)
    assert verdict.clean, verdict


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_control_a_full_disk_and_no_retry(
    scene: MakeScene, short_path: Path, fsync: str, note_control: NoteControl
) -> None:
    verdict, recorded = fill_the_disk(scene, short_path, fsync, ["no-retry"])
    verdict.lost += recorded - verdict.accepted
    note_control(f"{DISK_FULL}, {fsync}", verdict, "no retry")


def fill_the_disk(scene: MakeScene, folder: Path, fsync: str, breakage: list[str]) -> tuple[Verdict, int]:
    disk = SmallDisk(folder, size_mb=96, config={"appendfsync": fsync, "auto-aof-rewrite-percentage": "0"})
    here = scene(server=disk)
    here.worker()
    producer = here.producer(rate=8_000, breakage=breakage)
    until(lambda: producer.acknowledged > 20)
    disk.fill(leave_kb=500)
    until(lambda: "disk" in producer.said or "connection" in producer.said or not disk.running())
    time.sleep(2)
    disk.empty()
    if fsync == "always":  # such a server ends itself rather than lie
        until(lambda: not disk.running())
        disk.start()
    over = time.monotonic()
    marks = producer.acknowledged
    until(lambda: producer.acknowledged > marks + 20)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    verdict = here.verdict(since=over)
    return verdict, producer.end["recorded"]
