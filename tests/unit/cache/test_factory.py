"""Factories: one informer for each kind, and what is common to all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar, TypeVar, cast

import msgspec
import pytest

from eventbus.cache.factory import SharedInformerFactory
from eventbus.errors import NotFound
from eventbus.model.event import Event, ObjectMeta
from eventbus.model.kinds import EVENT, EVENTS_V1, Kind
from eventbus.model.list_watch import HasMetadata, ListerWatcher, ListOptions
from eventbus.testing.watch_source import FakeWatchSource
from tests.unit.cache.things import Notes, make_thing
from tests.waiting import PATIENCE_S, eventually

T = TypeVar("T", bound=HasMetadata)


class Node(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "Node"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta
    ready: bool = True


NODE = Kind(name="Node", plural="nodes", namespaced=False, type=Node)


class Store:
    """Two kinds, each in a fake source."""

    def __init__(self) -> None:
        self.events: FakeWatchSource[Event] = FakeWatchSource()
        self.nodes: FakeWatchSource[Node] = FakeWatchSource()

    def lister_watcher(self, kind: Kind[T]) -> ListerWatcher[T]:
        return cast("ListerWatcher[T]", {"events": self.events, "nodes": self.nodes}[kind.plural])


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def factory(store: Store) -> Iterator[SharedInformerFactory]:
    with SharedInformerFactory(store) as factory:
        yield factory


def test_all_who_ask_for_a_kind_share_its_informer(factory: SharedInformerFactory, store: Store) -> None:
    assert factory.informer_for(NODE) is factory.informer_for(NODE)
    factory.start()
    assert factory.wait_for_cache_sync(PATIENCE_S) == {"nodes": True}
    assert len(store.nodes.lists) == 1
    assert store.events.lists == []


def test_starting_again_starts_what_was_asked_for_since(factory: SharedInformerFactory, store: Store) -> None:
    factory.informer_for(NODE)
    factory.start()
    factory.informer_for(EVENT)
    assert factory.wait_for_cache_sync(PATIENCE_S) == {"nodes": True}, "only what was started is waited for"
    factory.start()
    assert factory.wait_for_cache_sync(PATIENCE_S) == {"nodes": True, "events": True}
    assert len(store.nodes.lists) == 1


def test_a_stopped_factory_starts_nothing_and_leaves_no_thread(store: Store) -> None:
    before = set(threading.enumerate())
    factory = SharedInformerFactory(store)
    informer = factory.informer_for(NODE)
    factory.start()
    assert factory.stop(30)
    assert informer.is_stopped
    late = factory.informer_for(EVENT)
    factory.start()
    assert not late.has_started
    assert set(threading.enumerate()) == before


def test_options_are_tweaked_for_lists_and_for_watches(store: Store) -> None:
    def only_web(options: ListOptions) -> ListOptions:
        return msgspec.structs.replace(options, label_selector="app=web")

    store.events.add(make_thing("a", namespace="shop", app="web"))
    store.events.add(make_thing("b", namespace="shop", app="db"))
    store.events.add(make_thing("c", namespace="other", app="web"))
    notes = Notes()
    with SharedInformerFactory(store, namespace="shop", tweak_list_options=only_web) as factory:
        factory.informer_for(EVENT).add_event_handler(notes.on_add, notes.on_update, notes.on_delete)
        factory.start()
        notes.wait_for("add a=")
        store.events.wait_for_watches(1)
        store.events.modify(make_thing("b", "1", namespace="shop", app="web"))
        store.events.modify(make_thing("a", "1", namespace="shop", app="db"))
        store.events.modify(make_thing("c", "1", namespace="other", app="web"))
        notes.wait_for("add a=", "add b=1", "delete a=1")
    for options in (store.events.lists[0], store.events.watches[0]):
        assert (options.namespace, options.label_selector) == ("shop", "app=web")


def test_a_transform_applies_to_every_kind(store: Store) -> None:
    def without_labels(found: HasMetadata) -> HasMetadata:
        struct = cast("Event", found)
        return msgspec.structs.replace(struct, metadata=msgspec.structs.replace(struct.metadata, labels={}))

    store.events.add(make_thing("a", app="web"))
    store.nodes.add(Node(ObjectMeta(name="a", labels={"app": "web"})))
    with SharedInformerFactory(store, transform=without_labels) as factory:
        events, nodes = factory.informer_for(EVENT), factory.informer_for(NODE)
        factory.start()
        factory.wait_for_cache_sync(PATIENCE_S)
        assert events.lister().get("a").metadata.labels == nodes.lister().get("a").metadata.labels == {}


def test_resync_is_of_all_or_of_one_kind(store: Store) -> None:
    with SharedInformerFactory(store, resync_s=60) as factory:
        assert factory.informer_for(EVENT).add_event_handler().resync_s == 60
        assert factory.informer_for(NODE, resync_s=30).add_event_handler().resync_s == 30


def test_errors_of_every_kind_reach_one_handler(store: Store) -> None:
    errors: list[Exception] = []
    store.events.fail_next_list(RuntimeError("events"))
    store.nodes.fail_next_list(RuntimeError("nodes"))
    with SharedInformerFactory(store, on_error=errors.append) as factory:
        factory.informer_for(EVENT)
        factory.informer_for(NODE)
        factory.start()
        eventually(lambda: sorted(map(str, errors)) == ["events", "nodes"])


def test_what_a_lister_does_not_find_it_names_as_the_api_server_does(factory: SharedInformerFactory) -> None:
    with pytest.raises(NotFound, match=r'^nodes "x" not found$'):
        factory.informer_for(NODE).lister().get("x")
    with pytest.raises(NotFound, match=r'^events\.events\.k8s\.io "x" not found$'):
        factory.informer_for(EVENTS_V1).lister().namespaced("a").get("x")
