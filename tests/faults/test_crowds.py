"""Rows 11, 21, 22, 28, and producers that fork or are silent for long."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.keys import partition_of
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import MIB, Settings
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.producer import NAMESPACE
from tests.faults.scene import Scene, reached, until
from tests.faults.test_server import NO_RING

POLICY = "11 wrong eviction policy"
CROWD = "21 1 000 producers"
HOT = "22 hot object"
BUSY = "28 busy Redis"
SILENT = "30 producer silent for longer than its state lives"
FORK = "31 fork"

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


# -- 11 ----------------------------------------------------------------------------------------------------------


def test_a_server_that_evicts_is_refused(scene: MakeScene, note: Note) -> None:
    here = scene()
    here.client.config_set("maxmemory-policy", "allkeys-lru")
    worker, producer = here.worker(), here.producer(count=100, flush_s=1)
    assert worker.wait() == 2
    assert "maxmemory-policy noeviction" in worker.said
    assert producer.wait() == 0
    assert producer.losses == {"unsent": 100}
    note(POLICY, Verdict(accepted=0))


def test_control_a_server_that_evicts_is_taken(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    here.client.config_set("maxmemory-policy", "allkeys-lru")
    worker = here.worker(breakage=("any-policy-will-do",))
    producer = here.producer(rate=5_000, breakage=["any-policy-will-do"], env=NO_RING)
    until(lambda: producer.acknowledged > 100)
    here.client.config_set("maxmemory", here.client.info("memory")["used_memory"] - 300_000)
    time.sleep(2)
    here.client.config_set("maxmemory", 0)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    worker.kill()
    note_control(POLICY, here.verdict(still_s=2), "evicting server taken")


# -- 21 ----------------------------------------------------------------------------------------------------------


def crowd(scene: Scene, breakage: list[str]) -> tuple[Verdict, int]:
    """All connect at once; then Redis is killed, and all connect again while they go on recording.

    They stay for a moment after the last: who is gone cannot send again what a kill takes back.
    """
    for _ in range(2):
        scene.worker()
    producers = [scene.producer(recorders=250, count=20, rate=3, stay=1, breakage=breakage) for _ in range(4)]
    until(lambda: all(producer.acknowledged >= 500 for producer in producers))
    scene.kill_server()
    time.sleep(0.5)
    scene.restart_server()
    back = time.monotonic()
    reached(lambda: all(producer.events >= 5_000 for producer in producers), 15 if breakage else 90)
    time.sleep(3)
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait(120) == 0
    verdict = scene.verdict(since=back)
    return verdict, sum(producer.end["recorded"] for producer in producers)


def test_a_thousand_producers_at_once(scene: MakeScene, note: Note) -> None:
    verdict, recorded = crowd(scene(partitions=4, max_stored=200_000), [])
    note(CROWD, verdict)
    assert verdict.accepted == recorded == 20_000
    assert verdict.clean, verdict


def test_control_a_crowd_that_does_not_try_again(scene: MakeScene, note_control: NoteControl) -> None:
    verdict, recorded = crowd(scene(partitions=4, max_stored=200_000), ["no-retry"])
    verdict.lost += recorded - verdict.accepted
    note_control(CROWD, verdict, "no retry")


# -- 22 ----------------------------------------------------------------------------------------------------------


def hot(scene: Scene, seconds: float, rate: int, still_s: float = 120) -> tuple[Verdict, str]:
    """Each of two producers speaks about one object while a worker dies and is replaced.

    *still_s*: as for `Scene.verdict`.
    Returns: the verdict; the rate, and how long it took meanwhile until an event in another partition was recorded.
    """
    victim = scene.worker(crash="kill:recorded:20")
    scene.worker()
    producers = [scene.producer(objects=1, rate=rate) for _ in range(2)]
    until(lambda: all(producer.acknowledged > 5 for producer in producers))
    begun = time.monotonic()
    latencies = sorted(neighbours_latency(scene, seconds))
    p50, p99 = (1_000 * latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    assert victim.wait() == -signal.SIGKILL
    died = time.monotonic()
    scene.worker()
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    loaded_s = time.monotonic() - begun
    verdict = scene.verdict(since=died, still_s=still_s)
    return (
        verdict,
        f"{verdict.accepted / loaded_s:.0f} events/s; neighbours' latency p50 {p50:.0f} ms, p99 {p99:.0f} ms",
    )


def neighbours_latency(scene: Scene, seconds: float) -> list[float]:
    """Record an event after the other, and wait for its change in a partition where no producer is."""

    def of(reference: ObjectReference) -> int:
        return partition_of(reference, scene.bus.partitions)

    busy = {of(ObjectReference("Pod", NAMESPACE, f"p{n}-0", "", "v1")) for n in range(2)}
    candidates = (ObjectReference("Pod", "quiet", f"n{i}", "", "v1") for i in range(1_000))
    about = next(candidate for candidate in candidates if of(candidate) not in busy)
    changes = scene.bus.keys[of(about)].changes_of("events")
    found: list[float] = []
    with EventBroadcaster(scene.url, settings=Settings(prefix=scene.prefix)) as broadcaster:
        recorder = broadcaster.new_recorder("neighbour", "here")
        end, after = time.monotonic() + seconds, b"0-0"
        while time.monotonic() < end:
            begun = time.monotonic()
            recorder.event(about, "Normal", "Asked", "how long does it take?")
            ((_, entries),) = scene.client.xread({changes: after}, block=30_000)
            after = entries[-1][0]
            found.append(time.monotonic() - begun)
            time.sleep(0.02)
    return found


def test_a_hot_object_is_counted_exactly(scene: MakeScene, note: Note) -> None:
    verdict, remark = hot(scene(partitions=4, incoming_bytes=4096 * MIB), 20, 25_000)
    note(HOT, verdict, remark)
    assert verdict.clean, verdict


def test_control_a_hot_object_and_no_acknowledgement(scene: MakeScene, note_control: NoteControl) -> None:
    verdict, _ = hot(scene(partitions=4, lua="no-acknowledgement"), 3, 2_500, still_s=5)
    note_control(HOT, verdict, "record without XACK")


# -- 28 ----------------------------------------------------------------------------------------------------------


def keep_busy(scene: Scene, breakage: list[str]) -> Verdict:
    """Somebody's script runs for three seconds, and everybody else is told BUSY."""
    scene.worker()
    producer = scene.producer(rate=2_000, breakage=breakage)
    until(lambda: producer.acknowledged > 20)
    script = "local s = redis.call('TIME')[1] + 4 while tonumber(redis.call('TIME')[1]) < s do end return 1"

    def run() -> None:
        with make_client(scene.url, block_ms=10_000) as admin:
            admin.eval(script, 0)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    over = time.monotonic()
    time.sleep(1)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    assert "BUSY" in producer.said or "busy" in producer.said
    verdict = scene.verdict(since=over)
    verdict.lost += producer.end["recorded"] - verdict.accepted
    return verdict


