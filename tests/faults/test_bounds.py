"""Rows 17 and 29: groups that are slow, or gone, and the bound of the stream."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from eventbus.broker.functions import GroupPolicy
from eventbus.settings import MIB
from tests.faults.checker import Verdict
from tests.faults.conftest import Harm, Note, NoteControl
from tests.faults.scene import Process, Scene, reached, until
from tests.waiting import PATIENCE_S

DROP = "29 slow group, DROP"
WAIT = "29 slow group, WAIT"
HOLD = "29 dead group, hold"
SLOW_OUTBOX = "17 slow Redis, outbox DROP"
WATCHER = "17 killed with a watcher"

MakeScene = Callable[..., Scene]
EVENTS, NOISE = 5_000, 300
#: far longer than a worker that lives is late with a sign of life
HOLD_S = 60


def read_as(scene: Scene, group: str) -> int:
    """Read and acknowledge all there is for *group*; returns how many events that were.

    An entry counts if its acknowledgement does: a trim between the two has released it, and counted it as lost.
    """
    events = 0
    while page := scene.client.xreadgroup(group, "reader", {scene.keys.incoming: ">"}, count=500):
        entries = page[0][1]
        pipe = scene.client.pipeline(transaction=False)
        for entry, _ in entries:
            pipe.xack(scene.keys.incoming, group, entry)
        events += sum(int(fields[b"n"]) for (_, fields), acked in zip(entries, pipe.execute(), strict=True) if acked)
    return events


def account(scene: Scene, read: int = 0, within_s: float = PATIENCE_S) -> tuple[int, int, int]:
    """Read for the group slow, which has *read* so much, until all that was published is read or counted as lost to it.

    Returns: what was published, read, and counted; they do not add up if they never did *within_s*.
    """
    everything = dropped = 0

    def adds_up() -> bool:
        nonlocal everything, read, dropped
        read += read_as(scene, "slow")
        everything, dropped = scene.published, scene.meta("lost:slow")
        return everything == read + dropped

    reached(adds_up, within_s)
    return everything, read, dropped


def fall_behind(scene: Scene, within_s: float = PATIENCE_S) -> Verdict:
    """A DROP group that reads nothing until the end. lost: neither read then nor counted as lost to it."""
    scene.bus.open_partition(scene.client, 0, "slow", GroupPolicy.DROP, "0")
    scene.worker()
    assert scene.producer(count=EVENTS, rate=20_000, noise=NOISE).wait() == 0
    verdict = scene.verdict()
    # The housekeeper may trim meanwhile, or record an event of its own.
    everything, read, dropped = account(scene, within_s=within_s)
    assert read < EVENTS, "the stream was never trimmed below it"
    verdict.lost += everything - read - dropped
    verdict.told = dropped - max(0, everything - verdict.accepted)  # without what workers tell of themselves
    return verdict


@pytest.mark.short
def test_what_a_slow_drop_group_loses_is_counted_and_nobody_else_loses(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False, incoming_bytes=MIB)
    verdict = fall_behind(here)
    note(DROP, verdict)
    assert verdict.clean, verdict
    assert here.meta("lost:slow") > 0
    assert here.meta("lost:sink") == 0


@pytest.mark.long
def test_control_a_trim_that_does_not_count(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False, incoming_bytes=MIB, lua="trim-does-not-count")
    note_control(DROP, fall_behind(here, within_s=3), "not counted")


def hold_up(scene: Scene) -> tuple[Verdict, int]:
    """A WAIT group that reads nothing until the stream is full. Returns also the most bytes that were queued."""
    scene.bus.open_partition(scene.client, 0, "slow", GroupPolicy.WAIT, "0")
    scene.worker()
    producer = scene.producer(count=12_000, noise=100)
    full = "the stream of partition 0 is full: group 'slow' holds it"
    until(lambda: full in producer.said or queued(scene) > 1.2 * MIB)
    most = queued(scene)
    read = 0

    def is_drained() -> bool:
        nonlocal read
        read += read_as(scene, "slow")
        return producer.ended and read >= 12_000

    until(is_drained)
    verdict = scene.verdict()
    everything, read, _ = account(scene, read)
    verdict.lost += everything - read
    return verdict, most


def queued(scene: Scene) -> int:
    found = scene.client.hmget(scene.keys.incoming_meta, "bytes", "trimmed")
    return int(found[0] or 0) - int(found[1] or 0)


@pytest.mark.volume
@pytest.mark.short
def test_a_slow_wait_group_makes_producers_wait_and_loses_nothing(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False, incoming_bytes=MIB)
    verdict, most = hold_up(here)
    note(WAIT, verdict)
    assert verdict.clean, verdict
    assert most <= MIB
    assert not here.producers[0].losses


@pytest.mark.long
def test_control_a_stream_without_a_bound(scene: MakeScene, note_control: NoteControl) -> None:
    _, most = hold_up(scene(hold=False, incoming_bytes=MIB, lua="no-bound"))
    note_control(WAIT, Harm(most > MIB, f"{most / MIB:.1f} MiB queued of 1"), "no bound")


@pytest.mark.short
def test_a_wait_group_without_workers_is_let_go_and_told(scene: MakeScene, note: Note) -> None:
    here = scene(hold=False, incoming_bytes=MIB, hold_s=HOLD_S)
    here.bus.open_partition(here.client, 0, "slow", GroupPolicy.WAIT, "0")
    here.worker()
    begun = time.monotonic()
    producer = here.producer(count=EVENTS, rate=20_000, noise=NOISE)
    until(lambda: here.client.hexists(here.keys.meta, "alive:slow"))
    until(lambda: producer.acknowledged > 20)
    # As if it had been without workers for so long already: the store's group, with as much time, has not.
    here.client.hincrby(here.keys.meta, "alive:slow", -1000 * HOLD_S)
    assert producer.wait() == 0
    verdict = here.verdict(since=begun)
    until(lambda: here.meta("lost:slow") > 0)
    everything, read, dropped = account(here)
    verdict.lost += everything - dropped - read
    verdict.told = dropped - (everything - verdict.accepted)  # without what workers tell of themselves
    note(HOLD, verdict)
    assert verdict.clean, verdict
    assert here.meta("lost:sink") == 0
    until(lambda: here.warned("group slow held the stream too long on partition 0: "))


@pytest.mark.long
def test_control_a_hold_that_never_ends(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene(hold=False, incoming_bytes=MIB, hold_s=2, lua="hold-never-ends")
    here.bus.open_partition(here.client, 0, "slow", GroupPolicy.WAIT, "0")
    here.worker()
    env = {"EVENTBUS_BUFFER_WAIT_S": "1"}
    producer = here.producer(count=EVENTS, rate=20_000, noise=NOISE, flush_s=3, env=env)
    until(lambda: queued(here) > 0.9 * MIB)
    time.sleep(3)
    producer.signal(signal.SIGTERM)
    assert producer.wait() in (0, -signal.SIGTERM)  # it may have come to its end just before
    verdict = here.verdict()
    verdict.lost += producer.end["recorded"] - verdict.accepted
    note_control(HOLD, verdict, "hold for ever")


# -- 17 ----------------------------------------------------------------------------------------------------------


def overflow(scene: Scene, *breakage: str) -> Verdict:
    """A Redis that stands still until an outbox of 1 000 drops. lost: neither sent nor counted as dropped."""
    scene.worker()
    env = {"EVENTBUS_BUFFER_FULL": "drop", "EVENTBUS_BUFFER_EVENTS": "1000"}
    producer = scene.producer(rate=10_000, env=env, breakage=list(breakage))
    until(lambda: producer.acknowledged > 5)
    server = scene.server.pid or 0
    signal_server(server, signal.SIGSTOP)
    reached(lambda: "dropped" in producer.said, 3 if breakage else PATIENCE_S)
    signal_server(server, signal.SIGCONT)
    producer.signal(signal.SIGTERM)
    assert producer.wait() == 0
    verdict = scene.verdict()
    dropped: int = producer.losses.get("dropped", 0)
    verdict.lost += producer.end["recorded"] - verdict.accepted - dropped
    verdict.told = dropped
    return verdict


def signal_server(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


@pytest.mark.short
def test_what_a_full_outbox_drops_is_counted_to_the_event(scene: MakeScene, note: Note) -> None:
    here = scene()
    verdict = overflow(here)
    note(SLOW_OUTBOX, verdict)
    assert verdict.clean, verdict
    assert here.producers[0].losses["dropped"] > 0


@pytest.mark.volume
@pytest.mark.short
def test_control_drops_that_nobody_counts(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(SLOW_OUTBOX, overflow(scene(), "losses-are-not-counted"), "drops not counted")


WATCHING = """
import os, signal, sys, threading
from eventbus import EventBroadcaster
seen = threading.Event()
broadcaster = EventBroadcaster()
broadcaster.start_event_watcher(lambda event: seen.set(), group=sys.argv[1] or None)
print("watching", flush=True)
seen.wait(30)
os.kill(os.getpid(), signal.SIGKILL)
"""


def watch_and_die(scene: Scene, group: str) -> Verdict:
    """missing: keys, groups and workers that a watcher has left behind in Redis."""

    def left() -> set[bytes]:
        keys = {key for key in scene.client.keys("*") if b":producer:" not in key}
        return keys | {g["name"] for g in scene.client.xinfo_groups(scene.keys.incoming)} | set(workers())

    def workers() -> list[bytes]:
        found: list[bytes] = scene.client.hkeys(scene.keys.workers)
        return found

    scene.producer(count=1).wait()
    before = left()
    watcher = Process([sys.executable, "-c", WATCHING, group], scene.environ(), scene.folder / "watcher.log")
    until(lambda: "watching" in watcher.said)
    scene.producer(count=1).wait()
    assert watcher.wait(30) == -signal.SIGKILL
    until(lambda: not [c for c in scene.client.client_list() if c["name"] == "eventbus-watch"])
    return Verdict(accepted=2, events=2, missing=len(left() - before))


@pytest.mark.short
def test_a_process_killed_while_it_watches_leaves_nothing_behind(scene: MakeScene, note: Note) -> None:
    verdict = watch_and_die(scene(hold=False), "")
    note(WATCHER, verdict)
    assert verdict.clean


@pytest.mark.volume
@pytest.mark.short
def test_control_a_watcher_with_a_group_of_its_own(scene: MakeScene, note_control: NoteControl) -> None:
    note_control(WATCHER, watch_and_die(scene(hold=False), "mine"), "a group of its own")
