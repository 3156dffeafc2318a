"""One scenario for every sink: two workers killed in the middle, replies cut, the system stopped for a while."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.health.export_status import SinkStatus, export_status
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment
from tests.support.export_systems import System
from tests.waiting import eventually

SINK, OTHER = "tried", "other"


class Survived(msgspec.Struct, kw_only=True):
    """The result. Seconds until the other sink had all of a round: while this one lived, and while it did not."""

    events: int
    wanted: dict[str, int]
    held: dict[str, int]
    most_repeats: int  #: of one delivery id
    status: SinkStatus
    other_up_s: float
    other_down_s: float
    recovery_s: float

    @property
    def wrong(self) -> int:
        """Events that are not there with their final count."""
        return sum(1 for name, count in self.wanted.items() if self.held.get(name) != count)

    def assert_good(self) -> None:
        """Every event is there with its final count, and none is buried."""
        assert self.wrong == 0, f"{self.wrong} of {len(self.wanted)} have no or another count"
        assert sum(self.wanted.values()) == 2 * self.events
        assert (self.status.dead, self.status.paused_since_ms, self.status.lag) == (0, 0, 0), self.status.error


def survive(
    system: System, *, url: str, prefix: str, folder: Path, events: int, down_s: float, within_s: float
) -> Survived:
    """*events* about as many objects, twice; the system is stopped during the second round and *down_s* longer."""
    settings = Settings(redis_url=url, prefix=prefix, buffer_full=FullBuffer.WAIT, buffer_wait_s=60)
    env = environment(url, prefix, worker_block_ms="100") | dict(system.env)
    bus = open_bus(url, settings)
    export = ("worker", "export", "--name", SINK, "--take-over-s", "1.5", "--batch", "100", "--timeout", "3")
    to = env | {"EVENTBUS_EXPORT_TO": system.url}
    with ExitStack() as stack:

        def start(*words: str, env: Mapping[str, str]) -> Program:
            return stack.enter_context(Program(*words, env=env, folder=folder))

        broadcaster = stack.enter_context(EventBroadcaster(settings=settings))
        start("worker", "sink", env=env)
        start(
            "worker",
            "export",
            "--from",
            "beginning",
            "--to",
            f"file:{folder / 'other.jsonl'}?fsync=never",
            "--name",
            OTHER,
            env=env,
        )
        # Each dies after a third of the events, with some of them written and not noted.
        victims = [start(*export, env=to | {"EVENTBUS_CRASH": f"kill:written:{events // 3}"}) for _ in range(2)]
        eventually(lambda: _status(bus, SINK), within_s=within_s)
        other_up_s = _record(broadcaster, bus, events, within_s)
        for victim in victims:
            assert victim.wait(within_s) == -signal.SIGKILL
        start(*export, env=to)
        eventually(lambda: _held(system, 1) >= events, within_s=within_s)

        system.stop()
        other_down_s = _record(broadcaster, bus, events, within_s)
        eventually(lambda: _paused(bus), within_s=within_s)
        time.sleep(down_s)  # a length of the outage, not a wait for something
        system.start()
        back = time.monotonic()
        eventually(lambda: _held(system, 2) >= events, within_s=within_s)
        recovery_s = time.monotonic() - back
        done: list[SinkStatus] = []  # kept as it was seen: the workers go on recording events about themselves

        def is_done() -> bool:
            done[:] = _done(bus)
            return bool(done)

        eventually(is_done, within_s=within_s)
        return Survived(
            events=events,
            wanted=_stored(bus),
            held=dict(system.held()),
            most_repeats=max(system.deliveries().values()) if system.deliveries else 1,
            status=done[0],
            other_up_s=other_up_s,
            other_down_s=other_down_s,
            recovery_s=recovery_s,
        )


def _record(broadcaster: EventBroadcaster, bus: Bus, events: int, within_s: float) -> float:
    """One round. Returns: seconds until the other sink has it."""
    before = sum(_stored(bus).values())
    recorder = broadcaster.new_recorder("test")
    begun = time.monotonic()
    for number in range(events):
        recorder.event(ObjectReference("Pod", "default", f"pod-{number}"), "Normal", "Tested", "hello")
    assert broadcaster.flush(within_s)
    eventually(lambda: sum(_stored(bus).values()) == before + events, within_s=within_s)
    eventually(lambda: (found := _status(bus, OTHER)) is not None and found.lag == 0, within_s=within_s)
    return time.monotonic() - begun


def _held(system: System, count: int) -> int:
    """Count the events that the system has with *count*."""
    return sum(1 for name, found in system.held().items() if name.startswith("pod-") and found == count)


def _paused(bus: Bus) -> bool:
    status = _status(bus, SINK)
    return status is not None and status.paused_since_ms > 0


def _done(bus: Bus) -> list[SinkStatus]:
    """The sink's status if it has nothing left to do, else nothing."""
    status = _status(bus, SINK)
    idle = status is not None and (status.lag, status.pending, status.paused_since_ms) == (0, 0, 0)
    return [status] if status is not None and idle else []


def _status(bus: Bus, name: str) -> SinkStatus | None:
    client = bus.client()
    try:
        return next((status for status in export_status(bus, client) if status.name == name), None)
    finally:
        client.close()


def _stored(bus: Bus) -> dict[str, int]:
    """Name → count of what `survive` has recorded."""
    client = bus.client()
    try:
        found = ObjectStore(bus, client).list("default").items
        return {event.metadata.name: event.count for event in found if event.metadata.name.startswith("pod-")}
    finally:
        client.close()
