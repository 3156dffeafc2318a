"""Reading the store while it is written: lists, watches, and the news that changes are lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.errors import Expired
from eventbus.model.event import Event, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import MIB, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.reader import StoreWatch
from tests.builders import make_reference
from tests.support.harness import bus_with, kill_server, own_server, settings_of, stored_events
from tests.support.mirror import full_name, reading
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Bus:
    return bus_with(embedded_url, settings, burst=100_000)


@pytest.fixture
def store(bus: Bus) -> Iterator[ObjectStore]:
    client = bus.client()
    with ObjectStore(bus, client) as store:
        yield store
    client.close()


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, bus: Bus) -> Iterator[EventBroadcaster]:
    """One whose process also runs the sink worker."""
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        yield broadcaster


def say(broadcaster: EventBroadcaster, text: str, **about: Any) -> None:
    broadcaster.new_recorder("c").event(make_reference(**about), "Normal", "Said", text)


def settled(broadcaster: EventBroadcaster, bus: Bus, n: int) -> None:
    """Wait until the store's counts add up to *n*."""
    assert broadcaster.flush(60)
    eventually(lambda: sum(event.count for event in stored_events(bus)) == n)


def as_stored(bus: Bus) -> dict[str, Event]:
    return {full_name(event): event for event in stored_events(bus)}


@contextmanager
def watching(store: ObjectStore, version: str, timeout_s: float = 60) -> Iterator[StoreWatch[Event]]:
    watch = store.objects(EVENT).watch(ListOptions(resource_version=version, timeout_s=timeout_s))
    try:
        yield watch
    finally:
        watch.stop()


def told(watch: StoreWatch[Event]) -> list[tuple[str, str]]:
    """Type and message of the next change; empty when the time is over."""
    return [(change.type.value, change.object.message) for change in islice(watch, 1) if change.object is not None]


# -- listing -------------------------------------------------------------------------------------------------------


def test_a_stored_event_is_the_recorded_one_with_what_the_store_adds(
    bus: Bus, store: ObjectStore, broadcaster: EventBroadcaster
) -> None:
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append)
    broadcaster.new_recorder("c", "h").annotated_eventf(
        make_reference(field_path="spec"), {"a": "b"}, "Warning", "Said", "é☃"
    )
    settled(broadcaster, bus, 1)
    eventually(lambda: seen)
    (stored,) = store.list().items
    metadata = stored.metadata
    assert metadata.uid == seen[0].metadata.uid
    assert metadata.creation_timestamp is not None
    assert int(metadata.resource_version) > 0
    plain = msgspec.structs.replace(metadata, resource_version="", creation_timestamp=None)
    assert msgspec.structs.replace(stored, metadata=plain) == seen[0]


def test_lists_are_by_namespace_or_by_object_with_kinds_in_any_case(
    bus: Bus, store: ObjectStore, broadcaster: EventBroadcaster
) -> None:
    say(broadcaster, "a", namespace="one", name="web-0")
    say(broadcaster, "b", namespace="one", name="web-0", uid="another")
    say(broadcaster, "c", namespace="one", name="web-00")
    say(broadcaster, "d", namespace="two", name="web-0")
    say(broadcaster, "e", namespace="one", kind="Job", name="web-0")
    say(broadcaster, "f", namespace="", kind="Node", name="node-1")
    say(broadcaster, "g", namespace="on", name="e-x")
    settled(broadcaster, bus, 7)

    def found(namespace: str | None = None, **about: str) -> str:
        return "".join(sorted(event.message for event in store.list(namespace, **about).items))

    assert found() == "abcdefg"
    assert found("one") == "abce"
    assert found("default") == "f"
    assert found("none") == ""
    assert found("one", kind="Pod", name="web-0") == "ab"
    assert found("one", kind="pOD", name="web-0") == "ab"
    assert found("one", kind="Pod") == "abc"
    assert found("one", name="web-0") == "abe"
    assert found(kind="pod", name="web-0") == "abd"
    assert found("default", kind="node", name="node-1") == "f"
    assert found("one", kind="Pod", name="web") == ""


def test_a_list_longer_than_a_page_is_whole_and_in_order(embedded_url: str, prefix: str) -> None:
    settings = settings_of(prefix, partitions=2)
    bus = bus_with(embedded_url, settings, burst=100_000)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        for i in range(1_200):
            say(broadcaster, "x", name=f"web-{i:04}")
        settled(broadcaster, bus, 1_200)
    found = [event.involved_object.name for event in stored_events(bus)]
    assert sorted(found) == [f"web-{i:04}" for i in range(1_200)]
    half = next(i for i in range(1, 1_200) if found[i] < found[i - 1])
    assert found[:half] == sorted(found[:half])
    assert found[half:] == sorted(found[half:])


