"""Row 32: a watcher that is killed and resumed from the last position it printed, while somebody writes.

The watcher is `node_watcher.py`. What it printed in all its lives is compared with what was written, object by
object: it has missed nothing and seen nothing twice, or was told `Expired` and listed again.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE
from eventbus.model.objects.cluster import Node
from eventbus.store.object_store import ObjectStore
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.node_watcher import NO_HOLES, ONE_TOO_FAR
from tests.faults.scene import Process, Scene, until
from tests.thin import one

FAULT = "32 watcher killed"

MakeScene = Callable[..., Scene]
NAMES = [f"n{i}" for i in range(10)]
#: Written at the end, in several partitions: when these are seen, so is all else.
LAST = [f"z{i}" for i in range(8)]
FLUSHED = "F"


@pytest.mark.short
@pytest.mark.parametrize("partitions", one([4, 1]))
def test_a_killed_watcher_misses_nothing_and_sees_nothing_twice_or_is_told(
    scene: MakeScene, note: Note, seed: int, partitions: int
) -> None:
    verdict = kill_and_resume(scene(partitions=partitions, hold=False), random.Random(seed), lives=2)
    note(FAULT, verdict)
    assert verdict.clean, verdict


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_watcher_that_is_killed_forty_times(scene: MakeScene, note: Note, seed: int, partitions: int) -> None:
    verdict = kill_and_resume(scene(partitions=partitions, hold=False), random.Random(seed), lives=40)
    note(FAULT, verdict)
    assert verdict.clean, verdict
    assert verdict.told > 1


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("broken", [ONE_TOO_FAR, NO_HOLES])
def test_control_a_watcher_that_resumes_elsewhere_or_believes_every_version(
    scene: MakeScene, note_control: NoteControl, seed: int, partitions: int, broken: str
) -> None:
    here = scene(partitions=partitions, hold=False)
    verdict = kill_and_resume(here, random.Random(seed), lives=8, broken=broken)
    assert verdict.lost > 0
    note_control(FAULT, verdict, broken.replace("-", " "))


@pytest.mark.short
def test_the_judge_sees_what_is_missed_twice_or_out_of_order() -> None:
    history = {"a": ["A1", "M2", "D2", FLUSHED, "A3"]}
    listed = ["L a 1", "V 1"]

    def judged(*lines: str) -> tuple[int, int, int]:
        found = judge(history, [*listed, *lines])
        return found.lost, found.duplicate, found.disorder

    assert judged("E 2 M a 2", "E 3 D a 2", "X", "L a 3", "V 9") == (0, 0, 0)
    assert judged("E 2 M a 2", "X", "V 9", "E 10 A a 3") == (0, 0, 0)
    assert judged("E 2 M a 2", "E 2 M a 2", "E 3 D a 2", "X", "L a 3", "V 9") == (0, 1, 0)
    assert judged("E 3 D a 2", "E 2 M a 2", "X", "L a 3", "V 9") == (1, 0, 1)
    assert judged("E 2 M a 2", "E 3 D a 2", "E 9 A a 3") == (1, 0, 0)  # nobody said that the store was flushed
    assert judged("E 2 M a 2", "E 3 D a 2")[0] == 2
    assert judged("X", "V 1", "E 2 M a 2", "E 3 D a 2", "X", "L a 3", "V 9") == (0, 0, 0)  # deleted while listed
    assert judge({"a": ["A1", "M2"]}, ["V 1", "E 2 M a 2"]).lost == 1


# -- the run -------------------------------------------------------------------------------------------------------


def kill_and_resume(scene: Scene, chance: random.Random, *, lives: int, broken: str = "") -> Verdict:
    """So many watchers, one after the other, each killed after a few events, now and then with changes destroyed."""
    seen = scene.folder / f"{scene.prefix}-seen"
    seen.touch()
    with writing(scene, chance) as writer:
        until(lambda: len(writer.history) == len(NAMES))
        for life in range(lives):
            watcher = resume(scene, seen, broken)
            if life % 3 == 2 and broken != ONE_TOO_FAR:
                writer.destroy(flush=not broken and chance.random() < 0.5)
            await_lines(seen, chance.randrange(150), watcher, writer)
            watcher.kill()
            if life % 3 == 0 and broken != ONE_TOO_FAR:
                written = writer.written
                until(lambda number=written: writer.written > number + 40)  # type: ignore[misc]
                writer.destroy(flush=False)
        watcher = resume(scene, seen, broken)
        await_lines(seen, 10, watcher, writer)
        writer.stop()
        for name in LAST:
            writer.write(name)
        until(lambda: all(f" {name} " in seen.read_text() for name in LAST))
    printed = seen.read_text()
    verdict = judge(writer.history, printed.splitlines())
    verdict.accepted = sum(map(len, writer.history.values()))
    if not verdict.clean:
        print(writer.history, printed, sep="\n")
    return verdict


def resume(scene: Scene, seen: Path, broken: str) -> Process:
    """A watcher from the last position that was printed."""
    more = {"EVENTBUS_PARTITIONS": str(scene.bus.partitions)}
    arguments = [sys.executable, "-m", "tests.faults.node_watcher", str(seen), last_position(seen), broken]
    process = Process(arguments, scene.environ(more=more), seen.with_suffix(".log"))
    scene._processes.append(process)
    return process


def last_position(seen: Path) -> str:
    """Empty: none yet, or there was a loss since: list."""
    for line in reversed(seen.read_text().splitlines()):
        if line[0] in "EV":
            return line.split(" ")[1]
        if line[0] == "X":
            return ""
    return ""


def await_lines(seen: Path, n: int, watcher: Process, writer: Writer) -> None:
    begun = seen.read_bytes().count(b"\n")
    until(lambda: seen.read_bytes().count(b"\n") >= begun + n or watcher.ended or not writer.writing)
    assert not watcher.ended, watcher.said
    assert writer.writing


class Writer:
    """Writes nodes, and down what it wrote: per name `A1`, `M2`, `D2`, where the number is in a label of the object."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self.history: dict[str, list[str]] = {}
        self.written = 0
        self._scene = scene
        self._chance = random.Random(chance.random())
        self._client = scene.bus.client()
        self._store = ObjectStore(scene.bus, self._client)
        self._nodes = self._store.objects(NODE)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def write(self, name: str) -> None:
        """Create, change or delete the node."""
        with self._lock:
            past = self.history.setdefault(name, [])
            there = bool(past) and past[-1][0] in "AM"
            if there and self._chance.random() < 0.1:
                self._nodes.delete(name)
                past.append(f"D{past[-1][1:]}")
                return
            self.written += 1
            labels = {"n": str(self.written)}
            if there:
                self._nodes.patch(name, {"metadata": {"labels": labels}})
            else:
                self._nodes.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
            past.append(f"{'AM'[there]}{self.written}")

    def destroy(self, *, flush: bool) -> None:
        """Everything, or the changes but for the latest."""
        with self._lock:
            if flush:
                self._scene.client.flushall()
                for past in self.history.values():
                    past.append(FLUSHED)
                return
            for keys in self._scene.bus.keys:
                self._scene.client.xtrim(keys.changes_of(NODE.plural), maxlen=1, approximate=False)

    @property
    def writing(self) -> bool:
        """False once it was stopped, or failed."""
        return self._thread.is_alive()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self._store.close()
        self._client.close()

    def _run(self) -> None:
        for name in NAMES:
            self.write(name)
        while not self._ended.wait(0.002):
            self.write(self._chance.choice(NAMES))


