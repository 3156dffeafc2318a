"""Recorders of events.k8s.io on a bus: processes of one instance share their series, over Redis and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus.broker.bus import Bus, open_bus, upgrade_format
from eventbus.broker.keys import bus_key
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from tests.builders import make_reference
from tests.functions.servers import one_node_cluster
from tests.support.both_ways import either_way, over_both
from tests.support.harness import settings_of, stored_events
from tests.waiting import eventually

POD, NODE = make_reference(), make_reference(kind="Node", namespace="", name="n1")
ACCEPTED_S = 60


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Iterator[Bus]:
    """A bus with a sink worker."""
    bus = open_bus(embedded_url, settings)
    worker = sink_worker(bus=bus, clock=SystemClock(), block_ms=20)
    worker.start()
    yield bus
    worker.stop()


@pytest.fixture
def url(request: pytest.FixtureRequest, bus: Bus, settings: Settings) -> Iterator[str]:
    with either_way(request, bus.url, settings) as url:
        yield url


def bind(url: str, settings: Settings, instance: str, times: int) -> None:
    """Record as a process of its own would."""
    with EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_events_recorder("example.com/scheduler", instance=instance)
        for n in range(times):
            recorder.eventf(POD, NODE, "Normal", "Bound", "Binding", "attempt %d", n)
        assert broadcaster.flush(ACCEPTED_S)
        assert broadcaster.losses.counts == {}


def counted(bus: Bus) -> dict[str, int]:
    """How often each instance's series happened."""
    return {event.reporting_instance: event.times_seen for event in stored_events(bus)}


@over_both
def test_processes_of_one_instance_share_a_series(bus: Bus, url: str, settings: Settings) -> None:
    for instance in ("one", "two", "one"):
        bind(url, settings, instance, 50)
    eventually(lambda: counted(bus) == {"one": 100, "two": 50})

    (event,) = (event for event in stored_events(bus) if event.reporting_instance == "one")
    assert (event.message, event.related, event.action, event.count) == ("attempt 0", NODE, "Binding", 0)
    assert event.series is not None
    assert event.series.last_observed_time == event.last_seen
    assert event.event_time is not None
    assert event.last_seen is not None
    assert event.event_time < event.last_seen


def test_on_a_cluster_each_partition_has_its_series(tmp_path_factory: pytest.TempPathFactory, prefix: str) -> None:
    with one_node_cluster(tmp_path_factory.mktemp("c")) as url:
        settings = settings_of(prefix, partitions=3)
        with EventBroadcaster(url, settings=settings) as broadcaster:
            broadcaster.start_recording_to_sink()
            recorder = broadcaster.new_events_recorder("example.com/scheduler", instance="one")
            for n in range(24):
                recorder.eventf(f"Pod/web-{n % 8}", None, "Normal", "Bound", "Binding", "attempt %d", n)
                assert broadcaster.flush(ACCEPTED_S)
            bus = open_bus(url, settings)
            eventually(lambda: [event.times_seen for event in stored_events(bus)] == [3] * 8)


def test_until_the_bus_allows_series_repeats_are_counted(
    bus: Bus, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with bus.client() as client:
        client.hset(bus_key(bus.prefix), "codecs", "0,1")
        bind(bus.url, settings, "old", 3)
        eventually(lambda: counted(bus) == {"old": 1} and len(stored_events(bus)) == 3)
        assert {(each.source.host, each.count, each.event_time) for each in stored_events(bus)} == {("old", 1, None)}

        assert "does not allow series of events.k8s.io yet" in caplog.text

        bus.revalidate(client)
        assert upgrade_format(client, bus, force=False) == (3, (0, 1, 2))
    bind(bus.url, settings, "new", 3)
    eventually(lambda: counted(bus).get("new") == 3)
