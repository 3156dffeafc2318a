"""Rows 3, 10, 12 and 13: the server killed, full, emptied, with a spoilt key, or without its functions."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import LONG, Harm, Note, NoteControl
from tests.faults.scene import Scene, reached, until
from tests.integration.harness import eventually

ALWAYS = "3 Redis killed, AOF always"
FULL = "10 out of memory"
FLUSHED = "12 FLUSHALL"
WRONG_TYPE = "12 key of the wrong type"
FUNCTIONS = "13 functions flushed"

MakeScene = Callable[..., Scene]
NO_RING = {"EVENTBUS_RING_BYTES": "0"}


def kill_often(scene: Scene, seed: int, kills: int, **producing: Any) -> float:
    """kill -9 the server in the middle of full load, again and again. Returns when it was last back."""
    chance = random.Random(seed)
    scene.worker()
    producers = [scene.producer(**producing) for _ in range(2)]
    for _ in range(kills):
        marks = [producer.acknowledged for producer in producers]
        until(lambda marks=marks: all(p.acknowledged > m for p, m in zip(producers, marks, strict=True)))  # type: ignore[misc]
        time.sleep(chance.uniform(0.1, 0.6))
        scene.kill_server()
        scene.restart_server()
    back = time.monotonic()
    for producer in producers:
        producer.signal(signal.SIGTERM)
    for producer in producers:
        assert producer.wait() == 0
    return back


@pytest.mark.short
def test_a_killed_server_that_writes_always_has_all_it_acknowledged(scene: MakeScene, seed: int, note: Note) -> None:
    here = scene(config={"appendfsync": "always"})
    back = kill_often(here, seed, 20 if LONG else 3, rate=0 if LONG else 5_000, env=NO_RING)
    verdict = here.verdict(since=back)
    note(ALWAYS, verdict)
    assert verdict.clean, verdict


@pytest.mark.short
def test_control_a_killed_server_that_writes_nothing(scene: MakeScene, seed: int, note_control: NoteControl) -> None:
    here = scene(config={"appendonly": "no"})
    kill_often(here, seed, 1, rate=5_000, env=NO_RING)
    note_control(ALWAYS, here.verdict(within_s=5), "no AOF, no ring")


# -- 10 ----------------------------------------------------------------------------------------------------------


def fill_up(scene: Scene) -> tuple[Verdict, int, int]:
    """Fill Redis with nobody draining, then drain it while it is full, then give it room.

    Returns: the verdict, the memory when full, the most of it while it was drained.
    """
    producer = scene.producer(count=30_000, objects=30_000, rate=20_000)
    until(lambda: producer.acknowledged > 10)
    used = scene.client.info("memory")["used_memory"]
    scene.client.config_set("maxmemory", used + 500_000)
    until(lambda: "out of memory" in producer.said)
    before = most = scene.client.info("memory")["used_memory"]
    backlog = scene.client.xlen(scene.keys.incoming)
    scene.worker()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and not scene.settle(0):
        most = max(most, scene.client.info("memory")["used_memory"])
        time.sleep(0.01)
    drained = scene.settle(0)
    scene.client.config_set("maxmemory", 0)
    assert producer.wait() == 0
    verdict = scene.verdict(within_s=10)
    uncounted = scene.not_created
    assert backlog
    if drained:  # what was not created is not lost if it was counted as such
        assert verdict.missing == uncounted, (verdict, uncounted)
        verdict.tell(uncounted)
    else:
        verdict.missing += 1
    return verdict, before, most


#: bytes that a connection's buffers and the like may add
SLACK = 1_500_000


@pytest.mark.short
def test_a_full_redis_is_drained_without_growing(scene: MakeScene, note: Note) -> None:
    here = scene()
    verdict, before, most = fill_up(here)
    note(FULL, verdict)
    assert verdict.clean, verdict
    assert here.meta("not_created") > 0
    assert most < before + SLACK


@pytest.mark.long
def test_control_a_record_that_memory_refuses(scene: MakeScene, note_control: NoteControl) -> None:
    verdict, _, _ = fill_up(scene(lua="record-is-refused-when-full"))
    note_control(FULL, Harm(not verdict.clean, "not drained"), "record without allow-oom")


@pytest.mark.short
def test_control_a_record_that_creates_when_full(scene: MakeScene, note_control: NoteControl) -> None:
    _, before, most = fill_up(scene(lua="record-creates-when-full"))
    harm = Harm(most > before + SLACK, f"{(most - before) / 1e6:.1f} MB more")
    note_control(FULL, harm, "creates when full")


# -- 12 ----------------------------------------------------------------------------------------------------------


def meanwhile(
    scene: Scene,
    disaster: Callable[[], object],
    *,
    breakage: tuple[str, ...] = (),
    rate: int = 2_000,
    after_s: float = 0,
    pause_s: float = 0,
) -> float:
    """Let *disaster* happen under load, and go on for a while. Returns when it was over.

    Args: after_s: so much of the load first.  pause_s: the producer stands still for so long before it happens.
    """
    scene.worker(breakage=breakage)
    producer = scene.producer(rate=rate)
    until(lambda: producer.acknowledged > 100)
    time.sleep(after_s)
    if pause_s:
        producer.signal(signal.SIGSTOP)
        scene.settle()
        time.sleep(pause_s)
    disaster()
    over = time.monotonic()
    producer.signal(signal.SIGCONT)
    time.sleep(1.5)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    return over


@pytest.mark.short
def test_after_flushall_the_ring_brings_everything_back(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False)
    over = meanwhile(here, here.client.flushall)
    verdict = here.verdict(since=over)
    note(FLUSHED, verdict)
    assert verdict.clean, verdict


def flush_over_the_idle(scene: Scene, *breakage: str) -> Verdict:
    """FLUSHALL when all has been acknowledged, and nobody records any more."""
    producer = scene.producer(count=1_000, stay=1, breakage=breakage)
    until(lambda: len(scene.accepted.uids_of) == 1_000)
    scene.client.flushall()
    over = time.monotonic()
    reached(lambda: scene.client.exists(scene.keys.incoming), 3 if breakage else 30)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    scene.worker()
    until(lambda: scene.client.exists(scene.keys.incoming))
    return scene.verdict(since=over)


@pytest.mark.short
def test_after_flushall_an_idle_producer_sends_its_ring_again(scene: MakeScene, note: Note) -> None:
    verdict = flush_over_the_idle(scene(hold=False))
    note(FLUSHED, verdict)
    assert verdict.clean, verdict


@pytest.mark.short
def test_control_an_idle_producer_that_does_not_ask(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(FLUSHED, flush_over_the_idle(scene(hold=False), "the-idle-do-not-ask"), "the idle do not ask")


@pytest.mark.short
def test_control_flushall_without_a_ring(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False)
    here.worker()
    producer = here.producer(rate=2_000, env=NO_RING)
    until(lambda: producer.acknowledged > 100)
    here.client.flushall()
    time.sleep(1)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    verdict = here.verdict()
    note_control(FLUSHED, verdict, "no ring")
    # what nobody can bring back is counted, and that exactly
    assert producer.losses["lost"] == verdict.missing


def spoil_for_a_while(scene: Scene, key: bytes) -> None:
    eventually(lambda: scene.client.exists(key))
    scene.client.pipeline(transaction=True).rename(key, key + b":aside").set(key, "not yours").execute()
    time.sleep(1)
    scene.client.rename(key + b":aside", key)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("incoming", marks=pytest.mark.long),
        pytest.param("meta", marks=pytest.mark.long),
        pytest.param("changes", marks=pytest.mark.short),
        pytest.param("index_name", marks=pytest.mark.long),
    ],
)
def test_a_key_of_the_wrong_type_stops_work_and_not_the_workers(scene: MakeScene, key: str, note: Note) -> None:
    here = scene()
    over = meanwhile(here, lambda: spoil_for_a_while(here, getattr(here.keys, key)))
    verdict = here.verdict(since=over)
    note(WRONG_TYPE, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_function_that_looks_at_no_types(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="keys-of-any-type")
    meanwhile(here, lambda: spoil_for_a_while(here, here.keys.changes))
    note_control(WRONG_TYPE, here.verdict(), "types not looked at")


# -- 13 ----------------------------------------------------------------------------------------------------------


def flush_functions(scene: Scene, seconds: float) -> Callable[[], None]:
    def flush() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            scene.client.function_flush("SYNC")
            time.sleep(0.1)

    return flush


@pytest.mark.short
def test_functions_that_are_gone_are_loaded_again(scene: MakeScene, note: Note) -> None:
    here = scene()
    over = meanwhile(here, flush_functions(here, 10 if LONG else 2))
    verdict = here.verdict(since=over)
    note(FUNCTIONS, verdict)
    assert verdict.clean, verdict


@pytest.mark.short
def test_control_functions_that_nobody_loads_again(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    worker = here.worker(breakage=("library-is-not-loaded-again",))
    until(lambda: "works on" in worker.said)
    producer = here.producer(rate=2_000, breakage=["library-is-not-loaded-again"], flush_s=1)
    until(lambda: producer.acknowledged > 100)
    here.client.function_flush("SYNC")
    time.sleep(0.5)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    verdict = here.verdict(within_s=2)
    verdict.lost += producer.end["recorded"] - verdict.accepted
    note_control(FUNCTIONS, verdict, "not loaded again")
