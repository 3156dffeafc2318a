"""Events that are written through the store, and recorded ones that are changed there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.errors import AlreadyExists, BusFull, Conflict, InvalidObject, NotFound
from eventbus.model.encoding.event_json import to_core
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event, EventSeries, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, EVENTS_V1
from eventbus.model.list_watch import ListOptions, WatchEventType
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import MIB, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.writer import ObjectWriter
from tests.builders import make_event, make_reference
from tests.faults.checker import hold_stream
from tests.support.harness import bus_with, settings_of
from tests.thin import one
from tests.waiting import eventually

AT = datetime(2024, 1, 1, 12, 0, 0, 123456, UTC)
SECOND = AT.replace(microsecond=0)


@pytest.fixture(params=one([pytest.param(4, id="4 partitions"), pytest.param(1, id="1 partition")]))
def settings(request: pytest.FixtureRequest, prefix: str) -> Settings:
    return settings_of(prefix, partitions=request.param)


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Bus:
    made = bus_with(embedded_url, settings, burst=100_000, refresh_s=1)
    with made.client() as client:
        hold_stream(made, client)  # or the housekeeper trims what `copies` looks for
    return made


@pytest.fixture
def store(bus: Bus) -> Iterator[ObjectStore]:
    client = bus.client()
    with ObjectStore(bus, client) as store:
        yield store
    client.close()


@pytest.fixture
def events(store: ObjectStore) -> ObjectWriter[Event]:
    return store.objects(EVENT)


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, bus: Bus) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        yield broadcaster


def written(name: str = "web-0.1", **changes: Any) -> Event:
    """Make an event as kubectl or a controller would write it."""
    event = make_event(metadata=ObjectMeta(name=name, namespace="default"), count=1)
    return msgspec.structs.replace(event, first_timestamp=AT, last_timestamp=AT, **changes)


def patched(event: Event, **changes: Any) -> Event:
    return msgspec.structs.replace(event, **changes)


def labelled(event: Event, **labels: str) -> Event:
    return patched(event, metadata=msgspec.structs.replace(event.metadata, labels=labels))


def record(broadcaster: EventBroadcaster, events: ObjectWriter[Event], message: str = "it said") -> Event:
    """One recorded event, as it is stored."""
    broadcaster.new_recorder("c").event(make_reference(), "Normal", "Said", message)
    eventually(lambda: len(named(events, "Said")) == 1)
    (event,) = named(events, "Said")
    return event


def named(events: ObjectWriter[Event], reason: str) -> list[Event]:
    return list(events.list(ListOptions(field_selector=f"reason={reason}")).items)


def copies(bus: Bus) -> list[Event]:
    """Return the events that log workers and watchers of the raw stream read."""
    found = []
    with bus.client() as client:
        for keys in bus.keys:
            entries: Any = client.xrange(keys.incoming)
            for _, fields in entries:
                if b"x" in fields:
                    batch = unpack_batch(fields[b"b"])
                    found.append(unpack_event(batch.events[0], batch.uid(0)))
    return found


# -- events of one's own -------------------------------------------------------------------------------------------


def test_a_created_event_is_stored_whole_with_a_uid_of_its_own(events: ObjectWriter[Event]) -> None:
    made = events.create(labelled(written(series=EventSeries(3, AT), action="Act"), a="b"))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp is not None
    assert int(made.metadata.resource_version) > 0
    wanted = patched(
        labelled(written(series=EventSeries(3, AT), action="Act"), a="b"),
        first_timestamp=SECOND,
        last_timestamp=SECOND,
        metadata=made.metadata,
    )
    assert made == wanted == events.get("web-0.1", "default")
    assert events.list().items == (made,)


def test_it_is_found_by_every_index_and_selector(events: ObjectWriter[Event], store: ObjectStore) -> None:
    made = events.create(written())
    about = made.involved_object
    for fields in ("metadata.name=web-0.1", f"involvedObject.kind={about.kind},involvedObject.name={about.name}"):
        assert events.list(ListOptions(namespace="default", field_selector=fields)).items == (made,)
    assert store.list("default", kind=about.kind.upper(), name=about.name).items == (made,)
    assert store.list("elsewhere").items == ()
    lower = f"involvedObject.kind={about.kind.lower()},involvedObject.name={about.name}"
    assert events.list(ListOptions(namespace="default", field_selector=lower)).items == (), "kinds match exactly"


def test_its_copy_in_the_stream_has_its_uid_and_is_not_counted(
    events: ObjectWriter[Event], broadcaster: EventBroadcaster, bus: Bus
) -> None:
    made = events.create(written())
    (copy,) = copies(bus)
    assert (copy.metadata.uid, copy.metadata.name, copy.message) == (made.metadata.uid, "web-0.1", made.message)
    record(broadcaster, events)  # whatever came before it is handled
    assert events.get("web-0.1", "default") == made
    assert len(events.list().items) == 2


def test_a_name_is_taken_once_also_by_a_recorded_event(
    events: ObjectWriter[Event], broadcaster: EventBroadcaster
) -> None:
    events.create(written())
    with pytest.raises(AlreadyExists, match=r'^events "web-0.1" already exists$'):
        events.create(written())
    recorded = record(broadcaster, events)
    with pytest.raises(AlreadyExists, match=f'^events "{recorded.metadata.name}" already exists$'):
        events.create(written(recorded.metadata.name))


def test_an_update_replaces_it_whole_and_an_old_version_is_a_conflict(events: ObjectWriter[Event], bus: Bus) -> None:
    first = events.create(labelled(written(), a="b"))
    again = patched(first, count=2, last_timestamp=SECOND.replace(minute=5), message="again")
    second = events.update(again)
    assert second == patched(again, metadata=second.metadata) == events.get("web-0.1", "default")
    assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
    with pytest.raises(Conflict, match="the object has been modified"):
        events.update(patched(first, message="late"))
    assert [copy.message for copy in copies(bus)] == ["m0", "again"] or len(copies(bus)) == 2


def test_what_says_nothing_new_is_not_copied_and_what_changes_nothing_is_not_written(
    events: ObjectWriter[Event], bus: Bus
) -> None:
    first = events.create(written())
    assert events.update(first) == first
    assert events.patch("web-0.1", {"count": 1}, "default") == first
    second = events.patch("web-0.1", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert second.metadata.labels == {"a": "b"}
    assert second.metadata.resource_version != first.metadata.resource_version
    assert len(copies(bus)) == 1
    events.patch("web-0.1", {"series": {"count": 2, "lastObservedTime": "2024-01-01T12:00:01.000000Z"}}, "default")
    assert len(copies(bus)) == 2


def test_a_patch_as_client_go_sends_it_counts_it(events: ObjectWriter[Event]) -> None:
    first = events.create(written())
    patch = {"count": 2, "lastTimestamp": "2024-01-01T12:05:00Z", "message": "m0"}
    second = events.patch("web-0.1", patch, "default")
    assert (second.count, second.last_timestamp) == (2, SECOND.replace(minute=5))
    assert second.first_timestamp == first.first_timestamp == SECOND


def test_it_moves_in_the_index_with_the_object_it_is_about(events: ObjectWriter[Event], store: ObjectStore) -> None:
    made = events.create(written())
    other = msgspec.structs.replace(make_reference(), name="other")
    events.update(patched(made, involved_object=other))
    assert store.list("default", kind="pod", name=made.involved_object.name).items == ()
    assert len(store.list("default", kind="pod", name="other").items) == 1


def test_a_deleted_one_leaves_nothing(events: ObjectWriter[Event], bus: Bus) -> None:
    made = events.create(written())
    with pytest.raises(Conflict):
        events.delete("web-0.1", "default", version="1")
    events.delete("web-0.1", "default", version=made.metadata.resource_version)
    with pytest.raises(NotFound, match=r'^events "web-0.1" not found$'):
        events.get("web-0.1", "default")
    for write in (events.update, lambda event: events.patch("web-0.1", {"reason": "X"}, "default")):
        with pytest.raises(NotFound):
            write(written())
    with bus.client() as client:
        assert [key for keys in bus.keys for key in client.scan_iter(match=keys.object + b"*", count=10_000)] == []
    events.create(written())


def test_a_watch_tells_all_of_it(events: ObjectWriter[Event]) -> None:
    watch = events.watch(ListOptions(resource_version=events.list().resource_version))
    made = events.create(written())
    changed = events.patch("web-0.1", {"reason": "Other"}, "default")
    events.delete("web-0.1", "default")
    steps = iter(watch)
    told = [next(steps) for _ in range(3)]
    watch.stop()
    assert [step.type for step in told] == [WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED]
    assert [step.object for step in told[:2]] == [made, changed]
    gone = told[2].object
    assert gone is not None
    assert int(gone.metadata.resource_version) > int(changed.metadata.resource_version)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"type": "Odd" * 50}, 'Event "web-0.1" is invalid: type: has 150 bytes'),
        ({"involved_object": ObjectReference(kind="Pod", name="p", namespace="x")}, "involvedObject.namespace: 'x'"),
        ({"event_time": AT, "reporting_component": ""}, "reportingComponent: is empty"),
        ({"reason": "x" * 2000}, "reason: has 2000 bytes"),
        ({"message": "x" * 20_000}, "it is too large"),
        ({"metadata": ObjectMeta(name="a/b", namespace="default")}, 'metadata.name: Invalid value: "a/b"'),
        ({"metadata": ObjectMeta(name="a")}, "metadata.namespace: Required value"),
        ({"metadata": ObjectMeta(namespace="default")}, "name or generateName is required"),
        ({"metadata": ObjectMeta(name="a", namespace="default", resource_version="3")}, "should not be set"),
    ],
)
def test_what_core_v1_refuses_is_refused(events: ObjectWriter[Event], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidObject) as refused:
        events.create(written(**changes))
    assert problem in str(refused.value)
    assert events.list().items == ()


def test_a_full_stream_takes_nothing_and_says_so(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix), incoming_bytes=MIB)
    with bus.client() as client, ObjectStore(bus, client) as store:
        events = store.objects(EVENT)
        many = [written(f"e{number}", message=os.urandom(7_500).hex()) for number in range(100)]
        with pytest.raises(BusFull, match="the bus is full"):
            list(map(events.create, many))
        assert 50 < len(events.list().items) < 100
        events.patch("e0", {"metadata": {"labels": {"a": "b"}}}, "default")  # says nothing new, and needs no room


def test_both_shapes_are_views_of_one_event(events: ObjectWriter[Event], store: ObjectStore) -> None:
    """events.k8s.io/v1 has other names for the same fields."""
    new = store.objects(EVENTS_V1)
    made = events.create(written())
    assert new.get("web-0.1", "default") == made
    changed = new.patch("web-0.1", {"note": "told anew", "deprecatedCount": 7}, "default")
    assert (changed.message, changed.count) == ("told anew", 7)
    assert events.get("web-0.1", "default") == changed
    about = made.involved_object
    fields = f"regarding.kind={about.kind},regarding.name={about.name},reportingController={made.reporting_component}"
    assert new.list(ListOptions(namespace="default", field_selector=fields)).items == (changed,)
    assert new.kind.encode(changed)["apiVersion"] == "events.k8s.io/v1"
    with pytest.raises(NotFound, match=r'^events.events.k8s.io "x" not found$'):
        new.get("x", "default")


# -- recorded events -----------------------------------------------------------------------------------------------


def test_labels_laid_over_a_recorded_event_stay_and_what_was_counted_goes_on(
    events: ObjectWriter[Event], broadcaster: EventBroadcaster, bus: Bus
) -> None:
    event = record(broadcaster, events)
    changed = events.patch(
        event.metadata.name,
        {"metadata": {"labels": {"seen": "yes"}, "annotations": {"by": "me"}}, "count": 40, "message": "mine"},
        "default",
    )
    assert (changed.metadata.labels, changed.metadata.annotations) == ({"seen": "yes"}, {"by": "me"})
    assert (changed.count, changed.message) == (40, "mine")
    assert changed.metadata.uid == event.metadata.uid
    assert changed == events.get(event.metadata.name, "default")
    assert [(copy.metadata.uid, copy.count) for copy in copies(bus)] == [(event.metadata.uid, 40)]
    broadcaster.new_recorder("c").event(make_reference(), "Normal", "Said", "it said")
    eventually(lambda: named(events, "Said")[0].count == 2)
    (counted,) = named(events, "Said")
    assert (counted.message, counted.metadata.labels, counted.metadata.annotations) == (
        "it said",
        {"seen": "yes"},
        {"by": "me"},
    )


def test_an_overlay_can_be_taken_back_and_one_that_changes_nothing_is_not_written(
    events: ObjectWriter[Event], broadcaster: EventBroadcaster
) -> None:
    event = record(broadcaster, events)
    name = event.metadata.name
    one = events.patch(name, {"metadata": {"labels": {"a": "b"}}, "action": "Look"}, "default")
    assert events.patch(name, {"metadata": {"labels": {"a": "b"}}}, "default") == one
    two = events.patch(name, {"metadata": {"labels": {"a": None, "c": "d"}}}, "default")
    assert (two.metadata.labels, two.action) == ({"c": "d"}, "Look")
    back = events.patch(name, {"metadata": {"labels": None}, "action": None}, "default")
    assert patched(back, metadata=event.metadata) == event
    assert back.metadata.labels == {}


def test_a_put_of_a_recorded_event_is_an_overlay_too_and_keeps_times_to_the_microsecond(
    events: ObjectWriter[Event], broadcaster: EventBroadcaster
) -> None:
    event = record(broadcaster, events)
    updated = events.update(labelled(event, a="b"))
    found = events.get(event.metadata.name, "default")
    assert found.metadata.resource_version == updated.metadata.resource_version
    assert (found.first_timestamp, found.last_timestamp) == (event.first_timestamp, event.last_timestamp)
    assert to_core(found) == to_core(updated)
    with pytest.raises(Conflict):
        events.update(labelled(event, a="c"))
    with pytest.raises(InvalidObject, match="involvedObject: Invalid value: field is immutable"):
        events.update(patched(found, involved_object=ObjectReference("Pod", "default", "x")))


def test_a_selector_sees_the_overlay(events: ObjectWriter[Event], broadcaster: EventBroadcaster) -> None:
    event = record(broadcaster, events)
    watch = events.watch(ListOptions(resource_version=events.list().resource_version, label_selector="a=b"))
    events.patch(event.metadata.name, {"metadata": {"labels": {"a": "b"}}}, "default")
    changes = iter(watch)
    told = next(changes)
    assert (told.type, told.object and told.object.metadata.labels) == (WatchEventType.ADDED, {"a": "b"})
    assert len(events.list(ListOptions(label_selector="a=b")).items) == 1
    events.patch(event.metadata.name, {"metadata": {"labels": {"a": None}}}, "default")
    assert next(changes).type is WatchEventType.DELETED
    watch.stop()
