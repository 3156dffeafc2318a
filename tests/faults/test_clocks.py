"""Row 14: clocks that jump, Redis' by an hour and the workers' by five minutes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.machine import Clock
from tests.faults.scene import Scene, until

REDIS = "14 Redis' clock ±1 h"
WORKERS = "14 workers' clocks ±5 min"
HOUR = 3600.0

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def jump(scene: Scene, clock: Clock, seconds: float, breakage: tuple[str, ...] = ()) -> Verdict:
    """A worker dies with entries in its hands, the clock jumps, and another worker has to notice."""
    victim = scene.worker(crash="kill:record:40", breakage=breakage)
    other = scene.worker(breakage=breakage)
    until(lambda: "works on" in victim.said and "works on" in other.said)
    producer = scene.producer(rate=2_000)
    assert victim.wait() == -signal.SIGKILL
    clock.move(seconds)
    died = time.monotonic()
    time.sleep(1)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    return scene.verdict(since=died, still_s=20)


def with_redis_clock(scene: MakeScene, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Scene:
    with monkeypatch.context() as patch:
        for name, value in clock.env.items():
            patch.setenv(name, value)
        here = scene()
    assert "LD_PRELOAD" not in os.environ
    clock.move(HOUR)
    until(lambda: here.client.time()[0] > time.time() + HOUR / 2)  # it looks at its clock now and then
    clock.move(0)
    until(lambda: here.client.time()[0] < time.time() + HOUR / 2)
    return here


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_redis_clock_may_jump(
    scene: MakeScene, short_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch, note: Note
) -> None:
    clock = Clock(short_path)
    verdict = jump(with_redis_clock(scene, clock, monkeypatch), clock, seconds)
    note(REDIS, verdict)
    assert verdict.clean, verdict
    assert verdict.recovery_s is not None
    assert verdict.recovery_s < 15


def test_control_take_over_by_redis_clock(
    scene: MakeScene, short_path: Path, monkeypatch: pytest.MonkeyPatch, note_control: NoteControl
) -> None:
    clock = Clock(short_path)
    here = with_redis_clock(scene, clock, monkeypatch)
    note_control(REDIS, jump(here, clock, -HOUR, ("claims-by-idle-time",)), "take-over by idle time")


def jump_workers(scene: Scene, clock: Clock, seconds: float, breakage: tuple[str, ...] = ()) -> Verdict:
    scene.worker_env = clock.env
    return jump(scene, clock, seconds, breakage)


@pytest.mark.parametrize("seconds", [300.0, -300.0])
def test_workers_clocks_may_jump(scene: MakeScene, short_path: Path, seconds: float, note: Note) -> None:
    verdict = jump_workers(scene(), Clock(short_path), seconds)
    note(WORKERS, verdict)
    assert verdict.clean, verdict


def test_control_take_over_by_the_wall_clock(scene: MakeScene, short_path: Path, note_control: NoteControl) -> None:
    verdict = jump_workers(scene(), Clock(short_path), -300.0, ("claims-by-wall-clock",))
    note_control(WORKERS, verdict, "take-over by wall clock")
