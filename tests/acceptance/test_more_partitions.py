"""docs/redis.md, "More partitions": a bus moves to a new prefix while three programs record, and loses nothing."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.acceptance.programs import Program, environment, run
from tests.starting import Process, start
from tests.waiting import PATIENCE_S, eventually

#: Records an event about an object of its own until SIGTERM, then tells how many it has recorded. The handler takes no
#: lock: one that sets an Event waits for ever if it interrupts the loop inside the Event's own `wait`.
RECORDS = """
import signal, sys, time
from eventbus import EventBroadcaster, ObjectReference

program, number, ended = sys.argv[1], int(sys.argv[2]), []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
with EventBroadcaster() as broadcaster:
    recorder = broadcaster.new_recorder("mover")
    while not ended:
        recorder.event(ObjectReference("Pod", "default", f"{program}-{number}"), "Normal", "Moves", "on")
        number += 1
        print(number, flush=True)
        time.sleep(0.02)
assert not broadcaster.losses.counts, broadcaster.losses.counts
"""


class Recording:
    """A program that records; it goes on where the one before it ended."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str], number: int = 0) -> None:
        self.name, self._folder = name, folder
        self._file = folder / f"{name}-{number}"
        with self._file.open("wb") as out:
            self._process = self._start(out, env, number)

    def _start(self, out: IO[bytes], env: Mapping[str, str], number: int) -> Process:
        words = [sys.executable, "-c", RECORDS, self.name, str(number)]
        return start(words, env=env, stdout=out, stderr=out, afresh=True)

    @property
    def recorded(self) -> int:
        said = self._file.read_text("utf-8").split("\n")[:-1]
        return int(said[-1]) if said else 0

    def stop(self) -> int:
        """SIGTERM; returns how many have been recorded under this name."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0, self._file.read_text("utf-8")[-2000:]
        return self.recorded

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def recording(names: str, folder: Path, env: Mapping[str, str]) -> Iterator[dict[str, Recording]]:
    found = {name: Recording(name, folder, env) for name in names}
    try:
        yield found
    finally:
        for each in found.values():
            each.end()


def lag(env: Mapping[str, str]) -> int:
    groups = json.loads(run("status", "-o", "json", env=env).stdout)["groups"]
    return sum(group["lag"] for group in groups)


def stored(env: Mapping[str, str]) -> Counter[str]:
    items = json.loads(run("get", "events", "-n", "default", "-o", "json", env=env).stdout)["items"]
    assert all(event["count"] == 1 for event in items)
    return Counter(event["involvedObject"]["name"] for event in items)


@pytest.mark.volume
@pytest.mark.timeout(180)
def test_a_bus_moves_to_more_partitions_and_loses_nothing(embedded_url: str, prefix: str, short_path: Path) -> None:
    old = environment(embedded_url, prefix, worker_block_ms="100")
    new = environment(embedded_url, f"{prefix}x", worker_block_ms="100", partitions="4")
    with ExitStack() as stack:
        old_worker = stack.enter_context(Program("worker", "sink", env=old, folder=short_path))
        programs = stack.enter_context(recording("abc", short_path, old))
        eventually(lambda: all(each.recorded > 40 for each in programs.values()))
        # 1. The new bus, with the options of the old one, and its workers.
        assert run("options", "set", "burst=50", env=new).returncode == 0
        new_worker = stack.enter_context(Program("worker", "sink", env=new, folder=short_path))
        # 2. The producers, one by one.
        for name, program in programs.items():
            number = program.stop()
            programs[name] = Recording(name, short_path, new, number)
            eventually(lambda name=name, number=number: programs[name].recorded > number + 20)  # type: ignore[misc]
        # 3. The old workers, when the old bus is empty.
        eventually(lambda: lag(old) == 0)
        assert old_worker.stop() == 0
        recorded = Counter(f"{name}-{i}" for name, each in programs.items() for i in range(each.stop()))
        eventually(lambda: lag(new) == 0)
        assert new_worker.stop() == 0
    found = stored(old), stored(new)
    assert min(map(len, found)) > 60
    assert found[0] + found[1] == recorded
    assert json.loads(run("status", "-o", "json", env=new).stdout)["partitions"][3]["published"] > 0
