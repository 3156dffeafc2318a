"""Row 35: workers with shares of 16 partitions come and go under load, by SIGTERM and by kill -9."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbus.broker.health.status import read_status
from tests.faults.conftest import Note, NoteControl
from tests.faults.scene import Process, Scene, until

SHARES = "35 shares, workers come and go"
PARTITIONS = 16
#: The pollers, the heartbeats and the housekeeping of the worker, its own outbox, and the main thread.
MOST_THREADS = 10

MakeScene = Callable[..., Scene]


def shares(scene: Scene) -> dict[str, tuple[int, ...]]:
    """Who works which partitions, as `status` shows it."""
    groups = {group.name: group for group in read_status(scene.bus, scene.client).groups}
    return {worker.name: worker.partitions for worker in groups["sink"].workers if worker.alive}


def are_shared_by(scene: Scene, workers: int) -> bool:
    """All partitions are worked, each by one worker, and all workers have as many."""
    found = [share for share in shares(scene).values() if share]
    sizes = [len(share) for share in found]
    every = sorted(number for share in found for number in share)
    return len(found) == workers and every == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


def threads_of(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


@pytest.mark.volume
@pytest.mark.short
def test_workers_come_and_go_and_every_event_is_counted_once(scene: MakeScene, note: Note) -> None:
    here = scene(partitions=PARTITIONS)
    first = here.worker()
    producer = here.producer(rate=1_500, objects=200)
    until(lambda: are_shared_by(here, 1))
    assert threads_of(first) <= MOST_THREADS
    second, third = here.worker(), here.worker()
    until(lambda: are_shared_by(here, 3))
    for worker in (first, second, third):
        assert threads_of(worker) <= MOST_THREADS
    producer.go_on()
    second.kill()
    died = time.monotonic()
    until(lambda: are_shared_by(here, 2))
    producer.go_on()
    fourth = here.worker()
    until(lambda: are_shared_by(here, 3))
    producer.go_on()
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    until(lambda: are_shared_by(here, 2))
    producer.go_on()
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    verdict = here.verdict(since=died)
    note(SHARES, verdict, f"threads of a worker with 16 partitions, then 8: {threads_of(fourth)}")
    assert verdict.accepted == producer.end["recorded"] > 0
    assert verdict.clean, verdict
    for keys in here.bus.keys:
        assert int(here.client.hget(keys.meta, "events") or 0) > 0, f"{keys.root!r} was never worked"


@pytest.mark.long
def test_control_the_share_of_a_dead_worker_is_nobodys(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(partitions=PARTITIONS)
    victim = here.worker(breakage=("shares-stay",))
    here.worker(breakage=("shares-stay",))
    producer = here.producer(rate=1_500, objects=200)
    until(lambda: are_shared_by(here, 2))
    victim.kill()
    producer.go_on()
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    note_control(SHARES, here.verdict(still_s=8), "the dead keep their share")
