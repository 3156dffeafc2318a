"""Rows of a sink whose events came back under another uid, after Redis has lost its last writes; and no others.

Elasticsearch and ClickHouse are strict stand-ins.
"""

from __future__ import annotations

import itertools
import shutil
import time as real_time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg
import pytest

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import open_bus
from eventbus.export.exporter import PartitionExporter
from eventbus.export.sinks import DeletingSink, SinkWrite, Verb, make_sink
from eventbus.export.sinks.postgres.sink import PostgresSink
from eventbus.model.event import Event, ObjectMeta
from eventbus.settings import Options
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment
from tests.builders import make_event, make_reference
from tests.functions.partition import Partition
from tests.functions.servers import own_server
from tests.support.clickhouse_server import ClickHouse
from tests.support.elasticsearch_server import Elasticsearch
from tests.support.exporting import (
    MemoryBatchSink,
    OwnTime,
    close,
    forget_the_newest_version,
    make_exporter,
    run_until_idle,
    status_of,
)
from tests.support.harness import append_only_bytes, lose_tail
from tests.support.strict_stores import STRICT_STORES, StrictStore
from tests.support.webhook_server import receiving
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("postgres")

#: Recorders make names of the time.
_NAMES = itertools.count(real_time.time_ns())
LIFE_S = Options().event_ttl_s


#: URL of a sink → its store.
STORES: dict[str, StrictStore] = {}
#: What is the exporter's is tested with one sink; what is the sinks', with all that can remove rows.
every_sink = pytest.mark.parametrize("url", ["postgres", "elasticsearch", "clickhouse"], indirect=True)
only_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    sink = getattr(request, "param", "elasticsearch")
    if sink == "postgres":
        yield request.getfixturevalue("database_url")
        return
    store = STRICT_STORES[sink]()
    with receiving(store.service) as port:
        url = store.url(port)
        STORES[url] = store
        yield url
        del STORES[url]


@pytest.fixture
def partition(embedded_url: str, prefix: str) -> Iterator[Partition]:
    """Three similar messages are combined."""
    made = Partition(embedded_url, prefix, burst=1_000, max_events=3)
    yield made
    made.close()


@pytest.fixture
def time() -> OwnTime:
    return OwnTime()


class ExporterTo(Protocol):
    """Make an exporter of a bus's partition to the sink of *url*; it has the lease."""

    def __call__(self, url: str, partition: Partition, **options: Any) -> PartitionExporter: ...


@pytest.fixture
def exporter_to(partition: Partition, url: str, time: OwnTime) -> Iterator[ExporterTo]:
    """Closes what it has made, before bus and database go."""
    made: list[PartitionExporter] = []

    def make(url: str, partition: Partition, **options: Any) -> PartitionExporter:
        environ = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"} | (STORES[url].environ if url in STORES else {})
        sink = make_sink(url, environ, name="memory", bus_id=partition.bus.id)
        assert isinstance(sink, DeletingSink)
        made.append(make_exporter(partition.bus, sink, time, **options))
        assert made[-1].acquire()
        return made[-1]

    yield make
    for exporter in made:
        close(exporter)


@pytest.fixture
def exporter(exporter_to: ExporterTo, partition: Partition, url: str) -> PartitionExporter:
    return exporter_to(url, partition)