# -- watching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", one([3, 1]))
def test_a_reader_from_the_start_ends_with_the_stores_state_and_sees_no_version_twice_or_backwards(
    embedded_url: str, prefix: str, partitions: int
) -> None:
    settings = settings_of(prefix, partitions=partitions)
    # client-go's numbers: creates, patches, aggregates, suppression
    bus = bus_with(embedded_url, settings, refresh_s=1)
    with reading(bus) as reader, EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        for _ in range(3):
            broadcaster.start_recording_to_sink()
        for i in range(3_000):
            say(broadcaster, f"{i % 37}", name=f"web-{i % 20}")
        assert broadcaster.flush(60)
        eventually(lambda: _waiting(bus) == 0)
        with bus.client() as client:
            store = ObjectStore(bus, client)
            for event in store.list().items[::5]:
                store.delete(event.metadata.namespace, event.metadata.name)
        eventually(lambda: reader.state == as_stored(bus))
        assert reader.problems == []
        assert reader.relists == 0
        assert {change.type.value for change in reader.changes} == {"ADDED", "MODIFIED", "DELETED"}
        assert len(reader.changes) > 100


def _waiting(bus: Bus) -> int:
    with bus.client() as client:
        groups: list[Any] = [client.xinfo_groups(keys.incoming) for keys in bus.keys]
    return sum(info["pending"] + (info["lag"] or 0) for found in groups for info in found)


# -- changes that are lost -----------------------------------------------------------------------------------------


def test_changes_are_trimmed_to_their_bytes_and_a_reader_that_keeps_up_does_not_notice(
    embedded_url: str, settings: Settings
) -> None:
    bus = bus_with(embedded_url, settings, burst=100_000, changes_bytes=MIB)
    with reading(bus) as reader, EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        for i in range(300):
            say(broadcaster, "x" * 10_000, name=f"web-{i}")
            eventually(lambda i=i: len(reader.state) > i - 50)  # type: ignore[misc]  # a hundred are a MiB
        settled(broadcaster, bus, 300)
        eventually(lambda: reader.state == as_stored(bus))
        assert reader.problems == []
        with bus.client() as client:
            eventually(lambda: client.xlen(bus.keys[0].changes_of("events")) < 250)
        assert reader.relists == 0


@pytest.mark.parametrize("restart", ["flushall", "kill -9", "an older state"])
def test_a_reader_finds_every_loss_and_ends_with_the_stores_state(
    short_path: Path, settings: Settings, restart: str
) -> None:
    with own_server(short_path, appendfsync="always") as server:
        url = server.url or ""
        bus = bus_with(url, settings, burst=100_000)
        with reading(bus) as reader, EventBroadcaster(url, settings=settings) as broadcaster:
            broadcaster.start_recording_to_sink()
            for i in range(200):
                say(broadcaster, str(i))
            settled(broadcaster, bus, 200)
            eventually(lambda: len(reader.state) == len(as_stored(bus)))
            match restart:
                case "flushall":
                    with make_client(url) as client:
                        client.flushall()
                case "kill -9":
                    kill_server(server)
                    server.start()
                case "an older state":
                    server.stop()
                    (log,) = short_path.glob("*/appendonlydir/*.incr.aof")
                    with log.open("r+b") as file:
                        file.truncate(log.stat().st_size * 2 // 3)
                    server.start()
            for i in range(200, 400):
                say(broadcaster, str(i))
            assert broadcaster.flush(60)
            eventually(lambda: sum(event.count for event in stored_events(bus)) == 400)
            eventually(lambda: reader.state == as_stored(bus))
        assert reader.problems == []
        assert reader.relists > 0  # a server process that did not write the last version jumps ahead of it


def test_a_watch_waits_through_an_absence_of_redis(short_path: Path, settings: Settings) -> None:
    with own_server(short_path, appendfsync="always") as server:
        url = server.url or ""
        bus = bus_with(url, settings)
        with EventBroadcaster(url, settings=settings) as broadcaster:
            broadcaster.start_recording_to_sink()
            with (
                bus.client() as client,
                ObjectStore(bus, client) as store,
                watching(store, store.list().resource_version) as watch,
                suppress(Expired),  # a restarted server may jump; it must say so rather than keep silent
            ):
                server.stop()
                server.start()
                say(broadcaster, "after")
                assert told(watch) == [("ADDED", "after")]


# -- the bus itself ------------------------------------------------------------------------------------------------


def test_a_bus_that_was_flushed_keeps_its_partitions_for_those_who_open_it_later(short_path: Path, prefix: str) -> None:
    settings = settings_of(prefix, partitions=4)
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        bus_with(server.url or "", settings, burst=7)
        for n in range(20):
            say(broadcaster, "before", name=f"web-{n}")
        assert broadcaster.flush(60)
        with make_client(server.url or "") as client:
            client.flushall()
        for n in range(20):
            say(broadcaster, "after", name=f"web-{n}")
        assert broadcaster.flush(60)
        late = open_bus(server.url or "", settings_of(prefix))
        assert late.partitions == 4
        assert late.options.burst == 7


def test_an_object_whose_name_had_to_be_repaired_lies_where_its_name_says(embedded_url: str, prefix: str) -> None:
    """Recorded with a surrogate or with what that becomes: the same object, so the same partition and one count."""
    settings = settings_of(prefix, partitions=16)
    bus = bus_with(embedded_url, settings)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("c")
        for name in ("a\udcffb", "a�b", "a\0b"):
            recorder.event(ObjectReference("Pod", "default", name), "Normal", "Said", "x")
        settled(broadcaster, bus, 3)
    (event,) = stored_events(bus)
    assert (event.involved_object.name, event.count) == ("a�b", 3)
