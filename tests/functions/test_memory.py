"""Over maxmemory: nothing new is taken, what is queued drains, and draining does not grow what is full."""

from __future__ import annotations

import os

from eventbus.broker.bus import open_bus
from eventbus.model.event import Event
from eventbus.settings import Settings
from tests.builders import make_event, make_reference, make_similar_events
from tests.functions.conftest import MakePartition
from tests.functions.partition import Partition, changed
from tests.waiting import eventually


def many(n: int, start: int = 0) -> list[list[Event]]:
    """*n* events of a thousand bytes, which nothing compresses, about as many objects, in batches of ten."""
    events = [
        make_event(involved_object=make_reference(name=f"pod-{start + i}"), message=os.urandom(500).hex())
        for i in range(n)
    ]
    return [events[at : at + 10] for at in range(0, n, 10)]


def used_memory(partition: Partition) -> int:
    """Bytes, once the server has given back what earlier tests have deleted."""
    found: dict[str, int] = {}

    def settled() -> bool:
        found.update(partition.admin.info("memory"))
        return found["lazyfree_pending_objects"] == 0

    eventually(settled)
    return found["used_memory"]


def test_record_acknowledges_and_counts_but_creates_nothing(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()], [make_event(), make_event(message="other")])
    with partition.memory_full():
        before = partition.state()
        assert partition.record_deliveries(deliveries) == ["m", "mm"]
        after = partition.state()
    assert partition.pending() == []
    assert changed(before, after) == {"incoming", "meta", "suppressed"}
    assert (partition.meta("events"), partition.meta("not_created")) == (3, 3)
    counted, _ = after["suppressed"]
    assert counted == {"M\0kubelet\0Pod\0Normal\0Started": "3", "names\0M": "1"}


def test_record_updates_what_exists(partition: Partition) -> None:
    partition.record(make_event())
    deliveries = partition.deliver([make_event()] * 2)
    with partition.memory_full():
        assert partition.record_deliveries(deliveries) == ["pp"]
    (event,) = partition.stored()
    assert event.count == 3
    # its change was told, and took the place of an older one
    ((kind, version, changed_event),) = partition.changes()
    assert (kind, changed_event.count, version) == ("M", 3, partition.version())


def test_a_worker_that_starts_when_it_is_full_opens_reads_beats_and_drains(partition: Partition) -> None:
    partition.publish(make_event())
    with partition.memory_full():
        open_bus(partition.url, Settings(prefix=partition.bus.prefix))
        reader = partition.reader("new")
        assert reader.open() is False
        deliveries = reader.read(0, beat=True)
        assert partition.record_deliveries(deliveries, consumer="new") == ["m"]
        assert reader.heartbeats() == {"new": "1"}
        reader.leave()
    assert partition.pending() == []


def test_an_aggregate_that_is_not_there_is_not_made(partition: Partition) -> None:
    partition.record(*make_similar_events(9))
    deliveries = partition.deliver(make_similar_events(3, message="more"))
    with partition.memory_full():
        assert partition.record_deliveries(deliveries) == ["MMM"]


def test_reports_of_suppression_are_not_made_either(make_partition: MakePartition) -> None:
    partition = make_partition(burst=1)
    partition.record(make_event())
    deliveries = partition.deliver([make_event(), make_event()])
    with partition.memory_full():
        assert partition.record_deliveries(deliveries) == ["ss"]
    assert [event.reason for event in partition.stored()] == ["Started"]
    assert partition.stored()[0].count == 3
    assert [answer.count for answer in partition.answers().values()] == [3]


def test_draining_a_full_server_frees_memory(partition: Partition) -> None:
    """The control run: with room, the same events grow it."""
    free = partition.deliver(*many(500))
    start = used_memory(partition)
    for delivery in free:
        partition.record_deliveries([delivery])
    partition.call.trim(partition.options)
    grown = used_memory(partition) - start

    queued = partition.deliver(*many(500, start=10_000))
    with partition.memory_full():
        start = used_memory(partition)
        for delivery in queued:
            partition.record_deliveries([delivery])
        partition.call.trim(partition.options)
        drained = used_memory(partition) - start

    assert grown > 500 * 1_000, "the control run must grow, or this shows nothing"
    assert drained < -500 * 1_000


def test_with_room_again_the_next_event_is_created_with_its_own_count(partition: Partition) -> None:
    deliveries = partition.deliver([make_event()])
    with partition.memory_full():
        partition.record_deliveries(deliveries)
    assert partition.record(make_event()) == "c"
    assert partition.stored()[0].count == 1
