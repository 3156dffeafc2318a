"""Rows 15 and 16: bytes that nobody can read, and an event that kills whoever opens it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import msgpack
import pytest
from hypothesis import strategies as st

from eventbus.consume.dead_letter import DeadLetter
from eventbus.model.encoding.wire import SCHEMA_VERSION, pack_batch, unpack_batch
from eventbus.model.formats import CODEC_NONE
from tests.faults.checker import Verdict, counts_of
from tests.faults.conftest import LONG, Note, NoteControl
from tests.faults.producer import tag_of
from tests.faults.scene import Process, Scene, reached, until
from tests.thin import one
from tests.waiting import PATIENCE_S

POISON = "15 poison"
KILLER = "16 event that kills"

MakeScene = Callable[..., Scene]


def an_event(name: str) -> bytes:
    """A good event on the wire."""
    array = [f"{name}.1", "faults", ["Pod", "faults", name], "Numbered", "m", "Normal", ["faults", "here"], 1, 1, 1]
    packed: bytes = msgpack.packb(array)
    return packed


GOOD = an_event("neighbour")
DEEP = b"\x91" * 100_000 + b"\xc0"


def in_batch(*events: bytes) -> bytes:
    return pack_batch("poisoner", 1, list(events))


def with_field(position: int, value: Any) -> bytes:
    array = msgpack.unpackb(GOOD)
    array[position] = value
    packed: bytes = msgpack.packb(array)
    return packed


#: By the written format (docs/wire.md): no batch at all, so that the entry is buried whole.
NO_BATCH = [
    b"",
    b"\xc1",
    b"\xdd\xff\xff\xff\xff",
    DEEP,
    b"x" * 10_000_000,
    in_batch(GOOD)[:-3],
    in_batch(GOOD) + b"\x00",
    msgpack.packb([99, "poisoner", 1, CODEC_NONE, [GOOD]]),
    msgpack.packb([SCHEMA_VERSION, "poisoner", 1, 99, [GOOD]]),
    msgpack.packb([SCHEMA_VERSION, "poisoner", 1, [GOOD]]),
    msgpack.packb([SCHEMA_VERSION, "poisoner", 1, CODEC_NONE, [msgpack.ExtType(1, b"x")]]),
    msgpack.packb([SCHEMA_VERSION, "poisoner", "one", CODEC_NONE, [GOOD]]),
    msgpack.packb([SCHEMA_VERSION, "poisoner", 1, CODEC_NONE, ["text"]]),
    msgpack.packb({"events": [GOOD]}),
]
#: One event that is none, between two that are.
NO_EVENT = [
    b"",
    b"\xc1",
    DEEP[:16_000] + b"\xc0",
    GOOD[:-2],
    b"x" * (16 * 1024),
    msgpack.packb([]),
    with_field(0, 5),
    with_field(4, b"\xff\xfe"),
    with_field(7, float("nan")),
    with_field(7, float("inf")),
    with_field(7, -(10**18)),
    with_field(9, "x"),
    with_field(9, 2**40),
    with_field(2, ["Pod"] * 9),
    msgpack.packb(msgpack.ExtType(5, b"z")),
]


def add(scene: Scene, body: bytes, **fields: Any) -> None:
    """Beside the API, as a foreigner would."""
    scene.client.xadd(scene.keys.incoming, {"n": 1, "to": 1, "at": 0, "b": body} | fields)


def neighbours(scene: Scene) -> int:
    return counts_of(scene.bus, scene.client)["neighbour"]


def poison(scene: Scene, breakage: tuple[str, ...] = ()) -> tuple[Process, Verdict]:
    """All of the two tables. lost: not buried, missing: neighbours not counted, double: buried more than once."""
    for body in NO_BATCH:
        add(scene, body)
    for event in NO_EVENT:
        add(scene, in_batch(GOOD, event, GOOD))
    scene.client.xadd(scene.keys.incoming, {"foreign": "fields"})
    worker = scene.worker(breakage=breakage)
    assert scene.settle()
    buried = [entry.body for entry in DeadLetter(scene.bus, scene.client).list(group="sink")]
    wanted = len(NO_BATCH) + len(NO_EVENT) + 1
    verdict = Verdict(accepted=wanted, events=wanted)
    verdict.lost = max(0, wanted - len(buried))
    verdict.double = max(0, len(buried) - wanted)
    verdict.missing = 2 * len(NO_EVENT) - neighbours(scene)
    return worker, verdict


@pytest.mark.short
def test_what_cannot_be_read_is_buried_once_and_its_neighbours_are_not(scene: MakeScene, note: Note) -> None:
    here = scene()
    worker, verdict = poison(here)
    note(POISON, verdict)
    assert verdict.clean, verdict
    assert not worker.ended
    assert "Traceback" not in worker.said


@pytest.mark.volume
@pytest.mark.short
def test_control_poison_that_is_skipped(scene: MakeScene, note_control: NoteControl) -> None:
    _, verdict = poison(scene(), ("burials-are-forgotten",))
    note_control(POISON, verdict, "burials forgotten")


edits = st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=4)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A good batch with a few bytes replaced, removed or put in; or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    body = in_batch(GOOD, an_event("other"), GOOD)
    for place, new, removed in draw(edits):
        at = place % len(body) if body else 0
        body = body[:at] + new + body[at + removed :]
    return body


@pytest.mark.short
@pytest.mark.timeout(1200)
def test_no_bytes_stop_a_worker(short_path: Path, seed: int, note: Note) -> None:
    """Hypothesis looks for bytes that end it or stay pending; a good neighbour follows each lot."""
    with Scene(short_path, hold=False) as scene:
        worker = scene.worker()
        until(lambda: "works on" in worker.said)
        sent = {"bodies": 0, "lots": 0}

        @hypothesis.seed(seed)
        @hypothesis.settings(max_examples=1_000 if LONG else 10, deadline=None, database=None)
        @hypothesis.given(st.lists(bodies(), min_size=100, max_size=200) if LONG else st.lists(bodies(), max_size=30))
        def every_lot_is_finished_with(lot: list[bytes]) -> None:
            pipe = scene.client.pipeline(transaction=False)
            for body in [*lot, in_batch(an_event("witness"))]:
                pipe.xadd(scene.keys.incoming, {"n": 1, "to": 1, "at": 0, "b": body})
            pipe.execute()
            sent["bodies"] += len(lot)
            sent["lots"] += 1
            assert scene.settle(), worker.said[-500:]
            assert not worker.ended

        every_lot_is_finished_with()
        verdict = Verdict(accepted=sent["bodies"], events=sent["bodies"])
        # A changed byte may have made another witness of a neighbour, never fewer.
        verdict.missing = max(0, sent["lots"] - counts_of(scene.bus, scene.client)["witness"])
        note(POISON, verdict)
        assert verdict.clean
        assert "Traceback" not in worker.said
        assert sent["bodies"] >= (100_000 if LONG else 1)


# -- 16 ----------------------------------------------------------------------------------------------------------

MARK = "kills-whoever-opens-it"


def kill_them_all(scene: Scene, most: int, breakage: tuple[str, ...] = ()) -> int:
    """Start workers, one after the other, until one lives to the end of it. Returns how many died."""
    assert scene.producer(count=64, mark=MARK).wait() == 0
    died = 0
    while died < most:
        worker = scene.worker(crash=f"kill:decoded@{MARK}", breakage=breakage)
        if reached(lambda: worker.ended or scene.settle(0), PATIENCE_S) and not worker.ended:  # noqa: B023
            return died
        assert worker.wait() == -signal.SIGKILL
        died += 1
    return died


@pytest.mark.volume
@pytest.mark.short
def test_an_event_that_kills_is_buried_alone(scene: MakeScene, note: Note) -> None:
    here = scene()
    begun = time.monotonic()
    died = kill_them_all(here, 8)
    verdict = here.verdict(since=begun)
    (entry,) = DeadLetter(here.bus, here.client).list()
    # a flusher that overtakes the recording thread sends several batches
    batches = [unpack_batch(fields[b"b"]).events for _, fields in here.client.xrange(here.keys.incoming)]
    (accused,) = [tags for tags in (list(map(tag_of, packed)) for packed in batches) if "p0-31" in tags]
    assert len(accused) > 1, "it had neighbours"
    assert (entry.cause, died) == ("killed-worker", 4)
    assert [tag_of(packed) for packed in unpack_batch(entry.body).events] == ["p0-31"]
    assert verdict.missing == 1
    verdict.tell(1)
    note(KILLER, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_killer_that_is_not_isolated(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    assert kill_them_all(here, 5, ("no-isolation",)) == 5
    note_control(KILLER, here.verdict(still_s=0.5), "no isolation")


# -- the fleet's log buries as well --------------------------------------------------------------------------------


def kill_the_gravedigger(scene: Scene, step: str) -> Verdict:
    add(scene, b"\xc1")
    add(scene, in_batch(GOOD))
    victim = scene.worker(kind="log", crash=f"kill:{step}")
    assert victim.wait() == -signal.SIGKILL
    scene.worker(kind="log")
    until(lambda: scene.client.xpending(scene.keys.incoming, "log")["pending"] == 0)
    buried = len(list(DeadLetter(scene.bus, scene.client).list(group="log")))
    return Verdict(accepted=1, events=1, lost=int(buried < 1), double=max(0, buried - 1))


@pytest.mark.short
@pytest.mark.parametrize("step", one(["buried", "bury"]))
def test_a_worker_killed_over_the_dead_letter_buries_once(scene: MakeScene, step: str, note: Note) -> None:
    verdict = kill_the_gravedigger(scene(), step)
    note("1 worker killed", verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_burial_that_keeps_the_entry(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="burial-keeps-the-entry")
    add(here, b"\xc1")
    victim = here.worker(kind="log", crash="kill:buried")
    assert victim.wait() == -signal.SIGKILL
    here.worker(kind="log")
    dead = DeadLetter(here.bus, here.client)
    until(lambda: len(list(dead.list(group="log"))) > 1)
    note_control("1 worker killed", Verdict(accepted=1, events=1, double=len(list(dead.list())) - 1), "bury keeps")
