"""The numbers of a bus, against what was done to it: lag event by event, who holds the stream, who is alive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import GroupPolicy, beat_command
from eventbus.broker.groups import delete_group
from eventbus.broker.health import status as status_module
from eventbus.broker.health.doctor import examine
from eventbus.broker.health.findings import Severity
from eventbus.broker.health.status import BusStatus, Group, execute, read_status
from eventbus.broker.stream_reader import GroupReader
from eventbus.errors import BusUnavailable
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from tests.functions.cluster import Cluster
from tests.support.harness import bus_with, settings_of
from tests.support.ports import free_port
from tests.waiting import eventually

PODS = [ObjectReference("Pod", "default", f"web-{number}", f"uid-{number}", "v1") for number in range(40)]


@pytest.fixture(autouse=True)
def _look_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests that say so have workers that beat between two looks."""
    monkeypatch.setattr(status_module, "HEARTBEAT_S", 0.01)


@pytest.fixture
def bus(any_server_url: str, settings: Settings) -> Bus:
    return open_bus(any_server_url, settings)


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    client = bus.client()
    yield client
    client.close()


def publish(bus: Bus, settings: Settings, *batches: int) -> None:
    """Batches of so many events each, as one recorder after the other sends them."""
    for n in batches:
        with EventBroadcaster(bus.url, settings=settings) as broadcaster:
            recorder = broadcaster.new_recorder("test")
            for number in range(n):
                recorder.event(PODS[number % len(PODS)], "Normal", "Tested", "message")
            assert broadcaster.flush(60)


def group_of(status: BusStatus, name: str) -> Group:
    return next(group for group in status.groups if group.name == name)


def take(client: Any, bus: Bus, group: str, worker: str, count: int) -> list[bytes]:
    reply = client.xreadgroup(group, worker, {bus.keys[0].incoming: ">"}, count=count)
    return [entry_id for entry_id, _ in reply[0][1]]


def test_lag_is_what_was_not_read_and_what_is_pending(bus: Bus, settings: Settings, client: Any) -> None:
    for n in (3, 5, 7):
        publish(bus, settings, n)
    entries = client.xlen(bus.keys[0].incoming)
    assert group_of(read_status(bus, client), "sink").lag == 15
    ids = take(client, bus, "sink", "w", entries - 1)
    assert group_of(read_status(bus, client), "sink").lag == 15
    sizes = dict((entry, int(fields[b"n"])) for entry, fields in client.xrange(bus.keys[0].incoming))
    # in the middle: what is acknowledged behind a pending batch counts no longer
    client.xack(bus.keys[0].incoming, "sink", ids[-1])
    found = group_of(read_status(bus, client), "sink")
    assert (found.lag, found.lag_exact, found.pending) == (15 - sizes[ids[-1]], True, len(ids) - 1)


def test_a_group_that_has_done_everything_is_not_behind(bus: Bus, settings: Settings, client: Any) -> None:
    publish(bus, settings, 4)
    ids = take(client, bus, "sink", "w", 100)
    client.xack(bus.keys[0].incoming, "sink", *ids)
    found = group_of(read_status(bus, client), "sink")
    assert (found.lag, found.behind_s, found.pending, found.holds) == (0, 0.0, 0, ())


