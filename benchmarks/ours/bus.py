"""The common part of our benchmarks: a broadcaster on the part's server, objects to speak about, worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.sample import API_VERSION, KIND, NAMESPACE, REASON, TYPE, message, object_name
from eventbus.broker.bus import Bus, open_bus
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import FullBuffer, Settings

URL = os.environ.get("BENCH_URL", "")


def reference(number: int) -> ObjectReference:
    uid = f"5f6e0d5c-2a55-4b8e-9d1c-{number:012x}"
    return ObjectReference(KIND, NAMESPACE, object_name(number), uid, API_VERSION)


def waiting(**more: Any) -> Settings:
    """Settings of a recorder that loses nothing: a full buffer makes the caller wait."""
    return Settings(buffer_full=FullBuffer.WAIT, buffer_wait_s=600, flush_s=600, **more)


def a_bus(partitions: int = 1) -> Bus:
    return open_bus(URL, Settings(partitions=partitions))


@contextmanager
def a_recorder(settings: Settings | None = None) -> Iterator[tuple[EventBroadcaster, EventRecorder]]:
    broadcaster = EventBroadcaster(URL, settings=settings or waiting())
    try:
        yield broadcaster, broadcaster.new_recorder("kubelet", "node-17")
    finally:
        broadcaster.shutdown()


def record(recorder: EventRecorder, numbers: Iterable[int]) -> int:
    """Record an event about each of the objects; how many that were. References are made once an object."""
    event, known, total = recorder.event, dict[int, tuple[ObjectReference, str]](), 0
    for number in numbers:
        found = known.get(number)
        if found is None:
            found = known[number] = reference(number), message(number)
        event(found[0], TYPE, REASON, found[1])
        total += 1
    return total


def fill(numbers: Iterable[int]) -> int:
    """Queue an event about each of the objects, and be sure that Redis has them."""
    with a_recorder() as (broadcaster, recorder):
        total = record(recorder, numbers)
        assert broadcaster.flush(600)
    return total


@contextmanager
def sink_workers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`eventbus worker sink`, so many processes; ended with SIGTERM."""
    environ = os.environ | {"EVENTBUS_REDIS_URL": URL}
    command = [sys.executable, "-m", "eventbus", "worker", "sink"]
    workers = [
        subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(60)


def recorded(bus: Bus, client: Any) -> int:
    """Events that `correlate_and_store` has taken, of all partitions."""
    pipe = client.pipeline(transaction=False)
    for keys in bus.keys:
        pipe.hget(keys.meta, "events")
    return sum(int(found or 0) for found in pipe.execute())


def until(condition: Callable[[], object], within_s: float = 600, every_s: float = 0.005) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(every_s)
