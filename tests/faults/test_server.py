"""Rows 3, 10, 12 and 13: the server killed, full, emptied, with a spoilt key, or without its functions."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import LONG, Harm, Note, NoteControl
from tests.faults.producer import NAMESPACE, OBJECTS
from tests.faults.scene import SETTLE_S, Scene, reached, until
from tests.waiting import PATIENCE_S, eventually

ALWAYS = "3 Redis killed, AOF always"
FULL = "10 out of memory"
FLUSHED = "12 FLUSHALL"
WRONG_TYPE = "12 key of the wrong type"
REFUSED = "12 call refused half-way"
OVERWRITTEN = "12 object overwritten"
OVERWRITTEN_SIMILAR = "12 aggregate overwritten"
FUNCTIONS = "13 functions flushed"

MakeScene = Callable[..., Scene]
NO_RING = {"EVENTBUS_RING_BYTES": "0"}
#: Events a second while something is wrong, for how long it is, and the batches that are acknowledged before.
RATE, FOR_S, BEFORE = (2_000, 2, 100) if LONG else (200, 1, 20)


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
    back = kill_often(here, seed, 20 if LONG else 2, rate=0 if LONG else 500, env=NO_RING)
    verdict = here.verdict(since=back)
    note(ALWAYS, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_killed_server_that_writes_nothing(scene: MakeScene, seed: int, note_control: NoteControl) -> None:
    here = scene(config={"appendonly": "no"})
    kill_often(here, seed, 1, rate=5_000, env=NO_RING)
    note_control(ALWAYS, here.verdict(still_s=5), "no AOF, no ring")


# -- 10 ----------------------------------------------------------------------------------------------------------


def fill_up(scene: Scene, within_s: float = PATIENCE_S) -> tuple[Verdict, int, int]:
    """Fill Redis with nobody draining, then drain it while it is full, for *within_s* at most, then give it room.

    Returns: the verdict, the memory when full, the most of it while it was drained.
    """
    count, room = (30_000, 700_000) if LONG else (6_000, 400_000)
    used = scene.client.info("memory")["used_memory"]
    scene.client.config_set("maxmemory", used + room)
    producer = scene.producer(count=count, objects=count, rate=20_000, noise=100)
    until(lambda: "out of memory" in producer.said)
    before = most = scene.client.info("memory")["used_memory"]
    backlog = scene.client.xlen(scene.keys.incoming)
    scene.worker()
    deadline = time.monotonic() + within_s
    while not (drained := scene.settle(0)) and time.monotonic() < deadline:
        most = max(most, scene.client.info("memory")["used_memory"])
        time.sleep(0.01)
    scene.client.config_set("maxmemory", 0)
    assert producer.wait() == 0
    verdict = scene.verdict(still_s=10)
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
    verdict, _, _ = fill_up(scene(lua="record-is-refused-when-full"), within_s=4)
    note_control(FULL, Harm(not verdict.clean, "not drained"), "record without allow-oom")


@pytest.mark.volume
@pytest.mark.short
def test_control_a_record_that_creates_when_full(scene: MakeScene, note_control: NoteControl) -> None:
    _, before, most = fill_up(scene(lua="record-creates-when-full"), within_s=4)
    harm = Harm(most > before + SLACK, f"{(most - before) / 1e6:.1f} MB more")
    note_control(FULL, harm, "creates when full")


# -- 12 ----------------------------------------------------------------------------------------------------------


def meanwhile(
    scene: Scene,
    disaster: Callable[[], object],
    *,
    breakage: tuple[str, ...] = (),
    rate: int = RATE,
    after_s: float = 0,
    at_rest: bool = False,
) -> float:
    """Let *disaster* happen under load, and go on for a while. Returns when it was over.

    Args: after_s: so much of the load first.  at_rest: the producer stands still when it happens, and the floor is
          behind all that it has recorded.
    """
    scene.worker(breakage=breakage)
    producer = scene.producer(rate=rate)
    until(lambda: producer.acknowledged > BEFORE)
    time.sleep(after_s)
    if at_rest:
        producer.signal(signal.SIGSTOP)
        until(lambda: producer.frozen)
        scene.drain_sockets()
        assert scene.settle()
        scene.see_trimmed()  # which moves the floor up
    disaster()
    over = time.monotonic()
    producer.signal(signal.SIGCONT)
    producer.go_on()
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


@pytest.mark.volume
@pytest.mark.short
def test_after_flushall_an_idle_producer_sends_its_ring_again(scene: MakeScene, note: Note) -> None:
    verdict = flush_over_the_idle(scene(hold=False))
    note(FLUSHED, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_an_idle_producer_that_does_not_ask(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(FLUSHED, flush_over_the_idle(scene(hold=False), "the-idle-do-not-ask"), "the idle do not ask")


@pytest.mark.volume
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
    time.sleep(FOR_S)
    scene.client.rename(key + b":aside", key)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("incoming", marks=pytest.mark.long),
        pytest.param("incoming:meta", marks=pytest.mark.long),
        pytest.param("meta", marks=pytest.mark.long),
        pytest.param("changes:events", marks=pytest.mark.short),
        pytest.param("index:name:events", marks=pytest.mark.long),
        pytest.param("index:expiry", marks=[pytest.mark.short, pytest.mark.volume]),
    ],
)
def test_a_key_of_the_wrong_type_stops_work_and_not_the_workers(scene: MakeScene, name: str, note: Note) -> None:
    here = scene()
    over = meanwhile(here, lambda: spoil_for_a_while(here, here.keys.root + name.encode()))
    verdict = here.verdict(since=over)
    note(WRONG_TYPE, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_function_that_looks_at_no_types(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="keys-of-any-type notes-are-not-finished")
    meanwhile(here, lambda: spoil_for_a_while(here, here.keys.changes_of("events")))
    note_control(WRONG_TYPE, here.verdict(), "types not looked at, notes not finished")


@pytest.mark.volume
@pytest.mark.short
def test_control_a_function_that_acknowledges_first(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="acknowledges-first")
    meanwhile(here, lambda: spoil_for_a_while(here, here.keys.index_expiry))
    note_control(WRONG_TYPE, here.verdict(), "acknowledged first")


GARBAGE = b"not yours"


class Overwriting:
    """For some time puts a list, or garbage, under the key that *find* finds, again whenever it was written anew."""

    def __init__(self, scene: Scene, find: Callable[[Scene], bytes | None]) -> None:
        self._scene = scene
        self._find = find
        self.key = b""
        self.asides: list[bytes] = []  #: where what was there stands now

    def __call__(self) -> None:
        client = self._scene.client
        until(self._found)
        end = time.monotonic() + FOR_S
        while time.monotonic() < end:
            self.asides.append(self.key + b":aside%d" % len(self.asides))
            pipe = client.pipeline(transaction=True).rename(self.key, self.asides[-1])
            (pipe.rpush if len(self.asides) % 2 else pipe.set)(self.key, GARBAGE)
            pipe.execute()
            # A list reads as None, too.
            if not reached(lambda: client.mget([self.key])[0] not in (None, GARBAGE), 10):
                return

    def _found(self) -> bool:
        self.key = self._find(self._scene) or b""
        return bool(self.key)

    @property
    def told(self) -> bool:
        """Return True if each time was counted, and this key named."""
        times, named = self._scene.client.hmget(self._scene.keys.corrupt, "times", "last_key")
        return int(times or 0) == len(self.asides) and named == self.key


def an_object(scene: Scene) -> bytes | None:
    """The key of an event that is recorded again and again."""
    for member in scene.client.zrevrange(scene.keys.index_expiry, 0, -1):
        key: bytes = scene.keys.object + member
        if msgpack.unpackb(scene.client.get(key), raw=True)[3] == NAMESPACE.encode():
            return key
    return None


def a_set_of_similar_messages(scene: Scene) -> bytes | None:
    """The one that was used last, when all objects have one."""
    keys: list[bytes] = list(scene.client.scan_iter(match=scene.keys.correlation + b"*", count=1000))
    return max(keys, key=scene.client.pttl) if len(keys) >= OBJECTS else None


def overwrite_object(scene: Scene) -> Verdict:
    """Overwrite an object for a while.

    Each copy's count is gone with it, and reported, so that the judge can add it up."""
    overwriting = Overwriting(scene, an_object)
    verdict = scene.verdict(since=meanwhile(scene, overwriting))
    taken = sum(msgpack.unpackb(scene.client.get(aside), raw=True)[0] for aside in overwriting.asides)
    if verdict.missing == taken and overwriting.told:
        verdict.tell(taken)
    return verdict


