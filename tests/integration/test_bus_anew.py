"""A bus that was flushed and made anew by others, while a process runs that has opened the former one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.functions import parse_once_reply, parse_replies, publish_command, publish_once_command
from eventbus.broker.keys import partition_of
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import OnceRequest, PublishRequest, PublishStatus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.errors import BusReplaced, ConfigError, EventBusError, NotFound
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import ExportOptions
from eventbus.model.encoding.wire import pack_batch, pack_event
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import EVENT, NODE
from eventbus.model.objects.cluster import Node
from eventbus.settings import Options
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from eventbus.workers.opening import Opener
from tests.builders import make_event
from tests.support.exporting import MemorySink
from tests.support.harness import settings_of
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=2))


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    with bus.client() as client:
        yield client


def flush(client: Any, prefix: str) -> None:
    """What FLUSHALL does to this bus."""
    for key in client.scan_iter(match=f"{prefix}:*", count=1000):
        client.delete(key)


def anew(client: Any, bus: Bus, partitions: int = 2) -> Bus:
    """The bus that somebody else makes in its place, before anybody who runs can make the former one anew."""
    before = bus.id
    fields = {"format": "3", "id": os.urandom(8).hex(), "partitions": partitions, "options_version": "1"}
    steps = client.pipeline(transaction=True)
    steps.delete(*client.scan_iter(match=f"{bus.prefix}:*", count=1000))
    steps.hset(f"{bus.prefix}:{{0}}:bus", mapping=fields | {"options": msgspec.json.encode(Options())})
    steps.execute()
    made = open_bus(bus.url, Settings(prefix=bus.prefix, partitions=partitions))
    assert made.id != before
    return made


def of_format_3(client: Any, bus: Bus) -> None:
    """What a later build makes: another format, and the names of the keys that this one knows."""
    made = anew(client, bus)
    client.hset(f"{bus.prefix}:{{0}}:bus", "format", "4")
    assert made.id


def entries(client: Any, bus: Bus) -> int:
    return sum(client.xlen(keys.incoming) for keys in bus.keys)


# -- those who record --------------------------------------------------------------------------------------------------


def record(broadcaster: EventBroadcaster, message: str) -> None:
    broadcaster.new_recorder("test").event(ObjectReference("Pod", "default", "pod-0"), "Normal", "Tested", message)


def test_an_outbox_goes_on_with_a_bus_of_the_same_form_and_sends_what_its_ring_holds(
    bus: Bus, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with EventBroadcaster(bus.url, settings=settings_of(bus.prefix, partitions=2)) as broadcaster:
        record(broadcaster, "before")
        assert broadcaster.flush(PATIENCE_S)
        made = anew(client, bus)
        record(broadcaster, "after")
        eventually(lambda: entries(client, made) >= 1)
        broadcaster.start_recording_to_sink()
        with ObjectStore(made, client) as store:
            eventually(lambda: {event.message for event in store.list().items} >= {"before", "after"})
    assert caplog.text.count("was recreated, and its former content is gone: continuing with the new one") == 1


@pytest.mark.parametrize("what", ["other partitions", "another format"])
def test_an_outbox_sends_nothing_to_a_bus_that_it_cannot_work_with_and_says_so(
    bus: Bus, client: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    broadcaster = EventBroadcaster(bus.url, settings=settings_of(bus.prefix, partitions=2))
    record(broadcaster, "before")
    assert broadcaster.flush(PATIENCE_S)
    if what == "another format":
        of_format_3(client, bus)
        words = "the bus has format 4, this build reads and writes format 3"
    else:
        anew(client, bus, partitions=5)
        words = "the bus was created again with 5 partitions, and this process knows 2: restart this process"
    for number in range(10):
        record(broadcaster, f"after {number}")
    eventually(lambda: words in caplog.text)
    assert entries(client, bus) == 0
    assert not broadcaster.shutdown(0.2)
    assert "10 events unsent: closed before Redis had them" in caplog.text
    assert entries(client, bus) == 0


def test_no_batch_is_taken_by_a_stream_of_another_bus(bus: Bus, client: Any) -> None:
    request = PublishRequest(0, "p1", 1, 1, b"body", "", 0, ())
    (reply,) = parse_replies(client.execute_command(*publish_command(bus.keys[0], [request], 1 << 20, "f" * 16)), 1)
    assert reply.status is PublishStatus.OTHER
    once = OnceRequest(0, ("p1",), b"body", 1000)
    reply = parse_once_reply(client.execute_command(*publish_once_command(bus.keys[0], once, 1 << 20, "f" * 16)))
    assert reply.status is PublishStatus.OTHER
    assert (entries(client, bus), client.exists(bus.keys[0].producer + b"p1")) == (0, 0)


def test_the_transport_has_an_epoch_that_changes_with_the_bus(bus: Bus, client: Any) -> None:
    transport = RedisTransport(bus)
    before = transport.describe()
    made = anew(client, bus)
    request = PublishRequest(0, "p1", 1, 1, pack_batch("p1", 1, [pack_event(make_event())]), "", 0, ())
    (answer,) = transport.publish([request])
    assert not isinstance(answer, EventBusError)
    assert answer.status is PublishStatus.MISSING
    assert (before.epoch, transport.describe().epoch) == (before.epoch, made.id)
    (answer,) = transport.publish([request])
    assert not isinstance(answer, EventBusError)
    assert answer.status is PublishStatus.OK
    transport.close()


# -- those who work ----------------------------------------------------------------------------------------------------


def test_a_sink_worker_goes_on_with_a_bus_of_the_same_form(bus: Bus, client: Any) -> None:
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=100)
    runner.start()
    made = anew(client, bus)
    with EventBroadcaster(bus.url, settings=settings_of(bus.prefix, partitions=2)) as broadcaster:
        record(broadcaster, "after")
        with ObjectStore(made, client) as store:
            eventually(lambda: [event.message for event in store.list().items] == ["after"])
    runner.stop()


def test_a_worker_notices_within_a_second_and_goes_on_begins_anew_or_ends(bus: Bus, client: Any) -> None:
    opener = Opener(Settings(prefix=bus.prefix), None, wait=lambda _s: False)
    assert opener.news(bus, client) == ""
    made = anew(client, bus)
    assert (opener.news(bus, client), bus.id) == ("", made.id)
    anew(client, bus, partitions=5)
    assert opener.news(bus, client) == "the bus was created again with 5 partitions, and this process knows 2"
    of_format_3(client, bus)
    with pytest.raises(ConfigError, match="this build reads and writes format 3: use a version that reads format 4"):
        opener.news(bus, client)


def test_a_bus_that_is_gone_is_made_as_it_was_by_those_who_run(bus: Bus, client: Any) -> None:
    flush(client, bus.prefix)
    bus.open_partition(client, 0)
    assert open_bus(bus.url, Settings(prefix=bus.prefix, partitions=7)).partitions == 2
    assert open_bus(bus.url, Settings(prefix=bus.prefix)).id == bus.id


def test_nobody_opens_a_partition_of_a_bus_that_he_does_not_know(bus: Bus, client: Any) -> None:
    anew(client, bus, partitions=5)
    with pytest.raises(BusReplaced):
        bus.open_partition(client, 0)


# -- those who write through the store, and exports --------------------------------------------------------------------


def a_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name))


def test_a_writer_of_the_store_goes_on_with_a_bus_of_the_same_form(bus: Bus, client: Any) -> None:
    with ObjectStore(bus, client) as store:
        nodes, events = store.objects(NODE), store.objects(EVENT)
        former = nodes.create(a_node("n1"))
        made = anew(client, bus)
        with pytest.raises(NotFound):  # it is no more, and nobody else's is taken for it
            nodes.update(former)
        nodes.create(a_node("n2"))
        assert bus.id == made.id
        events.create(make_event(metadata=ObjectMeta(name="w1", namespace="default")))
    with ObjectStore(made, client) as store:
        assert [node.metadata.name for node in store.objects(NODE).list().items] == ["n2"]
        assert [event.metadata.name for event in store.list().items] == ["w1"]


def test_a_writer_of_the_store_writes_nothing_to_a_bus_of_other_partitions(bus: Bus, client: Any) -> None:
    with ObjectStore(bus, client) as store:
        anew(client, bus, partitions=5)
        before = set(client.scan_iter(match=f"{bus.prefix}:*", count=1000))
        with pytest.raises(BusReplaced, match="created again with 5 partitions"):
            store.objects(NODE).create(a_node("n1"))
        with pytest.raises(BusReplaced):
            store.objects(EVENT).create(make_event(metadata=ObjectMeta(name="w1", namespace="default")))
        assert set(client.scan_iter(match=f"{bus.prefix}:*", count=1000)) == before


@pytest.mark.parametrize("partitions", [2, 5])
def test_an_export_goes_on_with_a_bus_of_the_same_form_and_leaves_another_alone(
    bus: Bus, client: Any, caplog: pytest.LogCaptureFixture, partitions: int
) -> None:
    sink = MemorySink()
    exporter = PartitionExporter(
        bus=bus, partition=0, sink=sink, consumer="one", clock=SystemClock(), options=ExportOptions(), block_ms=50
    )
    thread = threading.Thread(target=exporter.run)
    thread.start()
    try:
        eventually(lambda: exporter.figures.holds)
        made = anew(client, bus, partitions)
        name = next(f"w{n}" for n in range(100) if partition_of(written("default", f"w{n}"), partitions) == 0)
        with ObjectStore(made, client) as store:
            store.objects(EVENT).create(make_event(metadata=ObjectMeta(name=name, namespace="default")))
        if partitions == 2:
            eventually(lambda: name in sink.rows)
        else:
            eventually(lambda: "created again with 5 partitions, and this process knows 2" in caplog.text)
            assert not client.exists(made.keys[0].export + sink.name.encode())
    finally:
        exporter.stop()
        thread.join()


def written(namespace: str, name: str) -> ObjectReference:
    """By which a written event's partition is found."""
    return ObjectReference(kind="Event", namespace=namespace, name=name)