@contextmanager
def writing(scene: Scene, chance: random.Random) -> Iterator[Writer]:
    writer = Writer(scene, chance)
    try:
        yield writer
    finally:
        writer.close()


# -- the judge -----------------------------------------------------------------------------------------------------


def judge(history: dict[str, list[str]], lines: list[str]) -> Verdict:
    """Compare what the watchers printed with what was written. *told*: how often Expired was printed."""
    verdict = Verdict()
    places = {name: {entry: at for at, entry in enumerate(past)} for name, past in history.items()}
    floor: dict[str, int] = {}
    known: dict[str, int] = {}  # the last entry of each object that the reader knows of; absent: it knows of no object
    listed: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for line in lines:
        what, *words = line.split(" ")
        if what == "X":
            verdict.told += 1
            listed = {}
        elif what == "L":
            name, number = words
            listed[name] = places[name].get(f"M{number}", places[name].get(f"A{number}", -1))
        elif what == "V":
            known, listed = listed, {}
            floor = dict(known)
        elif what == "E":
            _, letter, name, number = words
            verdict.events += 1
            at, entry = places[name][f"{letter}{number}"], f"{letter}{number}"
            if (name, entry) in seen:
                verdict.duplicate += 1
            elif name not in known:
                # One that was changed and deleted while the list was made is not in it, and its changes come again.
                verdict.lost += letter == "M" and not _ends_deleted(history[name][at:])
                known[name] = at
            elif at > known[name]:
                verdict.lost += at - known[name] - 1
                known[name] = at
            else:
                verdict.disorder += at > floor.get(name, -1)  # else the list had it already, as it may
            seen.add((name, entry))
    for name, past in history.items():
        if name in known:
            verdict.lost += len(past) - 1 - known[name]
        else:
            verdict.lost += past[-1][0] in "AM"
    return verdict


def _ends_deleted(past: list[str]) -> bool:
    ends = next((entry for entry in past if entry[0] in "AD" or entry == FLUSHED), "")
    return ends.startswith("D")