def happened(number: int, message: str = "", *, ago_s: float = 0, field_path: str = "") -> Event:
    """Something about object *number*."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    about = make_reference(name=f"pod-{number}", field_path=field_path)
    return make_event(
        metadata=ObjectMeta(name=f"{about.name}.{next(_NAMES):x}", namespace="default"),
        involved_object=about,
        message=message or f"message {number}",
        first_timestamp=at,
        last_timestamp=at,
    )


def record(partition: Partition, producer: str, *events: Event) -> None:
    """A batch of *producer*, published and correlated."""
    partition.publish(*events, producer=producer)
    partition.record_deliveries(partition.reader().read(0), at_ms=real_time.time_ns() // 1_000_000)


class Tail:
    """What a partition's keys held when this was made: `lose` has them as they were then, as a cut file does."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._keys = {key: partition.admin.dump(key) for key in self._names()}

    def lose(self) -> None:
        for key in self._names():
            self._partition.admin.delete(key)
        for key, value in self._keys.items():
            self._partition.admin.restore(key, 0, value)
        forget_the_newest_version(self._partition)
        self._partition.forget_producers()

    def _names(self) -> list[bytes]:
        return list(self._partition.admin.scan_iter(match=f"{self._partition.bus.prefix}:*", count=1000))


def rows(url: str) -> dict[str, int]:
    """uid → count of every event, and the last one of those with several."""
    if url in STORES:
        found = [delivery_id.rpartition("/") for delivery_id in STORES[url].ids]
        return {uid: max(int(count) for other, _, count in found if other == uid) for uid, _, _ in found}
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT uid, count FROM eventbus_events").fetchall())


def stored(partition: Partition) -> dict[str, int]:
    return {event.metadata.uid: event.count for event in partition.stored()}


def lose_a_tail(partition: Partition, exporter: PartitionExporter, *events: Event) -> None:
    """*events* of producer a are exported, and then Redis has them no more."""
    record(partition, "first", happened(0))
    run_until_idle(exporter)
    tail = Tail(partition)
    record(partition, "a", *events)
    run_until_idle(exporter)
    tail.lose()


def go_on(exporter: PartitionExporter) -> None:
    """After Redis was away: the lease is taken anew, and everything read."""
    exporter._let_go()
    assert exporter.acquire()
    run_until_idle(exporter)


@every_sink
def test_a_row_goes_when_its_event_comes_back_under_another_uid(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    lose_a_tail(partition, exporter, happened(1), happened(2))
    assert len(rows(url)) == 3
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition) | {"a:2": 1}, "nobody has sent the other one again"
    record(partition, "a", happened(1, ago_s=2), happened(2, ago_s=2))
    run_until_idle(exporter)
    assert rows(url) == stored(partition)
    assert len(rows(url)) == 3
    assert (status_of(partition.bus).deleted, status_of(partition.bus).kept) == (1, 0)


def test_a_row_goes_when_its_event_is_combined_with_similar_ones_now(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    lose_a_tail(partition, exporter, *(happened(1, f"try {number}") for number in range(5)))
    assert len(rows(url)) == 1 + 3
    record(partition, "b", *(happened(1, f"try {number}", ago_s=1) for number in reversed(range(5))))
    go_on(exporter)
    assert rows(url) == stored(partition)


@pytest.mark.parametrize("moment", ["before anything is sent again", "before the rows are removed"])
def test_another_worker_goes_on_with_what_was_found(
    partition: Partition, exporter: PartitionExporter, exporter_to: ExporterTo, url: str, moment: str
) -> None:
    lose_a_tail(partition, exporter, happened(1))
    record(partition, "b", happened(7))
    if moment == "before anything is sent again":
        go_on(exporter)
        exporter._let_go()
        record(partition, "b", happened(1, ago_s=1))
    else:
        exporter._let_go()
        assert exporter.acquire()
        record(partition, "b", happened(1, ago_s=1))
        exporter._lost_rows.remove = lambda: (_ for _ in ())  # type: ignore[method-assign,return-value,assignment]
        run_until_idle(exporter)
        assert "a:1" in rows(url)
    exporter._store.release()
    other = exporter_to(url, partition, consumer="two")
    run_until_idle(other)
    assert rows(url) == stored(partition)


def test_what_comes_back_under_its_own_uid_stays(partition: Partition, exporter: PartitionExporter, url: str) -> None:
    lose_a_tail(partition, exporter, happened(1), happened(2))
    record(partition, "a", happened(1, ago_s=1), happened(2, ago_s=1))
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition)
    assert len(rows(url)) == 3
    assert status_of(partition.bus).deleted == 0


