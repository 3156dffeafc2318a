"""Stored events, the one last seen first: by words, selectors and period."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbus.broker.bus import Bus
from eventbus.model.event import Event, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.model.selectors import InvalidSelector
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store import event_search
from eventbus.store.event_search import NewestFirst, Search, SearchResult, search_events
from eventbus.store.object_store import ObjectStore
from tests.support.fleet import make_fleet
from tests.support.harness import bus_with, settings_of
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture(params=one([pytest.param(4, id="4 partitions"), pytest.param(1, id="1 partition")]))
def settings(request: pytest.FixtureRequest, prefix: str) -> Settings:
    return settings_of(prefix, partitions=request.param)


@pytest.fixture
def bus(any_server_url: str, settings: Settings) -> Bus:
    return bus_with(any_server_url, settings, burst=2)


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    client = bus.client()
    yield client
    client.close()


@pytest.fixture
def store(bus: Bus, client: Any) -> Iterator[ObjectStore]:
    with ObjectStore(bus, client) as store:
        yield store


def search(bus: Bus, client: Any, store: ObjectStore, **asked: Any) -> SearchResult:
    return search_events(bus, client, store.objects(EVENT), Search(**asked))


def reasons(found: SearchResult) -> list[str]:
    return [event.reason for event in found.items]


def test_events_are_found_by_words_selectors_and_period_the_newest_first(
    bus: Bus, client: Any, store: ObjectStore
) -> None:
    now = datetime.now(UTC)
    events = make_fleet(store, now)

    everything = search(bus, client, store)
    assert len(everything.items) == len(events) == everything.examined
    seen = [event.last_seen for event in everything.items]
    assert seen == sorted(seen, key=lambda time: time or now, reverse=True)
    assert not everything.more
    assert reasons(search(bus, client, store, text="pod/web CODE 1:")) == ["Failed"]
    assert reasons(search(bus, client, store, text="Shop/pod/web CODE 1:")) == ["Failed"]
    assert reasons(search(bus, client, store, text="other/pod/web CODE 1:")) == []
    assert reasons(search(bus, client, store, text="app=web kubelet", namespace="shop"))[:1] == ["Failed"]
    assert reasons(search(bus, client, store, text="txt.exe")) == ["Odd"]
    assert reasons(search(bus, client, store, text='src=x "')) == []
    assert reasons(search(bus, client, store, text="uid-db-0")) == ["Failed"]
    assert reasons(search(bus, client, store, field_selector="type=Warning,involvedObject.kind=Node")) == [
        "NodeHasDiskPressure"
    ]
    assert reasons(search(bus, client, store, label_selector="app in (db,far)")) == ["Unhealthy", "Failed"]
    assert "Completed" not in reasons(search(bus, client, store, namespace="other"))
    # What goes on touches every period since it began; what ended before does not.
    recent = reasons(search(bus, client, store, since=now - timedelta(minutes=5)))
    assert sorted(recent) == ["Completed", "Failed", "Odd", "Started"]
    past = search(bus, client, store, since=now - timedelta(hours=1), until=now - timedelta(minutes=13, seconds=30))
    assert sorted(reasons(past)) == ["Installed", "ScalingReplicaSet"]
    with pytest.raises(InvalidSelector):
        search(bus, client, store, field_selector="colour=red")


def test_a_limit_says_that_there_is_more_and_pages_lose_none(
    bus: Bus, client: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "PAGE", 1)
    events = [
        Event(
            metadata=make(i), involved_object=ObjectReference("Pod", "default", f"p-{i}"), reason="Said", type="Normal"
        )
        for i in range(70)
    ]
    for event in events:
        store.objects(EVENT).create(event)
    # Many in the same millisecond, so that a page ends among equals.
    for keys in bus.keys:
        for member in client.zrange(keys.index_expiry, 0, 44):
            client.zadd(keys.index_expiry, {member: 10**13})

    walk = NewestFirst(bus=bus, client=client)
    names = [event.metadata.name for event in walk.events()]
    assert sorted(names) == sorted(event.metadata.name for event in events)
    found = search(bus, client, store, limit=10)
    assert len(found.items) == 10
    assert found.more
    assert found.resource_version == store.objects(EVENT).list(ListOptions()).resource_version


def make(i: int) -> ObjectMeta:
    return ObjectMeta(name=f"p-{i}.1", namespace="default")


def test_a_namespace_with_few_events_is_read_by_its_index_and_the_result_is_the_same(
    bus: Bus, client: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = make_fleet(store, datetime.now(UTC))
    in_shop = sum(event.metadata.namespace == "shop" for event in events)
    one_object = "involvedObject.kind=Pod,involvedObject.name=web-7f-a"
    asked: list[tuple[dict[str, Any], int]] = [
        ({"namespace": "shop"}, in_shop),
        ({"namespace": "shop", "field_selector": "type=Warning"}, in_shop),
        ({"namespace": "shop", "field_selector": one_object}, 2),
        ({"namespace": "none"}, 0),
    ]
    by_index = [search(bus, client, store, **terms) for terms, _ in asked]
    assert [found.examined for found in by_index] == [examined for _, examined in asked]
    newest = search(bus, client, store, namespace="shop", field_selector="type=Warning", limit=1)
    assert (reasons(newest), newest.more) == (["Failed"], True)
    monkeypatch.setattr(event_search, "FEW", -1)
    by_walk = [search(bus, client, store, **terms) for terms, _ in asked]
    assert [(found.items, found.more) for found in by_walk] == [(found.items, found.more) for found in by_index]
    assert by_walk[3].examined == len(events)


def test_events_of_several_namespaces_are_found_before_the_limit(bus: Bus, client: Any, store: ObjectStore) -> None:
    make_fleet(store, datetime.now(UTC))
    found = search(bus, client, store, namespaces=frozenset({"other", "none"}), limit=2)
    assert [event.metadata.namespace for event in found.items] == ["other", "other"]
    assert not found.more


def test_what_is_held_back_counts_as_new(bus: Bus, client: Any, store: ObjectStore, settings: Settings) -> None:
    loud, quiet = ObjectReference("Pod", "default", "loud"), ObjectReference("Pod", "default", "quiet")
    with EventBroadcaster(bus.url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("tests")
        for _ in range(2):
            recorder.event(loud, "Warning", "BackOff", "again")
        broadcaster.flush()
        eventually(lambda: [event.count for event in search(bus, client, store, text="loud").items] == [2])
        recorder.event(quiet, "Normal", "Started", "once")
        for _ in range(5):
            recorder.event(loud, "Warning", "BackOff", "again")
        broadcaster.flush()
        eventually(lambda: [event.count for event in search(bus, client, store, text="again").items] == [7])
    assert next(NewestFirst(bus=bus, client=client).events()).involved_object.name == "loud"
