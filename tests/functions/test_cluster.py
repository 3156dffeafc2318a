"""The functions on Redis Cluster: every call stays in the slot of its partition."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.keys import partition_of
from eventbus.consume.housekeeper import Housekeeper
from eventbus.model.event import Event
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.builders import make_reference
from tests.functions.servers import one_node_cluster
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.xdist_group("function-cluster")  # one worker process starts the cluster once
PARTITIONS = 3
HOUR_AND_MORE_MS = 3_700_000


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with one_node_cluster(tmp_path_factory.mktemp("c")) as url:
        yield url


def stored_events(bus: Bus) -> list[Event]:
    client = bus.client()
    try:
        return list(ObjectStore(bus, client).list().items)
    finally:
        client.close()


def test_a_bus_that_is_made_on_a_cluster_has_64_partitions(cluster_url: str, prefix: str) -> None:
    assert open_bus(cluster_url, Settings(prefix=prefix)).partitions == 64
    assert open_bus(cluster_url, Settings(prefix=prefix, partitions=3)).partitions == 64, "the first open decides"


def test_events_are_recorded_listed_trimmed_and_expired_on_every_partition(cluster_url: str, prefix: str) -> None:
    settings = Settings(prefix=prefix, partitions=PARTITIONS, worker_block_ms=50)
    broadcaster = EventBroadcaster(cluster_url, settings=settings)
    recorder = broadcaster.new_recorder("kubelet")
    runner = broadcaster.start_recording_to_sink()
    pods = [make_reference(name=f"web-{i}") for i in range(30)]
    for pod in pods * 3:
        recorder.event(pod, "Warning", "BackOff", "back-off")
    assert broadcaster.flush(PATIENCE_S)
    bus = open_bus(cluster_url, settings)
    eventually(lambda: sum(event.count for event in stored_events(bus)) >= 90)
    broadcaster.shutdown()

    assert [event.count for event in stored_events(bus)] == [3] * 30
    assert {partition_of(pod, PARTITIONS) for pod in pods} == set(range(PARTITIONS))

    client = bus.client()
    housekeeper = Housekeeper(bus=bus, clock=broadcaster._clock)
    for partition in range(PARTITIONS):
        housekeeper.trim(client, partition)
        assert client.xlen(bus.keys[partition].incoming) == 0
        later_ms = time.time_ns() // 1_000_000 + HOUR_AND_MORE_MS
        assert housekeeper.sweep(client, partition, later_ms) > 0
    client.close()
    assert stored_events(bus) == []
    assert runner is not None