def test_what_nobody_sends_again_stays_and_is_counted(
    partition: Partition, exporter: PartitionExporter, url: str, time: OwnTime
) -> None:
    lose_a_tail(partition, exporter, happened(1), happened(2))
    later = happened(1, ago_s=-61)  # something new, after all that was lost has been sent again
    record(partition, "b", happened(3), later)
    go_on(exporter)
    assert {"a:1", "a:2"} < set(rows(url))
    time.sleep(LIFE_S + 1)
    record(partition, "b", happened(4))
    run_until_idle(exporter)
    assert {"a:1", "a:2"} < set(rows(url))
    assert (status_of(partition.bus).deleted, status_of(partition.bus).kept) == (0, 2)


@only_postgres
def test_a_role_that_may_not_delete_goes_on(partition: Partition, exporter_to: ExporterTo, url: str) -> None:
    role = f"writer_{partition.bus.prefix[-12:]}".replace("-", "_").replace(":", "_").lower()
    made = make_sink(url, {}, name="memory")
    assert isinstance(made, PostgresSink)
    made.open()
    made.close()
    with psycopg.connect(url, autocommit=True) as connection:
        query: Any = f"CREATE ROLE {role} LOGIN"
        connection.execute(query)
        try:
            query = f"GRANT SELECT, INSERT, UPDATE ON eventbus_events, eventbus_schema TO {role}"
            connection.execute(query)
            exporter = exporter_to(url.replace("//tester@", f"//{role}@"), partition)
            lose_a_tail(partition, exporter, happened(1))
            record(partition, "b", happened(1, ago_s=1))
            go_on(exporter)
            assert rows(url) == stored(partition) | {"a:1": 1}
            assert (status_of(partition.bus).deleted, status_of(partition.bus).kept) == (0, 1)
        finally:
            query = f"DROP OWNED BY {role}"
            connection.execute(query)
            query = f"DROP ROLE {role}"
            connection.execute(query)


@pytest.mark.parametrize(
    ("url", "forbidden", "kept"),
    [
        ("elasticsearch", "_refresh", 0),
        ("elasticsearch", "_search", 0),
        ("elasticsearch", "_delete_by_query", 1),
        ("clickhouse", "SELECT", 0),
        ("clickhouse", "DELETE", 1),
    ],
    indirect=["url"],
)
def test_an_export_without_the_right_to_find_or_delete_rows_goes_on(
    partition: Partition, exporter: PartitionExporter, url: str, forbidden: str, kept: int
) -> None:
    service = STORES[url].service
    assert isinstance(service, Elasticsearch | ClickHouse)
    service.forbidden.add(forbidden)
    lose_a_tail(partition, exporter, happened(1))
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition) | {"a:1": 1}
    assert (status_of(partition.bus).deleted, status_of(partition.bus).kept) == (0, kept)


@pytest.mark.parametrize("url", ["elasticsearch", "clickhouse"], indirect=True)
def test_rows_are_found_and_deleted_in_pages(
    partition: Partition, exporter: PartitionExporter, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("http_batch", "elasticsearch", "clickhouse"):
        monkeypatch.setattr(f"eventbus.export.sinks.{module}.PAGE_EVENTS", 2)
    lose_a_tail(partition, exporter, *map(happened, range(1, 6)))
    record(partition, "b", *(happened(number, ago_s=1) for number in range(1, 6)))
    go_on(exporter)
    assert rows(url) == stored(partition)
    assert status_of(partition.bus).deleted == 5


@pytest.mark.parametrize("url", ["elasticsearch", "clickhouse"], indirect=True)
def test_all_changes_of_an_event_go(partition: Partition, exporter: PartitionExporter, url: str) -> None:
    record(partition, "first", happened(0))
    run_until_idle(exporter)
    tail = Tail(partition)
    for _ in range(3):
        record(partition, "a", happened(1))
        run_until_idle(exporter)
    tail.lose()
    assert rows(url)["a:1"] == 3
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition)


