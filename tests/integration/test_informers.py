"""Informers over the real store, as a program uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus import (
    NODE,
    Event,
    EventBroadcaster,
    Lease,
    LeaseSpec,
    ListOptions,
    Node,
    NodeSpec,
    NotFound,
    ObjectMeta,
    ObjectStore,
    Settings,
    SharedInformerFactory,
)
from tests.builders import make_reference
from tests.support.both_ways import BOTH, either_way
from tests.support.harness import settings_of
from tests.thin import one
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture(params=one([3, 1]), ids="{} partitions".format)
def settings(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> Settings:
    return settings_of(prefix, partitions=request.param, redis_url=embedded_url)


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, embedded_url: str, settings: Settings) -> Iterator[str]:
    with either_way(request, embedded_url, settings) as url:
        yield url


@pytest.fixture
def store(url: str, settings: Settings) -> Iterator[ObjectStore]:
    with ObjectStore.open(url, settings=settings) as store:
        yield store


def test_one_process_writes_a_node_and_another_watches_it(store: ObjectStore, url: str, settings: Settings) -> None:
    told: list[str] = []
    with ObjectStore.open(url, settings=settings) as other, SharedInformerFactory(other) as factory:
        nodes = factory.nodes()
        nodes.add_event_handler(
            lambda node, initial: told.append(f"add {node.metadata.name} {initial}"),
            lambda old, new: told.append(f"update {old.spec.unschedulable} {new.spec.unschedulable}"),
            lambda node: told.append("delete"),
        )
        store.objects(NODE).create(Node(metadata=ObjectMeta(name="node-1")))
        factory.start()
        assert factory.wait_for_cache_sync(PATIENCE_S) == {"nodes": True}
        found = nodes.lister().get("node-1")
        assert (found.kind, found.api_version) == ("Node", "v1")
        store.objects(NODE).patch("node-1", {"spec": {"unschedulable": True}})
        store.objects(NODE).delete("node-1")
        eventually(lambda: len(told) == 3)
        assert told == ["add node-1 True", "update False True", "delete"]
        with pytest.raises(NotFound, match=r'^nodes "node-1" not found$'):
            nodes.lister().get("node-1")


def test_events_nodes_and_leases_are_mirrored_by_one_reader(
    store: ObjectStore, url: str, embedded_url: str, settings: Settings
) -> None:
    from eventbus import LEASE

    with (
        SharedInformerFactory(store) as factory,
        EventBroadcaster(url, settings=settings) as broadcaster,
        EventBroadcaster(embedded_url, settings=settings) as correlating,
    ):
        correlating.start_recording_to_sink()
        events, nodes, leases = factory.events(), factory.nodes(), factory.leases()
        factory.start()
        assert factory.wait_for_cache_sync(PATIENCE_S) == {"events": True, "nodes": True, "leases": True}
        broadcaster.new_recorder("c").event(make_reference(namespace="shop"), "Warning", "Said", "x")
        store.objects(NODE).create(Node(metadata=ObjectMeta(name="n")))
        lease = Lease(metadata=ObjectMeta(name="n", namespace="kube-node-lease"), spec=LeaseSpec(holder_identity="n"))
        store.objects(LEASE).create(lease)
        eventually(lambda: events.lister().list() and nodes.lister().list() and leases.lister().list())
        (event,) = events.indexer.by_index("namespace", "shop")
        assert isinstance(event, Event)
        assert (event.kind, event.message) == ("Event", "x")
        (held,) = leases.lister().list()
        assert held.spec.holder_identity == "n"


def test_options_of_a_factory_choose_what_is_mirrored(store: ObjectStore) -> None:
    for name in ("a", "b"):
        store.objects(NODE).create(Node(metadata=ObjectMeta(name=name), spec=NodeSpec(unschedulable=name == "b")))

    def cordoned(options: ListOptions) -> ListOptions:
        from msgspec.structs import replace

        return replace(options, field_selector="spec.unschedulable=true")

    with SharedInformerFactory(store, tweak_list_options=cordoned) as factory:
        nodes = factory.nodes()
        factory.start()
        factory.wait_for_cache_sync(PATIENCE_S)
        assert [node.metadata.name for node in nodes.lister().list()] == ["b"]
        store.objects(NODE).patch("a", {"spec": {"unschedulable": True}})
        store.objects(NODE).patch("b", {"spec": {"unschedulable": False}})
        eventually(lambda: [node.metadata.name for node in nodes.lister().list()] == ["a"])