def test_with_many_batches_pending_the_lag_is_a_bound(
    bus: Bus, settings: Settings, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.broker.health.status.PENDING_OPENED", 1)
    publish(bus, settings, 2, 3, 4)
    take(client, bus, "sink", "w", 100)
    found = group_of(read_status(bus, client), "sink")
    assert (found.lag, found.lag_exact) == (9, False)


def test_lag_in_seconds_is_the_age_of_the_oldest(bus: Bus, settings: Settings, client: Any) -> None:
    publish(bus, settings, 1)
    time.sleep(0.2)
    publish(bus, settings, 1)
    assert group_of(read_status(bus, client), "sink").behind_s >= 0.2


def test_the_group_with_the_lowest_floor_holds_the_stream(bus: Bus, settings: Settings, client: Any) -> None:
    bus.open_partition(client, 0, "audit", GroupPolicy.WAIT, "0")
    publish(bus, settings, 3, 3)
    take(client, bus, "sink", "w", 1)
    ids = take(client, bus, "sink", "w", 100)
    client.xack(bus.keys[0].incoming, "sink", *ids)
    status = read_status(bus, client)
    assert status.partitions[0].holder in ("sink", "audit")  # both still need the first entry
    pending = client.xpending_range(bus.keys[0].incoming, "sink", "-", "+", 100)
    client.xack(bus.keys[0].incoming, "sink", *(row["message_id"] for row in pending))
    status = read_status(bus, client)
    assert status.partitions[0].holder == "audit"
    assert group_of(status, "audit").holds == (0,)
    assert group_of(status, "audit").policy == "WAIT"


def test_fullness_is_measured_against_the_options(any_server_url: str, settings: Settings) -> None:
    bus = bus_with(any_server_url, settings, incoming_bytes=2**20, max_stored=100, max_records=500)
    publish(bus, settings, 40)
    client = bus.client()
    (partition,) = read_status(bus, client).partitions
    client.close()
    assert partition.incoming.bound == 2**20
    assert partition.incoming.used is not None
    assert 0 < partition.incoming.used < 40 * 1000, "alike events are compressed together"
    assert (partition.stored.bound, partition.records.bound) == (100, 500)


def test_counters_are_those_of_all_partitions(server_url: str, prefix: str) -> None:
    settings = settings_of(prefix, partitions=3)
    bus = open_bus(server_url, settings)
    publish(bus, settings, 40)
    client = bus.client()
    with EventBroadcaster(server_url, settings=settings) as sink:
        sink.start_recording_to_sink()
        eventually(lambda: read_status(bus, client).counters["recorded"] == 40)
        status = read_status(bus, client)
    client.close()
    assert len(status.partitions) == 3
    assert min(partition.published or 0 for partition in status.partitions) > 0
    assert status.counters["published"] == status.counters["created"] == 40
    assert sum(partition.stored.used or 0 for partition in status.partitions) == 40
    (worker,) = group_of(status, "sink").workers  # one process, three partitions
    assert worker.alive


def test_a_worker_that_says_nothing_is_dead(
    bus: Bus, client: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.broker.health.status.ALIVE_S", 0.05)
    monkeypatch.setattr(status_module, "HEARTBEAT_S", 0.2)
    publish(bus, settings, 1)
    take(client, bus, "sink", "silent", 1)
    time.sleep(0.1)
    (worker,) = group_of(read_status(bus, client), "sink").workers
    assert (worker.name, worker.alive, worker.pending) == ("silent", False, 1)


def test_a_worker_that_has_left_what_it_was_given_is_dead_at_once(bus: Bus, client: Any, settings: Settings) -> None:
    publish(bus, settings, 1)
    leaving = GroupReader(
        bus=bus, client=client, partition=0, group="sink", consumer="leaving", policy=GroupPolicy.WAIT, start="0"
    )
    leaving.read(0, beat=True)
    assert group_of(read_status(bus, client), "sink").alive == 1
    leaving.leave()
    (worker,) = group_of(read_status(bus, client), "sink").workers
    assert (worker.name, worker.alive, worker.pending) == ("leaving", False, 1)


def test_a_worker_that_works_for_long_lives_by_its_heartbeat(
    bus: Bus, client: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.broker.health.status.ALIVE_S", 0.0)
    publish(bus, settings, 1)
    take(client, bus, "sink", "busy", 1)
    keep_alive(bus, "busy", monkeypatch)
    (worker,) = group_of(read_status(bus, client), "sink").workers
    assert worker.alive


def test_a_partition_without_a_living_sink_worker_is_unfed(
    any_server_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = open_bus(any_server_url, settings_of(prefix, partitions=2))
    client = bus.client()
    assert read_status(bus, client).unfed == [0, 1]
    keep_alive(bus, "hangs-on-the-other", monkeypatch)
    assert read_status(bus, client).unfed == [1]
    client.close()


def test_a_worker_that_was_never_given_anything_is_shown(
    bus: Bus, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_alive(bus, "waiting", monkeypatch)
    (worker,) = group_of(read_status(bus, client), "sink").workers
    assert (worker.name, worker.alive, worker.pending, worker.seen_s) == ("waiting", True, 0, None)


def keep_alive(bus: Bus, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink worker that beats once now, and once more between the two looks at its heartbeat."""

    def beat(_s: float) -> None:
        with bus.client() as own:
            own.execute_command(*beat_command(bus.keys[0], "sink", worker))

    monkeypatch.setattr(status_module, "time", SimpleNamespace(sleep=beat))
    beat(0)


def test_a_deleted_group_leaves_nothing_behind(bus: Bus, client: Any, settings: Settings) -> None:
    bus.open_partition(client, 0, "billing", GroupPolicy.DROP, "0")
    publish(bus, settings, 2)
    take(client, bus, "billing", "w", 1)
    keys = bus.keys[0]
    client.execute_command(*beat_command(keys, "billing", "w"))
    bus.functions(client, 0).trim(bus.options)
    bus.functions(client, 0).claim("billing", "heir", "w", "1")
    assert client.exists(keys.attempts + b"billing")
    assert delete_group(bus, client, "billing") == 1
    assert [group.name for group in read_status(bus, client).groups] == ["sink"]
    assert not [field for field in client.hkeys(keys.meta) if field.endswith(b":billing")]
    assert not [field for field in client.hkeys(keys.workers) if field.startswith(b"billing/")]
    assert not client.exists(keys.attempts + b"billing")
    assert delete_group(bus, client, "billing") == 0


def test_a_destroyed_group_is_shown_and_can_be_deleted(bus: Bus, client: Any, settings: Settings) -> None:
    bus.open_partition(client, 0, "billing", GroupPolicy.WAIT, "0")
    publish(bus, settings, 2)
    client.xgroup_destroy(bus.keys[0].incoming, "billing")
    found = group_of(read_status(bus, client), "billing")
    assert (found.destroyed, found.lag, found.policy, found.workers) == (True, 2, "WAIT", ())
    assert not group_of(read_status(bus, client), "sink").destroyed
    delete_group(bus, client, "billing")
    assert [group.name for group in read_status(bus, client).groups] == ["sink"]


def test_a_stream_that_was_destroyed_does_not_stop_the_numbers(bus: Bus, client: Any, settings: Settings) -> None:
    publish(bus, settings, 2)
    client.delete(bus.keys[0].incoming)
    status = read_status(bus, client)
    assert status.groups == ()
    assert status.counters["published"] == 2


def test_entries_that_somebody_else_added_make_the_lag_unknown(bus: Bus, client: Any) -> None:
    client.xadd(bus.keys[0].incoming, {"foreign": "1"})
    assert group_of(read_status(bus, client), "sink").lag is None


def test_the_doctor_reports_the_other_nodes_of_a_cluster_when_one_does_not_answer(tmp_path: Path, prefix: str) -> None:
    with Cluster(tmp_path, primaries=2, replicas=False) as cluster:
        # The url has both nodes: either of them tells the slots.
        url = f"{cluster.url},127.0.0.1:{cluster.ports[1]}"
        settings = Settings(prefix=prefix, partitions=4)
        open_bus(url, settings)
        cluster.kill(1)
        findings = examine(url, settings, role=None)
    away = f"127.0.0.1:{cluster.ports[1]}"
    servers = [finding for finding in findings if finding.check == "server"]
    assert [finding.severity for finding in servers] == [Severity.OK, Severity.ERROR]
    assert away in servers[1].message
    functions = [finding for finding in findings if finding.check == "functions"]
    assert any(finding.severity is Severity.ERROR and away in finding.message for finding in functions)


def test_a_cluster_that_is_down_is_not_taken_for_one_without_keys(short_path: Path) -> None:
    config = {"cluster-enabled": "yes", "port": str(free_port()), "cluster-port": str(free_port())}
    server = EmbeddedServer(short_path, config=config)
    try:
        with make_client(server.start()) as node:
            pipe = node.pipeline(transaction=False)
            pipe.type(b"no node has its slot")
            with pytest.raises(BusUnavailable, match="the cluster is down"):
                execute(pipe)
    finally:
        server.stop()