def test_a_sink_that_cannot_delete_keeps_what_came_back(partition: Partition, time: OwnTime) -> None:
    sink = MemoryBatchSink()
    exporter = make_exporter(partition.bus, sink, time)
    assert exporter.acquire()
    lose_a_tail(partition, exporter, happened(1))
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert {event.metadata.uid for event in sink.rows.values()} == {*stored(partition), "a:1"}
    close(exporter)


@only_postgres
def test_after_a_cut_append_only_file_the_rows_are_what_the_store_has(short_path: Path, prefix: str, url: str) -> None:
    n, settings = 100, Settings(prefix=prefix)
    found = shutil.which("redis-server")
    with own_server(short_path, Path(found) if found else None) as server, ExitStack() as stack:
        redis = server.url or ""
        env = environment(redis, prefix) | {"EVENTBUS_EXPORT_TO": url}
        bus = open_bus(redis, settings)
        folder = short_path / "workers"
        folder.mkdir()
        stack.enter_context(Program("worker", "sink", env=env, folder=folder))
        stack.enter_context(Program("worker", "export", "--name", "memory", env=env, folder=folder))
        first, second = (EventBroadcaster(redis, settings=settings) for _ in range(2))
        stack.enter_context(second)

        def tell(broadcaster: EventBroadcaster, numbers: range) -> None:
            recorder = broadcaster.new_recorder("test")
            for number in numbers:
                about = ObjectReference("Pod", "default", f"web-{number}")
                recorder.event(about, "Normal", "Tested", "message")
            assert broadcaster.flush(60)

        def of_test() -> set[str]:
            query = "SELECT uid FROM eventbus_events WHERE object_kind = 'Pod'"
            with psycopg.connect(url) as connection:
                return {uid for (uid,) in connection.execute(query).fetchall()}

        def in_store() -> set[str]:
            with bus.client() as client, ObjectStore(bus, client) as store:
                return {event.metadata.uid for event in store.list("default").items}

        tell(second, range(n, n + 1))
        eventually(lambda: of_test(), despite=psycopg.Error)
        eventually(lambda: status_of(bus).lag == 0)
        kept = append_only_bytes(short_path)
        tell(first, range(n))
        eventually(lambda: len(of_test()) == n + 1)
        first.shutdown()  # so it sends nothing again, and its events come back with the uids of the other's
        tell(second, range(n))
        eventually(lambda: status_of(bus).lag == 0)
        lose_tail(server, short_path, keep=kept)
        tell(second, range(n + 1, n + 2))
        eventually(lambda: len(in_store()) == n + 2)
        eventually(lambda: of_test() == in_store())
        assert status_of(bus).deleted == n


# -- controls: nothing was lost that came back, and no row goes --------------------------------------------------------


