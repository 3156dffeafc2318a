"""Row 16 beyond the store's group: any group's worker may die of an event, and isolation itself is disturbed."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from eventbus.consume.dead_letter import DeadLetter
from eventbus.model.encoding.wire import unpack_batch
from eventbus.workers.log_lines import uid_of_line
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.group_worker import EXIT
from tests.faults.producer import tag_of
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import TAKE_OVER_S, Process, Scene, reached, until
from tests.faults.test_poison import KILLER, MARK

#: One batch; the event that kills is in the middle of it.
EVENTS = 64
MAKES_IT = "p0-31"

MakeScene = Callable[..., Scene]


def die_one_after_the_other(scene: Scene, group: str, most: int, begin: Callable[[], Process]) -> int:
    """Begin workers until one lives to the end of it. Returns how many died."""
    for died in range(most):
        worker = begin()
        until(lambda: worker.ended or _finished(scene, group))  # noqa: B023
        if not worker.ended:
            return died
        assert worker.wait() in (EXIT, -signal.SIGKILL)
    return most


def _finished(scene: Scene, group: str) -> bool:
    groups = {info["name"].decode(): info for info in scene.client.xinfo_groups(scene.keys.incoming)}
    newest = scene.client.xinfo_stream(scene.keys.incoming)["last-generated-id"]
    return group in groups and not groups[group]["pending"] and groups[group]["last-delivered-id"] == newest


def judged(scene: Scene, group: str, done: Counter[str]) -> Verdict:
    """lost: neither handled nor buried.  double: buried more than once."""
    buried = [
        tag_of(packed)
        for entry in DeadLetter(scene.bus, scene.client).list(group=group)
        for packed in unpack_batch(entry.body).events
    ]
    verdict = Verdict(accepted=EVENTS, events=EVENTS)
    verdict.missing = EVENTS - len(set(done))
    verdict.tell(len(set(buried) - set(done)))
    verdict.double = len(buried) - len(set(buried))
    return verdict


# -- groups of one's own -----------------------------------------------------------------------------------------


def kill_group_workers(scene: Scene, most: int, *breakage: str) -> tuple[int, Verdict]:
    handled = scene.folder / f"{scene.prefix}.handled"
    arguments = [sys.executable, "-m", "tests.faults.group_worker", "mine", str(handled), "--mark", MARK]
    arguments += ["--take-over-s", str(TAKE_OVER_S), *(f"--breakage={name}" for name in breakage)]

    def begin() -> Process:
        return scene.run(arguments, {"EVENTBUS_WORKER_BLOCK_MS": "100"})

    assert scene.producer(count=EVENTS, mark=MARK).wait() == 0
    died = die_one_after_the_other(scene, "mine", most, begin)
    return died, judged(scene, "mine", Counter(handled.read_text().split()))


@pytest.mark.short
def test_an_event_that_kills_the_workers_of_ones_own_group_is_buried_alone(scene: MakeScene, note: Note) -> None:
    here = scene()
    died, verdict = kill_group_workers(here, 8)
    note(KILLER, verdict)
    (entry,) = DeadLetter(here.bus, here.client).list()
    assert (entry.cause, died, verdict.told) == ("killed-worker", 4, 1)
    assert [tag_of(packed) for packed in unpack_batch(entry.body).events] == [MAKES_IT]
    assert not here.client.exists(here.keys.attempts + b"mine")
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_killer_in_ones_own_group_that_is_not_isolated(scene: MakeScene, note_control: NoteControl) -> None:
    died, verdict = kill_group_workers(scene(), 5, "no-isolation")
    assert died == 5
    note_control(KILLER, verdict, "a group without isolation")


# -- the fleet's log ---------------------------------------------------------------------------------------------


def kill_log_workers(scene: Scene, most: int, breakage: tuple[str, ...] = ()) -> tuple[int, Verdict, Counter[str]]:
    output = scene.folder / f"{scene.prefix}.lines"

    def begin() -> Process:
        return scene.worker(kind="log", crash=f"kill:decoded@{MARK}", breakage=breakage, output=output)

    assert scene.producer(count=EVENTS, mark=MARK).wait() == 0
    died = die_one_after_the_other(scene, "log", most, begin)
    tags = {uid: tag for tag, uids in scene.accepted.uids_of.items() for uid in uids}
    uids = (uid_of_line(line) for line in output.read_bytes().splitlines())
    lines = Counter(tags[uid] for uid in uids if uid in tags)  # the workers' own events are there as well
    return died, judged(scene, "log", lines), lines


@pytest.mark.volume
@pytest.mark.short
def test_an_event_that_kills_log_workers_is_buried_alone_and_every_other_has_one_line(
    scene: MakeScene, note: Note
) -> None:
    here = scene()
    died, verdict, lines = kill_log_workers(here, 8)
    note(KILLER, verdict)
    assert (died, verdict.told) == (4, 1)
    assert set(lines.values()) == {1}
    assert MAKES_IT not in lines
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_killer_in_the_log_that_is_not_isolated(scene: MakeScene, note_control: NoteControl) -> None:
    died, verdict, _ = kill_log_workers(scene(), 5, ("no-isolation",))
    assert died == 5
    note_control(KILLER, verdict, "a log without isolation")


# -- isolation disturbed -----------------------------------------------------------------------------------------


def doom(scene: Scene) -> None:
    """One batch that three workers have died of already, or two of them, held by one that has died as well."""
    assert scene.producer(count=EVENTS).wait() == 0
    ((_, entries),) = scene.client.xreadgroup("sink", "dead", {scene.keys.incoming: ">"})
    assert [fields[b"n"] for _, fields in entries] in ([b"64"], [b"1", b"63"])
    scene.client.hset(scene.keys.attempts + b"sink", mapping={entry: 3 for entry, _ in entries})


#: What a worker says when it begins to isolate, and when it goes on after a cut.
ISOLATES = "one event at a time"


def isolate_over_a_bad_line(scene: Scene, *breakage: str) -> Verdict:
    doom(scene)
    with Proxy(scene.url, seed=1, cut_every=1) as line:
        worker = scene.worker(url=line.url, breakage=breakage)
        begun = scene.meta("events")
        for events in (10, 25):
            until(lambda: scene.meta("events") >= begun + events)  # noqa: B023
            times = worker.said.count(ISOLATES)
            while worker.said.count(ISOLATES) == times and scene.meta("events") < begun + EVENTS:
                cuts, line.mode = line.cuts, Mode.CUT_REPLY
                until(lambda: line.cuts > cuts)  # noqa: B023
                line.mode = Mode.PASS
                # It may have been another line than the one that isolates: that of the signs of life, say.
                reached(lambda: worker.said.count(ISOLATES) > times, 2)  # noqa: B023
        verdict = scene.verdict()
        assert worker.said.count(ISOLATES) > 1
        worker.kill()
    return verdict


@pytest.mark.volume
@pytest.mark.short
def test_isolation_goes_on_where_it_was_when_the_line_is_cut(scene: MakeScene, note: Note) -> None:
    here = scene()
    verdict = isolate_over_a_bad_line(here, "isolation-is-slow")
    note(KILLER, verdict)
    assert not list(DeadLetter(here.bus, here.client).list())
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_notes_that_nobody_reads(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(lua="a-batch-begins-anew")
    note_control(KILLER, isolate_over_a_bad_line(here, "isolation-is-slow", "no-notes"), "isolation restarted")


def isolate_slowly(scene: Scene, *breakage: str) -> Verdict:
    """Two workers, each of which takes 5 s for the batch: longer than the time after which one counts as dead."""
    doom(scene)
    for _ in range(2):
        # It beats once a second; on a busy machine a living one may be late.
        scene.worker(breakage=("isolation-is-slow", *breakage), take_over_s=3)
    verdict = scene.verdict()
    verdict.duplicate += len(list(DeadLetter(scene.bus, scene.client).list()))
    return verdict


@pytest.mark.volume
@pytest.mark.short
def test_a_living_worker_that_isolates_slowly_is_not_taken_over(scene: MakeScene, note: Note) -> None:
    here = scene()
    verdict = isolate_slowly(here)
    note(KILLER, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
def test_control_a_worker_that_does_not_beat_at_its_work(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(KILLER, isolate_slowly(scene(), "no-beats-at-work"), "no beats at work")
