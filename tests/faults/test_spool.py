"""Row 2, with a spool: a producer killed while Redis is slow or away loses nothing that its flusher has seen."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbus.record.spool.journal import folders, read_file
from eventbus.record.spool.records import Contents
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.producer import tag_of
from tests.faults.scene import Producing, Scene, until
from tests.functions.cluster import Cluster
from tests.support.harness import frozen
from tests.waiting import PATIENCE_S

SPOOLED = "2 producer killed, with a spool"
#: events of the producer that is killed
EVENTS = 700

MakeScene = Callable[..., Scene]


def spool_of(scene: Scene) -> Path:
    return scene.folder / f"{scene.prefix}-spool"


def contents(scene: Scene) -> list[Contents]:
    root = spool_of(scene)
    return [read_file(folder) for folder in folders(root)] if root.exists() else []


def promise(scene: Scene, victim: Producing) -> int:
    """Put what the spool holds into the accept-log: from now on it must be there, once, under that uid."""
    promised = 0
    with victim.accepted.open("a") as log:
        for each in contents(scene):
            for line in each.lines.values():
                for batch in line.in_order():
                    tags = " ".join(map(tag_of, batch.packed.events()))
                    log.write(f"{line.producer.id} {batch.first} SPOOLED {tags}\n")
                    promised += batch.packed.count
    return promised


def record_half(scene: Scene, crash: str = "", spool: bool = True) -> Producing:
    """Start a producer that records half of its events, and the other half when it gets SIGUSR1."""
    env = {"EVENTBUS_SPOOL": str(spool_of(scene))} if spool else {}
    victim = scene.producer(crash=crash, env=env, count=EVENTS, pause_s=PATIENCE_S, stay=1)
    until(lambda: victim.events >= EVENTS // 2)
    return victim


def send(scene: Scene, *breakage: str) -> None:
    """`eventbus spool send`, as a process of its own."""
    program = ["tests.faults.breakages", *breakage, "--"] if breakage else ["eventbus"]
    words = [sys.executable, "-m", *program, "spool", "send", "--dir", str(spool_of(scene))]
    assert scene.run(words, {}).wait() == 0


def kill_while_redis_is_frozen(scene: Scene) -> tuple[int, float]:
    """The second half goes into sockets that nobody reads, and into the spool. Returns what was promised, and when."""
    scene.worker()
    victim = record_half(scene)
    until(
        lambda: not sum(each.events for each in contents(scene))
    )  # on a busy machine the first half may have been in it for a while
    with frozen(scene.server.pid):
        victim.signal(signal.SIGUSR1)
        until(lambda: victim.events + sum(each.events for each in contents(scene)) >= EVENTS)
        victim.signal(signal.SIGKILL)
        victim.wait()
    scene.drain_sockets()  # what the victim had written to its socket is in the stream now
    return promise(scene, victim), time.monotonic()


@pytest.mark.short
def test_what_a_frozen_redis_had_not_acknowledged_is_sent_once(scene: MakeScene, note: Note) -> None:
    here = scene()
    promised, died = kill_while_redis_is_frozen(here)
    send(here)
    verdict = here.verdict(since=died)
    note(SPOOLED, verdict)
    assert promised > 0
    assert verdict.accepted == EVENTS
    assert verdict.clean, verdict
    assert contents(here) == []


@pytest.mark.long
def test_what_a_frozen_cluster_had_not_acknowledged_is_sent_once_to_every_partition(
    scene: MakeScene, short_path: Path, note: Note
) -> None:
    cluster = Cluster(short_path, replicas=False)
    here = scene(server=cluster, partitions=6)
    here.worker()
    victim = record_half(here)
    for number in range(3):
        cluster.freeze(number)
    victim.signal(signal.SIGUSR1)
    until(lambda: sum(each.events for each in contents(here)) >= EVENTS // 2)
    victim.signal(signal.SIGKILL)
    victim.wait()
    promised = promise(here, victim)
    for number in range(3):
        cluster.thaw(number)
    until(lambda: all(here.client.get(keys.root) is None for keys in here.bus.keys))  # it is a cluster again
    back = time.monotonic()
    send(here)
    verdict = here.verdict(since=back)
    note(f"{SPOOLED}, on a cluster", verdict)
    assert promised == EVENTS // 2
    assert verdict.accepted == EVENTS
    assert verdict.clean, verdict
    assert contents(here) == []


@pytest.mark.parametrize("crash", ["publish:2", "published:2", "spool:1", "spooled:1"])
@pytest.mark.long
def test_wherever_it_is_killed_what_is_on_disk_arrives_once(scene: MakeScene, crash: str, note: Note) -> None:
    here = scene()
    here.worker()
    env = {"EVENTBUS_SPOOL": str(spool_of(here)), "EVENTBUS_SPOOL_WHEN": "always"}
    victim = here.producer(crash=f"kill:{crash}", env=env, rate=2_000)
    assert victim.wait() == -signal.SIGKILL
    died = time.monotonic()
    promise(here, victim)
    send(here)
    verdict = here.verdict(since=died)
    note(SPOOLED, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_what_was_recorded_while_redis_was_gone_is_sent_by_the_next_process(scene: MakeScene, note: Note) -> None:
    here = scene()
    here.worker()
    victim = record_half(here)
    here.kill_server()
    victim.signal(signal.SIGUSR1)
    until(lambda: sum(each.events for each in contents(here)) >= EVENTS // 2)
    victim.signal(signal.SIGKILL)
    victim.wait()
    promise(here, victim)
    here.restart_server()
    back = time.monotonic()
    heir = here.producer(count=100, stay=1, env={"EVENTBUS_SPOOL": str(spool_of(here))})
    until(lambda: not any(each.events for each in contents(here)))
    heir.signal(signal.SIGTERM)
    assert heir.wait() == 0
    verdict = here.verdict(since=back)
    note(SPOOLED, verdict)
    assert verdict.accepted >= EVENTS + 100
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_sent_under_a_fresh_id(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    kill_while_redis_is_frozen(here)
    send(here, "adopts-under-a-fresh-id")
    note_control(SPOOLED, here.verdict(), "orphans under a fresh id")


@pytest.mark.volume
@pytest.mark.short
def test_control_without_a_spool(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    here.worker()
    victim = record_half(here, spool=False)
    here.kill_server()
    victim.signal(signal.SIGUSR1)
    until(lambda: "events wait" in victim.said)
    victim.signal(signal.SIGKILL)
    victim.wait()
    here.restart_server()
    until(lambda: here.client.ping())
    verdict: Verdict = here.verdict()
    verdict.lost += EVENTS - verdict.accepted
    note_control(SPOOLED, verdict, "no spool")
