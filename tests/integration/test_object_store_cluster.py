"""Objects on Redis Cluster: no command spans partitions, and each has a reader of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus import EVENT, NODE, EventBroadcaster, Node, ObjectMeta, ObjectStore, Settings, SharedInformerFactory
from tests.builders import make_reference
from tests.functions.servers import one_node_cluster
from tests.support.harness import settings_of
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Iterator[Settings]:
    with one_node_cluster(tmp_path_factory.mktemp("c")) as url:
        yield settings_of(prefix, partitions=3, redis_url=url)


def test_kinds_are_written_found_mirrored_and_removed_over_all_partitions(settings: Settings) -> None:
    names = [f"n{i}" for i in range(12)]
    with ObjectStore.open(settings=settings) as store, SharedInformerFactory(store) as factory:
        informer, events = factory.nodes(), factory.events()
        factory.start()
        assert all(factory.wait_for_cache_sync(PATIENCE_S).values())
        nodes = store.objects(NODE)
        for name in names:
            nodes.create(Node(metadata=ObjectMeta(name=name)))
        with EventBroadcaster(settings=settings) as broadcaster:
            broadcaster.start_recording_to_sink()
            broadcaster.new_recorder("c").event(make_reference(), "Normal", "Said", "x")
            eventually(lambda: events.lister().list())
        (event,) = events.lister().list()
        assert store.objects(EVENT).get(event.metadata.name, "default") == event
        assert sorted(node.metadata.name for node in nodes.list().items) == sorted(names)
        eventually(lambda: len(informer.lister().list()) == len(names))
        for name in names:
            nodes.delete(name)
        eventually(lambda: not informer.lister().list())
