"""Rows 1, 7 and 26: sink workers killed, frozen or told to stop, at every step of their work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.checker import Verdict
from tests.faults.conftest import LONG, Note, NoteControl
from tests.faults.scene import Scene, reached, until

KILLED = "1 worker killed"
ZOMBIE = "7 zombie worker"
STOPPED = "26 graceful stop"
EVENTS = 1_500
#: Events a second while workers die.
RATE = 1_000 if LONG else 300

MakeScene = Callable[..., Scene]


def kill_one(scene: Scene, crash: str, *more: str, breakage: tuple[str, ...] = (), **producing: Any) -> float:
    """Let one worker after the other die, each at its own step, then another one live. Returns when the last died.

    Unless a count is given, the producer goes on until then: however slowly a worker starts, it has more than one read.
    """
    producer = scene.producer(**({"rate": RATE} | producing))
    for order in (crash, *more):
        victim = scene.worker(crash=f"kill:{order}", breakage=breakage)
        assert victim.wait() == -signal.SIGKILL
    died = time.monotonic()
    scene.worker(breakage=breakage)
    if "count" not in producing:
        producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    return died


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("read:2",), marks=pytest.mark.long),
        pytest.param(("decoded:2",), marks=pytest.mark.long),
        pytest.param(("record:2",), marks=pytest.mark.short),
        pytest.param(("recorded:2",), marks=pytest.mark.short),
        pytest.param(("record:1", "claim"), marks=pytest.mark.long),
        pytest.param(("record:1", "claimed"), marks=pytest.mark.long),
        pytest.param(("record:1", "read:2", "recorded:1"), marks=pytest.mark.long),
    ],
    ids="+".join,
)
def test_a_worker_killed_at_any_step_loses_and_doubles_nothing(
    scene: MakeScene, steps: tuple[str, ...], note: Note
) -> None:
    here = scene()
    died = kill_one(here, *steps)
    verdict = here.verdict(since=died)
    note(KILLED, verdict)
    assert verdict.accepted == here.producers[0].end["recorded"] > 0
    assert verdict.clean, verdict


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("trim",), marks=pytest.mark.long),
        pytest.param(("trimmed",), marks=pytest.mark.short),
        pytest.param(("record:2",), marks=[pytest.mark.short, pytest.mark.volume]),
    ],
    ids="+".join,
)
def test_what_a_dead_worker_holds_is_not_trimmed(scene: MakeScene, steps: tuple[str, ...], note: Note) -> None:
    here = scene(hold=False)
    died = kill_one(here, *steps)
    verdict = here.verdict(since=died)
    note(KILLED, verdict)
    assert verdict.accepted == here.producers[0].end["recorded"] > 0
    assert verdict.clean, verdict
    until(lambda: here.client.xlen(here.keys.incoming) == 0)


@pytest.mark.parametrize(
    "step", [pytest.param("expire", marks=pytest.mark.long), pytest.param("expired", marks=pytest.mark.short)]
)
def test_counts_go_on_when_a_worker_dies_while_events_expire(scene: MakeScene, step: str, note: Note) -> None:
    here = scene(event_ttl_s=1)
    died = kill_one(here, step, count=EVENTS, rate=3_000, pause_s=3)
    verdict = here.verdict(since=died)
    note(KILLED, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_killed_while_nobody_takes_over(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    kill_one(here, "record:2", breakage=("nobody-takes-over",))
    note_control(KILLED, here.verdict(still_s=4), "no take-over")


@pytest.mark.long
def test_control_killed_while_record_does_not_acknowledge(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="no-acknowledgement")
    kill_one(here, "recorded:2")
    note_control(KILLED, here.verdict(still_s=4), "record without XACK")


@pytest.mark.long
def test_control_trim_that_forgets_the_pending(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False, lua="trim-looks-at-delivered-only")
    kill_one(here, "record:2")
    note_control(KILLED, here.verdict(still_s=6), "trim past the pending")


@pytest.mark.long
def test_control_counts_that_end_with_the_event(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(event_ttl_s=1, lua="counts-end-with-the-event")
    kill_one(here, "expired", count=EVENTS, rate=3_000, pause_s=3)
    note_control(KILLED, here.verdict(), "counts expire")


# -- 7: thought dead, and back -----------------------------------------------------------------------------------


def freeze_one(scene: Scene, says: str) -> float:
    """A worker stands still before it records, another takes over and finishes, and the first goes on, and *says*."""
    zombie = scene.worker(crash="stop:record:2")
    scene.producer(count=EVENTS, rate=3_000)
    until(lambda: zombie.frozen)
    scene.worker()
    assert scene.producers[0].wait() == 0
    assert scene.settle()
    zombie.signal(signal.SIGCONT)
    back = time.monotonic()
    until(lambda: says in zombie.said)
    return back


@pytest.mark.short
def test_a_worker_that_comes_back_after_it_was_replaced_counts_nothing(scene: MakeScene, note: Note) -> None:
    here = scene()
    back = freeze_one(here, "taken over by another worker")
    verdict = here.verdict(since=back)
    note(ZOMBIE, verdict)
    assert verdict.accepted == EVENTS
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_zombie_without_the_token(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="no-token")
    freeze_one(here, "")
    # Not by a counter of the bus: workers tell events of their own, which it counts too.
    reached(lambda: not here.verdict().clean, 10)
    note_control(ZOMBIE, here.verdict(), "no token")


# -- 26: told to stop --------------------------------------------------------------------------------------------


def stop_all(scene: Scene, **producing: Any) -> tuple[Verdict, int]:
    """SIGTERM for a producer and a worker at full load. Returns the verdict, and how many events were recorded."""
    worker = scene.worker()
    producer = scene.producer(**({"rate": 20_000} | producing))
    until(lambda: producer.acknowledged > 50 and "works on" in worker.said)
    producer.signal(signal.SIGTERM)
    worker.signal(signal.SIGTERM)
    assert (worker.wait(30), producer.wait(30)) == (0, 0)
    assert scene.client.xpending(scene.keys.incoming, "sink")["pending"] == 0
    scene.worker()
    verdict = scene.verdict()
    verdict.lost += producer.end["recorded"] - verdict.accepted
    return verdict, producer.end["recorded"]


@pytest.mark.short
def test_sigterm_sends_and_records_everything_first(scene: MakeScene, note: Note) -> None:
    verdict, recorded = stop_all(scene())
    note(STOPPED, verdict)
    assert verdict.accepted == recorded
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_producer_that_does_not_flush(scene: MakeScene, note_control: NoteControl) -> None:
    verdict, _ = stop_all(scene(), breakage=["no-flush-at-the-end"], rate=0)
    note_control(STOPPED, verdict, "no flush")