def test_a_busy_redis_is_waited_for(scene: MakeScene, note: Note) -> None:
    verdict = keep_busy(scene(config={"busy-reply-threshold": "300"}), [])
    note(BUSY, verdict)
    assert verdict.clean, verdict


def test_control_a_busy_redis_and_no_retry(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(BUSY, keep_busy(scene(config={"busy-reply-threshold": "300"}), ["no-retry"]), "no retry")


# -- silent ------------------------------------------------------------------------------------------------------


def be_silent(scene: Scene, breakage: list[str]) -> Verdict:
    scene.worker()
    producer = scene.producer(count=2_000, life_ms=1_000, pause_s=3, breakage=breakage)
    assert producer.wait() == 0
    verdict = scene.verdict()
    verdict.lost += producer.end["recorded"] - verdict.accepted
    assert not producer.losses
    return verdict


def test_a_producer_that_was_silent_for_long_goes_on(scene: MakeScene, note: Note) -> None:
    verdict = be_silent(scene(), [])
    note(SILENT, verdict)
    assert verdict.clean, verdict


def test_control_silence_that_is_taken_for_a_loss(scene: MakeScene, note_control: NoteControl) -> None:
    verdict = be_silent(scene(lua="an-expired-state-is-a-gap"), ["idle-keeps-its-id"])
    note_control(SILENT, verdict, "expiry taken for loss")


# -- fork --------------------------------------------------------------------------------------------------------


def have_children(scene: Scene, kind: str, breakage: list[str]) -> Verdict:
    """Three children in the middle of the parent's 20 000, with 500 of their own each."""
    scene.worker()
    producer = scene.producer(count=20_000, children=kind, breakage=breakage, flush_s=10)
    # A child that goes on with its parent's numbers may never be idle: its shutdown lasts for all of its 60 s.
    assert producer.wait(120) == 0
    verdict = scene.verdict()
    verdict.lost += max(0, 20_000 + 3 * 500 - verdict.accepted)
    return verdict


@pytest.mark.parametrize("kind", ["fork", "multiprocessing"])
def test_parent_and_children_send_their_own_and_nothing_else(scene: MakeScene, kind: str, note: Note) -> None:
    verdict = have_children(scene(), kind, [])
    note(f"{FORK}: {kind}", verdict)
    assert verdict.clean, verdict


@pytest.mark.parametrize("kind", ["fork", "multiprocessing"])
def test_control_children_that_go_on_with_their_parents_outbox(
    scene: MakeScene, kind: str, note_control: NoteControl
) -> None:
    verdict = have_children(scene(), kind, ["child-keeps-the-parents-outbox"])
    note_control(f"{FORK}: {kind}", verdict, "parent's outbox kept")