def test_control_events_that_expire_during_an_outage_stay(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    lose_a_tail(partition, exporter, happened(1))
    record(partition, "c", happened(2), happened(3))
    partition.expire(in_ms=2 * LIFE_S * 1000)
    assert not stored(partition)
    record(partition, "b", happened(4), happened(2), happened(3))
    before = rows(url)
    go_on(exporter)
    assert rows(url).keys() > before.keys()
    assert status_of(partition.bus).deleted == 0


def test_control_all_that_was_written_before_a_flush_stays(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    record(partition, "a", happened(1), happened(2))
    run_until_idle(exporter)
    before = rows(url)
    for key in partition.admin.scan_iter(match=f"{partition.bus.prefix}:*", count=10_000):
        partition.admin.delete(key)
    partition.bus.open_partition(partition.admin, 0)
    partition.forget_producers()
    record(partition, "b", happened(2, ago_s=1), happened(1, ago_s=1))
    exporter.idle = False
    while not exporter.idle:  # first it finds the loss, and then that its lease is gone
        exporter.turn()
    assert rows(url).keys() > before.keys()
    assert status_of(partition.bus).deleted == 0


@every_sink
def test_control_rows_of_another_bus_in_the_same_table_stay(
    partition: Partition, exporter: PartitionExporter, exporter_to: ExporterTo, url: str, embedded_url: str
) -> None:
    other = Partition(embedded_url, f"{partition.bus.prefix}-other", burst=1_000)
    theirs = exporter_to(url, other)
    record(partition, "first", happened(0))
    run_until_idle(exporter)
    tail = Tail(partition)
    record(partition, "a", happened(1))
    run_until_idle(exporter)
    record(other, "theirs", happened(5), happened(6))
    run_until_idle(theirs)
    tail.lose()
    record(partition, "b", happened(5, ago_s=1), happened(6, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition) | stored(other) | {"a:1": 1}
    other.close()


def test_control_an_export_that_returns_after_two_hours_removes_nothing(
    partition: Partition, exporter: PartitionExporter, url: str, time: OwnTime
) -> None:
    lose_a_tail(partition, exporter, happened(1), happened(2))
    before = rows(url)
    time.sleep(2 * LIFE_S)
    record(partition, "b", happened(1), happened(2))
    go_on(exporter)
    assert rows(url).keys() > before.keys()
    assert status_of(partition.bus).deleted == 0


def test_control_an_event_that_was_deleted_stays_though_similar_ones_are_combined(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    record(partition, "a", *(happened(1, f"try {number}") for number in range(2)))
    run_until_idle(exporter)
    event = next(event for event in partition.stored() if event.message == "try 0")
    partition.store.delete(event.metadata.namespace, event.metadata.name)
    lose_a_tail(partition, exporter, happened(2))
    record(partition, "b", *(happened(1, f"try {number}", ago_s=1) for number in range(2, 4)))
    go_on(exporter)
    assert rows(url) == stored(partition) | {event.metadata.uid: 1, "a:3": 1}
    assert status_of(partition.bus).deleted == 0


def test_another_message_or_container_is_another_event(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    lose_a_tail(partition, exporter, happened(1, "one", field_path="spec.containers{one}"))
    record(partition, "b", happened(1, "another", ago_s=1, field_path="spec.containers{one}"))
    record(partition, "b2", happened(1, "one", ago_s=1, field_path="spec.containers{two}"))
    go_on(exporter)
    assert rows(url) == stored(partition) | {"a:1": 1}
    assert status_of(partition.bus).deleted == 0


@only_postgres
def test_rows_that_were_written_before_they_had_an_origin_stay(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    lose_a_tail(partition, exporter, happened(1))
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE eventbus_events SET origin = ''")
    record(partition, "b", happened(1, ago_s=1))
    go_on(exporter)
    assert rows(url) == stored(partition) | {"a:1": 1}


@every_sink
def test_only_the_change_with_this_version_is_deleted(
    partition: Partition, exporter: PartitionExporter, url: str
) -> None:
    sink: Any = exporter._sink
    event = make_event()
    metadata = msgspec.structs.replace(event.metadata, uid="it's \\', 1", resource_version="5")
    written = msgspec.structs.replace(event, metadata=metadata)
    other = msgspec.structs.replace(event, metadata=msgspec.structs.replace(metadata, resource_version="9"))
    sink.write([SinkWrite.of(Verb.CREATE, written, origin="bus/0")])
    since = datetime(2020, 1, 1, tzinfo=UTC)
    assert sink.held("bus/1", after=0, until=9, since=since, most=10) == []
    assert sink.held("bus/0", after=5, until=9, since=since, most=10) == []
    assert sink.held("bus/0", after=4, until=5, since=datetime.now(UTC), most=10) == []
    assert sink.held("bus/0", after=4, until=5, since=since, most=10) == [written]
    assert sink.delete([other]) == 0
    assert sink.delete([written]) == 1
    assert rows(url) == {}
