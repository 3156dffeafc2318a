"""Helpers of the tests of exporting: a partition with events in it, sinks that remember, and time of one's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.health.export_status import SinkStatus, export_status
from eventbus.errors import AlreadyExists, NotFound
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import ExportOptions
from eventbus.export.sinks import EventPatch, EventSink, SinkAnswer, SinkMode, SinkWrite, Verb, delivery_id
from eventbus.model.event import Event
from tests.builders import make_event, make_reference
from tests.functions.partition import Partition


class OwnTime:
    """Begins now and is moved by sleeping alone; whoever sleeps past *end_s* is told to stop."""

    def __init__(self) -> None:
        self._start_ns = time.time_ns()
        self.now_s = 0.0
        self.end_s = float("inf")

    def time_ns(self) -> int:
        return self._start_ns + int(self.now_s * 1e9)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, seconds: float) -> bool:
        self.now_s = min(self.now_s + seconds, self.end_s)
        return self.now_s >= self.end_s


class MemorySink:
    """An upserting system that is as strict as an API server, and versions what it holds. *fail* may raise, or not."""

    mode = SinkMode.UPSERT

    def __init__(self, name: str = "memory", *, system: dict[str, Event] | None = None) -> None:
        self.name = name
        self.rows: dict[str, Event] = {} if system is None else system
        self.calls: list[tuple[str, str, int]] = []
        self.patches: list[EventPatch] = []
        self.deliveries: Counter[str] = Counter()
        self.fail: Callable[[Event], None] = lambda _event: None
        self.closed = False

    def create(self, event: Event) -> Event:
        self._called(Verb.CREATE, event)
        if event.metadata.name in self.rows:
            raise AlreadyExists(event.metadata.name)
        return self._keep(event)

    def update(self, event: Event) -> Event:
        self._called(Verb.UPDATE, event)
        return self._keep(event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        self._called(Verb.PATCH, event)
        self.patches.append(patch)
        if patch.name not in self.rows:
            raise NotFound(patch.name)
        return self._keep(event)

    def close(self) -> None:
        assert not self.closed, "once"
        self.closed = True

    def counts(self) -> dict[str, int]:
        """Message → count."""
        return {event.message: event.count for event in list(self.rows.values())}  # pollers go on writing

    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.calls]

    def _called(self, verb: Verb, event: Event) -> None:
        self.calls.append((str(verb), event.message, event.count))
        self.fail(event)

    def _keep(self, event: Event) -> Event:
        name = event.metadata.name
        self.deliveries[delivery_id(event)] += 1
        self.rows[name] = event
        metadata = msgspec.structs.replace(event.metadata, resource_version=f"theirs-{event.count}")
        return msgspec.structs.replace(event, metadata=metadata)


class MemoryBatchSink(MemorySink):
    """The same, many at once."""

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        assert len({write.event.metadata.name for write in writes}) == len(writes), "no event twice"
        answers: list[SinkAnswer] = []
        for write in writes:
            try:
                if write.patch is not None:
                    answers.append(self.patch(write.event, write.patch))
                else:
                    answers.append(self.create(write.event) if write.verb is Verb.CREATE else self.update(write.event))
            except (AlreadyExists, NotFound) as error:
                answers.append(error)
        return answers


def make_exporter(
    bus: Bus,
    sink: EventSink,
    clock: OwnTime,
    *,
    consumer: str = "one",
    on_change: Callable[[str, str], None] = lambda _reason, _message: None,
    **options: Any,
) -> PartitionExporter:
    """Make an exporter of partition 0. It is driven by `acquire` and `step`."""
    return PartitionExporter(
        bus=bus,
        partition=0,
        sink=sink,
        consumer=consumer,
        clock=clock,
        options=ExportOptions(**options),
        block_ms=1,
        on_change=on_change,
        sleep=clock.wait,
        uniform=lambda low, high: (low + high) / 2,
    )


MakeExporter = Callable[..., PartitionExporter]


@contextmanager
def exporters(bus: Bus, clock: OwnTime) -> Iterator[MakeExporter]:
    """A `make_exporter` of *bus* and *clock*; what it has made is closed in the end."""
    made: list[PartitionExporter] = []

    def make(sink: EventSink, **options: Any) -> PartitionExporter:
        made.append(make_exporter(bus, sink, clock, **options))
        return made[-1]

    yield make
    for exporter in made:
        close(exporter)


def run_until_idle(exporter: PartitionExporter) -> None:
    """Steps until nothing is left to read."""
    while exporter.step():
        pass


def close(exporter: PartitionExporter) -> None:
    """Gives back lease and connection."""
    exporter.stop()
    exporter.run()


def forget_the_newest_version(partition: Partition) -> None:
    """Let the next version jump, as after a restart of the server: its history is another one then."""
    key = partition.keys.version_of("events")
    version, added, *_ = partition.admin.get(key).split()
    partition.admin.set(key, b" ".join((version, added, b"0" * 16)))


def status_of(bus: Bus, name: str = "memory") -> SinkStatus:
    client = bus.client()
    try:
        (found,) = [status for status in export_status(bus, client) if status.name == name]
        return found
    finally:
        client.close()


def about(number: int, message: str = "") -> Event:
    """An event of its own for each number."""
    return make_event(involved_object=make_reference(name=f"pod-{number}"), message=message or f"message {number}")