@pytest.mark.short
def test_an_object_overwritten_is_written_anew_and_told(scene: MakeScene, note: Note) -> None:
    verdict = overwrite_object(scene())
    note(OVERWRITTEN, verdict)
    assert verdict.told > 0
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_an_object_overwritten_that_nobody_tells(scene: MakeScene, note_control: NoteControl) -> None:
    verdict = overwrite_object(scene(lua="strings-of-others-are-not-told"))
    note_control(OVERWRITTEN, verdict, "other types not looked for")


def overwrite_similar(scene: Scene, still_s: float = SETTLE_S) -> Verdict:
    """No count hangs on it. That nobody tells would be a loss."""
    overwriting = Overwriting(scene, a_set_of_similar_messages)
    verdict = scene.verdict(since=meanwhile(scene, overwriting), still_s=still_s)
    verdict.lost += not overwriting.told
    return verdict


@pytest.mark.volume
@pytest.mark.short
def test_a_set_of_similar_messages_overwritten_is_begun_anew_and_told(scene: MakeScene, note: Note) -> None:
    verdict = overwrite_similar(scene())
    note(OVERWRITTEN_SIMILAR, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_garbage_taken_for_a_set_of_similar_messages(scene: MakeScene, note_control: NoteControl) -> None:
    verdict = overwrite_similar(scene(lua="garbage-is-taken-for-ours"), still_s=4)
    note_control(OVERWRITTEN_SIMILAR, verdict, "garbage taken for ours")


def take_a_right_for_a_while(scene: Scene, command: str) -> None:
    """So that a function is refused in the middle of what it writes."""
    scene.client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    time.sleep(FOR_S)
    scene.client.execute_command("ACL", "SETUSER", "default", f"+{command}")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("xack", marks=pytest.mark.short),
        pytest.param("zadd", marks=pytest.mark.long),
        pytest.param("hset", marks=pytest.mark.long),
        pytest.param("del", marks=pytest.mark.long),
    ],
)
def test_a_call_that_is_refused_half_way_is_finished_when_it_may_go_on(
    scene: MakeScene, command: str, note: Note
) -> None:
    here = scene()
    verdict = here.verdict(since=meanwhile(here, lambda: take_a_right_for_a_while(here, command)))
    note(REFUSED, verdict)
    assert verdict.clean, verdict
    assert not here.client.exists(here.keys.note_of("events"))


@pytest.mark.long
def test_control_a_refused_call_that_nobody_finishes(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="notes-are-not-finished")
    meanwhile(here, lambda: take_a_right_for_a_while(here, "xack"))
    note_control(REFUSED, here.verdict(), "notes not finished")


# -- 13 ----------------------------------------------------------------------------------------------------------


def flush_functions(scene: Scene, seconds: float) -> Callable[[], None]:
    def flush() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            scene.client.function_flush("SYNC")
            time.sleep(0.1 if LONG else 0.25)

    return flush


@pytest.mark.short
def test_functions_that_are_gone_are_loaded_again(scene: MakeScene, note: Note) -> None:
    here = scene()
    over = meanwhile(here, flush_functions(here, 10 if LONG else FOR_S))
    verdict = here.verdict(since=over)
    note(FUNCTIONS, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
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
    verdict = here.verdict(still_s=2)
    verdict.lost += producer.end["recorded"] - verdict.accepted
    note_control(FUNCTIONS, verdict, "not loaded again")
