"""`eventbus worker log --output FILE`: each uid stands in the file once, whoever is killed or frozen when."""

from __future__ import annotations

import fcntl
import json
import math
import resource
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.workers.log_lines import json_line
from tests.acceptance.programs import Program, environment
from tests.support.harness import append_only_bytes, lose_tail, own_server
from tests.thin import one
from tests.waiting import eventually

ABOUT = ObjectReference("Pod", "default", "web-0", "uid-1", "v1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


def worker(file: Path, env: dict[str, str], *more: str) -> Program:
    arguments = ("worker", "log", "--format", "json", "--output", str(file), *more)
    return Program(*arguments, env=env, folder=file.parent)


def record(broadcaster: EventBroadcaster, n: int, first: int = 0) -> None:
    recorder = broadcaster.new_recorder("test")
    for number in range(first, first + n):
        recorder.event(ABOUT, "Normal", "Tested", f"message {number}")


def messages(file: Path) -> list[str]:
    """Those of the test's own events, in order; the workers' own are left out. Every line must be whole."""
    data = file.read_bytes()
    assert data.endswith(b"\n")
    lines = [json.loads(line) for line in data.splitlines()]
    uids = [line["metadata"]["uid"] for line in lines]
    assert len(set(uids)) == len(uids)
    return [line["message"] for line in lines if line["source"]["component"] == "test"]


def freeze_at_work(program: Program, client: Any, bus: Bus, file: Path, broadcaster: EventBroadcaster) -> int:
    """Record, and stop *program* when it holds batches that it has not acknowledged, but not the file.

    Returns: how many events were recorded: as many as that took.
    """
    recorded = 0

    def is_at_work() -> bool:
        nonlocal recorded
        if file.read_bytes().count(b'"component":"test"') == recorded:  # it has nothing to do
            record(broadcaster, 3_000, recorded)
            recorded += 3_000
            eventually(lambda: file.stat().st_size > 100_000)
        program.signal(signal.SIGSTOP)
        if client.xpending(bus.keys[0].incoming, "log")["pending"] and not is_locked(file):
            return True
        program.signal(signal.SIGCONT)
        return False

    eventually(is_at_work)
    return recorded


def idle_ms(client: Any, bus: Bus, program: Program) -> float:
    """Return how long ago it last read; inf if the group does not know it."""
    found = client.xinfo_consumers(bus.keys[0].incoming, "log")
    return next((each["idle"] for each in found if f"-{program.pid}-".encode() in each["name"]), math.inf)


def is_locked(file: Path) -> bool:
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def pending_lines(client: Any, bus: Bus) -> list[bytes]:
    """The lines of all batches that the group `log` has been given and has not acknowledged, the oldest first."""
    stream = bus.keys[0].incoming
    lines: list[bytes] = []
    for row in client.xpending_range(stream, "log", "-", "+", 1000):
        ((_, fields),) = client.xrange(stream, row["message_id"], row["message_id"])
        batch = unpack_batch(fields[b"b"])
        lines += [
            json_line(unpack_event(packed, batch.uid(position))).encode()
            for position, packed in enumerate(batch.events)
        ]
    return lines


def test_a_successor_goes_on_where_a_killed_worker_was_cut_off(
    env: dict[str, str], broadcaster: EventBroadcaster, client: Any, bus: Bus, file: Path
) -> None:
    with worker(file, env) as first:
        eventually(lambda: "works on" in first.err)
        n = freeze_at_work(first, client, bus, file, broadcaster)
        first.kill()
    # Wherever the kill fell: a little later it would have fallen in the middle of a line.
    missing = [line for line in pending_lines(client, bus) if line not in file.read_bytes()]
    with file.open("ab") as later:
        later.write(b"".join(missing[:10]) + b"".join(missing[10:11])[:40])
    with worker(file, env, "--take-over-s", "2") as second:
        assert broadcaster.flush(60)
        eventually(lambda: file.read_bytes().count(b'"component":"test"') >= n)
        assert second.stop() == 0
    assert sorted(messages(file)) == sorted(f"message {number}" for number in range(n))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
def test_a_full_disk_is_waited_for_and_costs_nothing(
    env: dict[str, str], broadcaster: EventBroadcaster, file: Path, client: Any, bus: Bus
) -> None:
    n = 2000
    with worker(file, env) as log:
        eventually(lambda: file.exists() and file.stat().st_size > 0)
        unlimited = resource.prlimit(log.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(log.pid, resource.RLIMIT_FSIZE, (50_000, unlimited[1]))  # what a full disk is to a process
        record(broadcaster, n)
        assert broadcaster.flush()
        eventually(lambda: "events.log cannot be written" in log.err)
        assert client.xpending(bus.keys[0].incoming, "log")["pending"]
        assert file.stat().st_size <= 50_000
        resource.prlimit(log.pid, resource.RLIMIT_FSIZE, unlimited)
        eventually(lambda: file.read_bytes().count(b'"component":"test"') >= n)
        assert log.stop() == 0
        assert log.err.count("cannot be written") == 1
        assert "Traceback" not in log.err
    assert sorted(messages(file)) == sorted(f"message {number}" for number in range(n))


def test_a_worker_that_stood_still_writes_nothing_that_was_taken_over(
    env: dict[str, str], broadcaster: EventBroadcaster, file: Path, client: Any, bus: Bus
) -> None:
    with worker(file, env, "--take-over-s", "1") as frozen:
        eventually(lambda: "works on" in frozen.err)
        n = freeze_at_work(frozen, client, bus, file, broadcaster)
        with worker(file, env, "--take-over-s", "1") as other:
            assert broadcaster.flush(60)
            eventually(lambda: "took over" in other.err)
            eventually(lambda: file.read_bytes().count(b'"component":"test"') == n)
            woken = time.monotonic()
            frozen.signal(signal.SIGCONT)
            # It reads on when it has done with what it held.
            eventually(lambda: (time.monotonic() - woken) * 1000 > idle_ms(client, bus, frozen))
            assert [frozen.stop(), other.stop()] == [0, 0]
    assert sorted(messages(file)) == sorted(f"message {number}" for number in range(n))


@pytest.mark.parametrize("reader", one(["other worker", "same worker", "new worker"]))
def test_after_redis_has_lost_its_tail_no_line_is_repeated(
    short_path: Path, settings: Settings, prefix: str, file: Path, reader: str
) -> None:
    with own_server(short_path, appendfsync="always") as server, ExitStack() as stack:
        url = server.url or ""
        env = environment(url, prefix)
        broadcaster = stack.enter_context(EventBroadcaster(url, settings=settings))
        first = stack.enter_context(worker(file, env, "--take-over-s", "1"))
        eventually(lambda: "works on" in first.err)
        record(broadcaster, 1_000)
        eventually(lambda: file.read_bytes().count(b'"component":"test"') == 1_000)
        kept = append_only_bytes(short_path)
        if reader == "other worker":  # it has read nothing of what is lost
            stack.enter_context(other := worker(file, env, "--take-over-s", "1"))
            eventually(lambda: "works on" in other.err)
            kept = append_only_bytes(short_path)
            other.signal(signal.SIGSTOP)
        for number in range(1_000, 2_000, 100):
            record(broadcaster, 100, number)
            assert broadcaster.flush(60)
        eventually(lambda: file.read_bytes().count(b'"component":"test"') == 2_000)
        if reader != "same worker":
            first.kill()
        lose_tail(server, short_path, keep=kept)
        if reader == "other worker":
            other.signal(signal.SIGCONT)
        elif reader == "new worker":
            stack.enter_context(worker(file, env, "--take-over-s", "1"))
        record(broadcaster, 100, 2_000)
        assert broadcaster.flush(60)
        eventually(lambda: file.read_bytes().count(b'"component":"test"') >= 2_100)
        record(broadcaster, 1, 2_100)
        eventually(lambda: b"message 2100" in file.read_bytes())
        assert sorted(messages(file)) == sorted(f"message {number}" for number in range(2_101))
