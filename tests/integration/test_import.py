"""The import of a cluster's events: the cluster is an API worker of another bus, or a server that stands in for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from eventbus import Event, EventBroadcaster, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.export.sinks import make_sink
from eventbus.imports.event_writer import EventWriter
from eventbus.imports.importer import Importer
from eventbus.model.event import EventSeries
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.builders import NOW, make_event, make_reference
from tests.support.api_in_process import serving
from tests.support.importing import importing
from tests.support.kubeconfig import write_kubeconfig
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def cluster(embedded_url: str, prefix: str) -> Bus:
    """The bus whose API worker is the cluster."""
    return open_bus(embedded_url, Settings(prefix=f"{prefix}c"))


@pytest.fixture
def kubeconfig(cluster: Bus, tmp_path: Path) -> Iterator[Path]:
    with serving(cluster) as url:
        yield write_kubeconfig(tmp_path / "config", url)


def named(name: str, **overrides: Any) -> Event:
    event = make_event(**overrides)
    return replace(event, metadata=replace(event.metadata, name=name))


def create(bus: Bus, *events: Event) -> list[Event]:
    with ObjectStore.of(bus) as store:
        return [store.objects(EVENT).create(event) for event in events]


def repeat(bus: Bus, name: str, count: int, namespace: str = "default") -> Event:
    with ObjectStore.of(bus) as store:
        events = store.objects(EVENT)
        return events.update(replace(events.get(name, namespace), count=count))


def stored(bus: Bus) -> dict[str, Event]:
    with ObjectStore.of(bus) as store:
        return {event.metadata.name: event for event in store.objects(EVENT).list().items}


def counts(bus: Bus) -> dict[str, int]:
    return {name: event.times_seen for name, event in stored(bus).items()}


def figures(importer: Importer) -> Mapping[str, float]:
    return importer.loop_health()[0].counts


def test_events_keep_name_uid_count_series_and_times(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    series = EventSeries(count=7, last_observed_time=NOW + timedelta(minutes=3))
    old = named("web-0.1", count=3, last_timestamp=NOW + timedelta(minutes=1), message="wäre\tgut")
    new = named(
        "web-0.2",
        count=0,
        first_timestamp=None,
        last_timestamp=None,
        event_time=NOW,
        series=series,
        action="Pulling",
        reporting_component="example.com/c",
        reporting_instance="c-0",
    )
    sent = create(cluster, old, new)
    with importing(bus, kubeconfig):
        eventually(lambda: len(stored(bus)) == 2)
    for event in sent:
        found = stored(bus)[event.metadata.name]
        annotations = {"eventbus.dev/bus-path": cluster.id}
        metadata = replace(event.metadata, resource_version=found.metadata.resource_version, annotations=annotations)
        assert found == replace(event, metadata=metadata)


def test_changes_are_followed_and_each_repeat_is_stored_once(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a"))
    with importing(bus, kubeconfig) as importer:
        eventually(lambda: counts(bus) == {"a": 1})
        create(cluster, named("b", involved_object=make_reference(name="web-1")))
        eventually(lambda: counts(bus) == {"a": 1, "b": 1})
        for count in range(2, 6):
            repeat(cluster, "a", count)
        eventually(lambda: counts(bus) == {"a": 5, "b": 1})
        with ObjectStore.of(cluster) as store:
            store.objects(EVENT).delete("b", "default")
        create(cluster, named("c"))
        eventually(lambda: counts(bus) == {"a": 5, "b": 1, "c": 1})
    assert figures(importer)["lists"] == 1


def test_an_importer_goes_on_where_the_last_one_stopped(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a"))
    with importing(bus, kubeconfig):
        eventually(lambda: counts(bus) == {"a": 1})
    create(cluster, named("gone"), named("b"))
    repeat(cluster, "a", 4)
    with ObjectStore.of(cluster) as store:
        store.objects(EVENT).delete("gone", "default")  # a list would not have it
    with importing(bus, kubeconfig, identity="two") as second:
        eventually(lambda: counts(bus) == {"a": 4, "b": 1, "gone": 1})
        assert figures(second)["lists"] == 0
        assert figures(second)["known"] == 0


def test_an_importer_that_is_stopped_at_the_end_of_a_list_keeps_the_position(
    bus: Bus, cluster: Bus, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, named("a"))
    write, first = EventWriter.write, threading.Event()

    def write_and_stop(self: EventWriter, events: Sequence[Any]) -> None:
        write(self, events)
        if not first.is_set():
            first.set()
            time.sleep(0.3)  # so that `stop` comes before the list has ended

    monkeypatch.setattr(EventWriter, "write", write_and_stop)
    with importing(bus, kubeconfig):
        assert first.wait(60)
    create(cluster, named("b"))
    with importing(bus, kubeconfig, identity="two") as second:
        eventually(lambda: counts(bus) == {"a": 1, "b": 1})
        assert figures(second)["lists"] == 0


def test_without_the_history_all_events_are_compared(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a"), named("b"))
    with importing(bus, kubeconfig):
        eventually(lambda: counts(bus) == {"a": 1, "b": 1})
    repeat(cluster, "a", 9)
    create(cluster, named("c"))
    with cluster.client() as client:
        client.xtrim(cluster.keys[0].changes_of("events"), maxlen=0, approximate=False)
    create(cluster, named("d"))
    with importing(bus, kubeconfig) as importer:
        eventually(lambda: counts(bus) == {"a": 9, "b": 1, "c": 1, "d": 1})
    assert figures(importer) == {**figures(importer), "written": 3, "known": 1, "lists": 1}


def test_a_count_never_falls(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a", count=5), named("marker"))
    with importing(bus, kubeconfig):
        eventually(lambda: counts(bus) == {"a": 5, "marker": 1})
        repeat(cluster, "a", 2)
        repeat(cluster, "marker", 2)
        eventually(lambda: counts(bus)["marker"] == 2)
    assert counts(bus) == {"a": 5, "marker": 2}


def test_another_event_of_the_same_name_replaces_the_former(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a", count=5))
    with importing(bus, kubeconfig):
        eventually(lambda: counts(bus) == {"a": 5})
        with ObjectStore.of(cluster) as store:
            store.objects(EVENT).delete("a", "default")
        (again,) = create(cluster, named("a", message="another"))
        eventually(lambda: stored(bus)["a"].message == "another")
    assert stored(bus)["a"].metadata.uid == again.metadata.uid


def test_the_cluster_may_go_and_come_back(bus: Bus, cluster: Bus, tmp_path: Path) -> None:
    told: list[str] = []
    with serving(cluster) as url:
        kubeconfig = write_kubeconfig(tmp_path / "config", url)
        port = int(url.rpartition(":")[2])
        create(cluster, named("a"))
        running = importing(bus, kubeconfig, on_change=lambda reason, _message: told.append(reason))
        importer = running.__enter__()
        eventually(lambda: counts(bus) == {"a": 1})
    try:
        create(cluster, named("b"))
        eventually(lambda: "ClusterUnreachable" in told)
        assert importer.loop_health()[0].gauges["leader"] == 1.0
        with serving(cluster, port=port):
            eventually(lambda: counts(bus) == {"a": 1, "b": 1})
            eventually(lambda: told == ["ClusterUnreachable", "ClusterReachable"])
    finally:
        running.__exit__(None, None, None)
    assert figures(importer)["lists"] == 1


def test_two_replicas_write_each_event_once_and_one_takes_over(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    with importing(bus, kubeconfig, identity="two") as two:
        with importing(bus, kubeconfig, identity="one") as one:
            create(cluster, named("a"), named("b"))
            eventually(lambda: counts(bus) == {"a": 1, "b": 1})
            leaders = [each.loop_health()[0].gauges["leader"] for each in (one, two)]
            assert leaders in ([0.0, 1.0], [1.0, 0.0])
        create(cluster, named("c"))
        repeat(cluster, "a", 3)
        eventually(lambda: counts(bus) == {"a": 3, "b": 1, "c": 1})
    assert figures(one)["written"] + figures(two)["written"] == 4


def test_an_api_worker_of_the_same_bus_is_refused(cluster: Bus, kubeconfig: Path) -> None:
    create(cluster, named("a"))
    codes: list[int] = []
    with importing(cluster, kubeconfig, end=codes.append) as importer:
        eventually(lambda: codes == [2])
    assert figures(importer)["lists"] == 0


def test_events_that_have_passed_this_bus_are_dropped_and_counted(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    def through(name: str, path: str) -> Event:
        event = named(name)
        return replace(event, metadata=replace(event.metadata, annotations={"eventbus.dev/bus-path": path}))

    create(cluster, through("back", f"{bus.id},other"), through("far", "a,b,c,d"), through("control", "a,b"))
    with importing(bus, kubeconfig) as importer:
        eventually(lambda: "control" in stored(bus))
        eventually(lambda: figures(importer)["own"] == 2)
    assert list(stored(bus)) == ["control"]
    assert stored(bus)["control"].metadata.annotations["eventbus.dev/bus-path"] == f"a,b,{cluster.id}"


def test_events_that_the_bus_itself_has_exported_to_the_cluster_are_dropped(
    bus: Bus, cluster: Bus, kubeconfig: Path
) -> None:
    own, foreign = (
        make_sink(f"kubernetes:{kubeconfig}", {}, timeout_s=60, bus_id=bus_id) for bus_id in (bus.id, "elsewhere")
    )
    for sink, name in ((own, "own"), (foreign, "foreign")):
        event = named(name)
        sink.create(replace(event, metadata=replace(event.metadata, uid="p:1", resource_version="7")))
        sink.close()
    with importing(bus, kubeconfig) as importer:
        eventually(lambda: "foreign" in stored(bus) and figures(importer)["own"] == 1)
    assert list(stored(bus)) == ["foreign"]


def test_only_a_namespace_and_matching_events_are_imported(bus: Bus, cluster: Bus, kubeconfig: Path) -> None:
    shop = make_reference(namespace="shop")
    create(
        cluster,
        named("quiet", involved_object=shop),
        named("elsewhere", type="Warning"),
        named("loud", involved_object=shop, type="Warning"),
    )
    with importing(bus, kubeconfig, namespace="shop", match=['type="Warning"']) as importer:
        eventually(lambda: figures(importer)["unmatched"] == 1)
        eventually(lambda: list(stored(bus)) == ["loud"])


def test_the_name_of_a_recorded_event_is_refused_and_counted(
    embedded_url: str, prefix: str, cluster: Bus, kubeconfig: Path
) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    recorder = EventBroadcaster(bus.url, settings=Settings(prefix=bus.prefix))
    recorder.new_recorder("kubelet").event(make_reference(), "Normal", "Started", "here")
    recorder.shutdown(30)
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20)
    runner.start()
    try:
        eventually(lambda: stored(bus))
    finally:
        runner.stop(30)
    [(name, event)] = stored(bus).items()
    create(cluster, named(name, message="there"), named("other"))
    with importing(bus, kubeconfig) as importer:
        eventually(lambda: "other" in stored(bus) and figures(importer)["refused"] == 1)
    assert stored(bus)[name] == event
