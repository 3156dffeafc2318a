"""A sink that several partitions share can do what it can do alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from eventbus.export.sinks.contract import BatchSink, DeletingSink, OrderedSink
from eventbus.export.sinks.shared import share
from eventbus.model.event import Event
from tests.builders import make_event
from tests.support.exporting import MemoryBatchSink, MemorySink


class _Able(MemoryBatchSink):
    ordered = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        self.asked.append((origin, after, until, most))
        return [make_event()]

    def delete(self, events: Sequence[Event]) -> int:
        self.asked.append(len(events))
        return 1


def test_a_shared_sink_deletes_and_keeps_order_if_the_sink_does() -> None:
    sink = _Able()
    shared = share(sink, 2)
    assert isinstance(shared, DeletingSink)
    assert isinstance(shared, OrderedSink)
    assert shared.ordered
    events = shared.held("bus/0", after=1, until=2, since=datetime.now(UTC), most=3)
    assert shared.delete(events) == 1
    assert sink.asked == [("bus/0", 1, 2, 3), 1]


def test_a_shared_sink_can_no_more_than_the_sink() -> None:
    batch = share(MemoryBatchSink(), 2)
    assert isinstance(batch, BatchSink)
    assert not isinstance(batch, DeletingSink)
    assert isinstance(batch, OrderedSink)
    assert not batch.ordered
    assert not isinstance(share(MemorySink(), 2), BatchSink)
