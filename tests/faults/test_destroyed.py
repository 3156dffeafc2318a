"""Row 12: a stream or a group destroyed by hand. What was lost with it is counted to the event, and told."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from eventbus.broker.keys import SINK_GROUP
from tests.faults.checker import Verdict, stream_of
from tests.faults.conftest import LONG, Harm, Note, NoteControl
from tests.faults.scene import Producing, Scene, until
from tests.faults.test_server import meanwhile

STREAM = "12 stream destroyed, unread"
STREAM_AT_WORK = "12 stream destroyed at work"
GROUP = "12 group destroyed"
GROUP_AT_WORK = "12 group destroyed at work"
UNREAD = "12 group destroyed, unread"

MakeScene = Callable[..., Scene]

#: At work: events a second, for so long before; a floor is a second old, and two on a busy machine.
RATE, BEFORE_S = 1_000, 8.0
OF_A_FLOOR = 2 * RATE
#: Events that nobody has read.
UNREAD_EVENTS = 5_000 if LONG else 2_000


# -- the stream --------------------------------------------------------------------------------------------------


class Destroyed:
    """The stream destroyed while nobody reads for the store, and one of two producers is in the middle of it."""

    def __init__(self, scene: Scene) -> None:
        log = scene.worker(kind="log")  # somebody who keeps the floors
        until(lambda: "works on" in log.said)
        assert scene.producer(count=2_000).wait() == 0
        self.producer: Producing = scene.producer(rate=1_000)
        until(lambda: self.producer.acknowledged > 20)
        self.producer.signal(signal.SIGSTOP)
        until(lambda: self.producer.frozen)
        scene.drain_sockets()
        self.ours = len(stream_of(scene.bus, scene.client))
        pipe = scene.client.pipeline(transaction=True)
        pipe.hget(scene.keys.incoming_meta, "events")
        pipe.delete(scene.keys.incoming)
        self.unread = int(pipe.execute()[0])  #: those that workers tell of themselves included
        over = time.monotonic()
        self.producer.signal(signal.SIGCONT)
        self.producer.go_on()
        self.producer.signal(signal.SIGTERM)
        assert self.producer.wait() == 0
        scene.worker()
        self.verdict: Verdict = scene.verdict(since=over)
        self.counted = scene.meta("lost:sink")
        if self.counted == self.unread:
            self.verdict.tell(self.ours)


@pytest.mark.short
def test_what_is_lost_with_a_destroyed_stream_is_counted_to_the_event(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False)
    destroyed = Destroyed(here)
    note(STREAM, destroyed.verdict)
    assert destroyed.counted == destroyed.unread >= destroyed.ours
    assert destroyed.verdict.told == destroyed.ours > 2_000
    assert destroyed.verdict.clean, destroyed.verdict
    assert "destroyed" in destroyed.producer.losses
    assert "the stream was destroyed" in destroyed.producer.said
    until(lambda: here.warned(f"group sink was destroyed, or its stream, on partition 0: {destroyed.unread} events"))


@pytest.mark.volume
@pytest.mark.short
def test_control_what_was_destroyed_and_nobody_counts(scene: MakeScene, note_control: NoteControl) -> None:
    destroyed = Destroyed(scene(hold=False, lua="what-was-destroyed-is-not-counted"))
    note_control(STREAM, destroyed.verdict, "not counted")


@pytest.mark.long
def test_control_a_destroyed_stream_that_nobody_tells_its_producers(
    scene: MakeScene, note_control: NoteControl
) -> None:
    destroyed = Destroyed(scene(hold=False, lua="a-destroyed-stream-is-not-told"))
    note_control(STREAM, Harm("destroyed" not in destroyed.producer.losses, "its producer hears nothing"), "no LOST")


def destroy_stream_at_work(scene: Scene) -> Verdict:
    """The same before a worker that keeps up. At most what it did since its floor was kept is counted beside it."""
    over = meanwhile(scene, lambda: scene.client.delete(scene.keys.incoming), rate=RATE, after_s=BEFORE_S)
    verdict = scene.verdict(since=over)
    if verdict.missing <= scene.meta("lost:sink") <= verdict.missing + OF_A_FLOOR:
        verdict.tell(verdict.missing)
    return verdict


@pytest.mark.long
def test_a_stream_destroyed_at_work_is_told_and_work_goes_on(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False)
    verdict = destroy_stream_at_work(here)
    note(f"{STREAM_AT_WORK}, {RATE}/s", verdict)
    assert verdict.accepted > 3 * OF_A_FLOOR
    assert verdict.told <= OF_A_FLOOR, "it was not behind"
    assert verdict.clean, verdict
    assert "destroyed" in here.producers[0].losses


@pytest.mark.long
def test_control_a_stream_destroyed_at_work_without_floors(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False, lua="floors-stand-still")
    destroy_stream_at_work(here)
    counted = here.meta("lost:sink")
    note_control(f"{STREAM_AT_WORK}, {RATE}/s", Harm(counted > 3 * OF_A_FLOOR, f"{counted} counted"), "no floors")


# -- a group -----------------------------------------------------------------------------------------------------


@pytest.mark.short
def test_a_destroyed_group_goes_on_at_its_floor(scene: MakeScene, note: Note) -> None:
    here = scene()
    over = meanwhile(here, lambda: here.client.xgroup_destroy(here.keys.incoming, SINK_GROUP), at_rest=True)
    verdict = here.verdict(since=over)
    note(GROUP, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_destroyed_group_without_a_floor(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="no-floors")
    meanwhile(here, lambda: here.client.xgroup_destroy(here.keys.incoming, SINK_GROUP), at_rest=True)
    note_control(GROUP, here.verdict(), "no floors")


@pytest.mark.long
def test_control_a_group_that_nobody_makes_anew(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()

    def destroy() -> None:
        here.client.xgroup_destroy(here.keys.incoming, SINK_GROUP)

    meanwhile(here, destroy, breakage=("groups-are-not-reopened",), at_rest=True)
    note_control(GROUP, here.verdict(still_s=4), "group not created again")


def destroy_group_at_work(scene: Scene) -> Verdict:
    """Eight seconds of load before; the stream is held, so that all of it could be counted again."""

    def destroy() -> None:
        scene.client.xgroup_destroy(scene.keys.incoming, SINK_GROUP)

    over = meanwhile(scene, destroy, rate=RATE, after_s=BEFORE_S)
    return scene.verdict(since=over)


@pytest.mark.long
def test_a_group_destroyed_at_work_counts_a_second_twice_at_the_most(scene: MakeScene, note: Note) -> None:
    here = scene()
    verdict = destroy_group_at_work(here)
    note(f"{GROUP_AT_WORK}, {RATE}/s", verdict)
    assert verdict.accepted > 3 * OF_A_FLOOR
    assert verdict.lost == verdict.missing == verdict.duplicate == verdict.phantom == 0, verdict
    assert verdict.double <= OF_A_FLOOR, "a floor is hardly older than a second"


@pytest.mark.long
def test_control_a_group_destroyed_at_work_without_floors(scene: MakeScene, note_control: NoteControl) -> None:
    verdict = destroy_group_at_work(scene(lua="no-floors"))
    note_control(
        f"{GROUP_AT_WORK}, {RATE}/s", Harm(verdict.double > 3 * OF_A_FLOOR, f"{verdict.double} duplicate"), "no floors"
    )


def destroy_while_nobody_reads(scene: Scene) -> tuple[Verdict, int]:
    """The store's group is destroyed with its backlog unread, while the log's worker trims what it has read.

    Returns: the verdict, and how many events were unread, those that workers tell of themselves included.
    """
    log = scene.worker(kind="log")
    until(lambda: "works on" in log.said)
    assert scene.producer(count=UNREAD_EVENTS).wait() == 0
    until(lambda: scene.client.hexists(scene.keys.meta, "floor:log"))
    scene.client.xgroup_destroy(scene.keys.incoming, SINK_GROUP)
    unread = scene.published
    until(lambda: all(g["lag"] == g["pending"] == 0 for g in scene.client.xinfo_groups(scene.keys.incoming)))
    scene.see_trimmed()
    scene.worker()
    return scene.verdict(since=time.monotonic()), unread


@pytest.mark.short
def test_a_destroyed_group_keeps_what_it_has_not_read(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False)
    verdict, _ = destroy_while_nobody_reads(here)
    note(UNREAD, verdict)
    assert verdict.clean, verdict
    assert here.meta("lost:sink") == 0


@pytest.mark.volume
@pytest.mark.short
def test_control_a_destroyed_group_that_holds_nothing(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False, lua="a-destroyed-group-holds-nothing")
    verdict, unread = destroy_while_nobody_reads(here)
    note_control(UNREAD, verdict, "floor not looked at")
    # and yet it is counted when the group is made anew
    assert verdict.missing == UNREAD_EVENTS
    assert here.meta("lost:sink") == unread
