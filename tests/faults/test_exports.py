"""Row 32: every sink through two kills, cut replies and thirty seconds without its system, 10 000 events each."""

from __future__ import annotations

import gzip
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psycopg
import pytest

from eventbus import Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.health.export_status import export_status
from eventbus.errors import SinkUnreachable
from eventbus.export.lease import LeaseLost
from eventbus.export.rules import Outage
from eventbus.export.sink_writer import ExportStopped
from eventbus.export.sinks import SinkWrite, Verb, make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.export.sinks.kafka import KafkaSink
from eventbus.export.sinks.nats import NatsSink
from eventbus.export.sinks.postgres.schema import UPSERT
from eventbus.export.sinks.postgres.sink import PostgresSink
from eventbus.export.sinks.s3 import S3Sink, object_name
from eventbus.model.event import Event
from tests.builders import make_event
from tests.faults.checker import Verdict
from tests.faults.conftest import Harm, Note, NoteControl
from tests.functions.partition import Partition
from tests.integration.test_http_own import stored as recorded_in
from tests.support.api_in_process import serving as serving_api
from tests.support.api_server import ApiServer, serving
from tests.support.export_survival import survive
from tests.support.export_systems import STORES, SYSTEMS, another_bus, running
from tests.support.exporting import MemorySink, OwnTime, about, close, make_exporter, run_until_idle
from tests.support.kafka_server import KafkaServer
from tests.support.kubeconfig import write_kubeconfig
from tests.support.nats_server import NatsServer, StoredMessages
from tests.support.postgres_server import PostgresServer
from tests.support.s3_server import S3Store
from tests.support.strict_stores import STRICT_STORES
from tests.support.webhook_server import Answer, Endpoint, receiving

FAULT = "32 export"
EVENTS, DOWN_S = 10_000, 30


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SYSTEMS)
def test_ten_thousand_events_end_in_the_sink_with_their_final_counts(
    name: str, embedded_url: str, prefix: str, tmp_path: Path, note: Note
) -> None:
    with running(name, tmp_path, events=EVENTS) as system:
        survived = survive(
            system, url=embedded_url, prefix=prefix, folder=tmp_path, events=EVENTS, down_s=DOWN_S, within_s=300
        )
    note(
        f"{FAULT}, {name}",
        Verdict(accepted=sum(survived.wanted.values()), missing=survived.wrong, recovery_s=survived.recovery_s),
        f"another sink had its {EVENTS} events after {survived.other_up_s:.1f} s while this one lived, after"
        f" {survived.other_down_s:.1f} s while it was down",
    )
    survived.assert_good()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_events_go_through_otlp_to_another_bus_with_their_final_counts(
    embedded_url: str, prefix: str, tmp_path: Path, note: Note
) -> None:
    with another_bus(embedded_url, prefix, tmp_path) as system:
        survived = survive(
            system, url=embedded_url, prefix=prefix, folder=tmp_path, events=EVENTS, down_s=DOWN_S, within_s=300
        )
    verdict = Verdict(accepted=sum(survived.wanted.values()), missing=survived.wrong, recovery_s=survived.recovery_s)
    note(f"{FAULT}, OTLP to another bus", verdict, "the API worker of the other bus is killed")
    survived.assert_good()


@pytest.mark.long
@pytest.mark.parametrize("once", [True, False], ids=["once", "control"])
def test_records_are_counted_twice_only_without_their_uids(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, embedded_url: str, prefix: str, once: bool
) -> None:
    if not once:
        monkeypatch.setattr("eventbus.api.eventbus_v1.log_records.RECORD_UID", "no such attribute")
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    with serving_api(bus) as url:
        sink = make_sink(f"otlp{url.removeprefix('http')}", {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"})
        assert isinstance(sink, HttpBatchSink)
        events = [_stored(number, 1, uid=f"producer:{number}") for number in range(1, 4)]
        for some in (events[:2], events[1:]):  # the second worker has another batch
            sink.write([SinkWrite.of(Verb.CREATE, event) for event in some])
        sink.close()
    found = len(recorded_in(bus))
    if once:
        assert found == 3
    else:
        harm = Harm(found == 4, f"{found - 3} duplicate")
        note_control(f"{FAULT}, OTLP to another bus", harm, "no uids of records")


@pytest.mark.long
@pytest.mark.parametrize("once", [True, False], ids=["once", "control"])
def test_messages_of_nats_are_stored_twice_only_without_their_ids(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, once: bool
) -> None:
    if not once:
        monkeypatch.setattr("eventbus.export.sinks.nats.MESSAGE_ID", "No-Such-Header")
    server = NatsServer()
    try:
        server.start()
        sink = make_sink(f"nats://127.0.0.1:{server.port}", {})
        assert isinstance(sink, NatsSink)
        events = [_stored(number, 1, uid=f"producer:{number}") for number in range(1, 4)]
        for some in (events[:2], events[1:]):  # the second worker has another batch
            sink.write([SinkWrite.of(Verb.CREATE, event) for event in some])
        sink.close()
        found = StoredMessages(server).total
    finally:
        server.close()
    if once:
        assert found == 3
    else:
        note_control(f"{FAULT}, nats", Harm(found == 4, f"{found - 3} duplicate"), "no ids of messages")


@pytest.mark.long
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "control"])
def test_a_message_for_a_broker_that_is_away_is_lost_only_if_the_sink_does_not_wait_for_the_acknowledgement(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, waits: bool
) -> None:
    if not waits:
        monkeypatch.setattr(KafkaSink, "_finish", lambda _sink, batch: [write.event for write in batch.writes])
    server = KafkaServer()
    try:
        sink = make_sink(f"kafka://{server.address}", {}, timeout_s=1)
        assert isinstance(sink, KafkaSink)
        server.stop()
        lost = False
        with suppress(SinkUnreachable):
            sink.create(_stored(1, 1))
            lost = True
        sink.close()  # the worker dies
    finally:
        server.close()
    if waits:
        assert not lost
    else:
        note_control(f"{FAULT}, kafka", Harm(lost, "1 lost"), "no wait for the acknowledgement")


@pytest.mark.long
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "control"])
def test_a_batch_of_syslog_that_nobody_reads_is_lost_only_if_the_sink_does_not_wait_for_the_end(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, waits: bool
) -> None:
    if not waits:
        monkeypatch.setattr("eventbus.export.sinks.syslog._finish", lambda _line: None)
    lost = False
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it accepts, and dies before it reads
        sink = make_sink(f"syslog://127.0.0.1:{listener.getsockname()[1]}", {})
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        with suppress(SinkUnreachable):
            sink.create(_stored(1, 1))
            lost = True
        thread.join(30)
    if waits:
        assert not lost
    else:
        note_control(f"{FAULT}, syslog", Harm(lost, "1 lost"), "no wait for the end of the connection")


@pytest.mark.long
@pytest.mark.parametrize("digest", [True, False], ids=["digest", "control"])
def test_an_object_of_s3_is_overwritten_by_fewer_events_only_if_its_name_has_no_digest(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, digest: bool
) -> None:
    if not digest:
        name = "eventbus.export.sinks.s3.object_name"
        monkeypatch.setattr(name, lambda writes, body: object_name(writes, body).rpartition("-")[0])
    store = S3Store()
    environ = {"EVENTBUS_S3_ACCESS_KEY_ID": "key", "EVENTBUS_S3_SECRET_ACCESS_KEY": "secret"}
    with receiving(store) as port:
        sink = make_sink(f"s3+http://127.0.0.1:{port}/events", environ)
        assert isinstance(sink, S3Sink)
        for numbers in ((1, 2, 3), (1, 3)):  # the export starts again, and the second event has expired
            events = [_stored(number, 1, uid=f"producer:{number}") for number in numbers]
            sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])
        sink.close()
    kept = {line for body in store.objects.values() for line in gzip.decompress(body).splitlines()}
    if digest:
        assert len(kept) == 3
    else:
        note_control(f"{FAULT}, s3", Harm(len(kept) == 2, f"{3 - len(kept)} lost"), "no digest in the name")


# -- controls ----------------------------------------------------------------------------------------------------


@pytest.fixture
def partition(embedded_url: str, prefix: str) -> Iterator[Partition]:
    made = Partition(embedded_url, prefix, burst=1_000, max_events=1_000)
    yield made
    made.close()


@pytest.mark.long
def test_control_rows_without_the_guard_of_the_version(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl
) -> None:
    def count_after_a_late_write(url: str) -> int:
        sink = make_sink(url, {})
        assert isinstance(sink, PostgresSink)
        for rv, count in ((2, 2), (1, 1)):  # the second is of a worker that was frozen
            sink.write([SinkWrite.of(Verb.UPDATE, _stored(rv, count))])
        sink.close()
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT count FROM eventbus_events").fetchone()
            connection.execute("TRUNCATE eventbus_events")
        assert found is not None
        return int(found[0])

    server = PostgresServer()
    try:
        url = server.start()
        assert count_after_a_late_write(url) == 2
        unguarded = UPSERT.replace("old.rv < EXCLUDED.rv AND", "")
        assert unguarded != UPSERT
        monkeypatch.setattr("eventbus.export.sinks.postgres.sink.UPSERT", unguarded)
        count = count_after_a_late_write(url)
    finally:
        server.close()
    note_control(f"{FAULT}, postgres", Harm(count == 1, "an old count"), "no guard by the version")


@pytest.mark.long
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "control"])
def test_a_worker_is_robbed_only_where_nobody_waits_for_its_signs(
    partition: Partition, note_control: NoteControl, waits: bool
) -> None:
    time, system = OwnTime(), dict[str, Event]()
    first, second = (MemorySink(system=system) for _ in range(2))
    here, there = (
        make_exporter(partition.bus, sink, time, consumer=name, take_over_s=25.0 if waits else 0.0)
        for sink, name in ((first, "one"), (second, "two"))
    )
    partition.record(*[about(number) for number in range(10)])
    assert here.acquire()
    partition.record(*[about(number) for number in range(10)])

    def steal(_event: Event) -> None:
        first.fail = lambda _event: None
        there.acquire()
        if there.acquire():
            run_until_idle(there)

    first.fail = steal
    with suppress(LeaseLost):
        run_until_idle(here)
    delivered = Counter(first.deliveries) + Counter(second.deliveries)
    doubles = sum(times - 1 for times in delivered.values())
    for exporter in (here, there):
        close(exporter)
    if waits:
        assert not doubles
    else:
        note_control(f"{FAULT}, file", Harm(doubles > 0, f"{doubles} duplicate"), "the lease taken at once")


@pytest.mark.long
def test_control_a_cluster_without_the_guard_of_the_version(
    monkeypatch: pytest.MonkeyPatch, note_control: NoteControl, tmp_path: Path
) -> None:
    def count_after_a_late_write() -> int:
        api = ApiServer()
        with serving(api) as url:
            sink = make_sink(f"kubernetes:{write_kubeconfig(tmp_path / 'kubeconfig', url)}", {})
            for rv, count in ((2, 2), (1, 1)):  # the second is of a worker that was frozen
                sink.update(_stored(rv, count))
            sink.close()
        (found,) = api.objects.values()
        return int(found["count"])

    assert count_after_a_late_write() == 2
    monkeypatch.setattr("eventbus.export.sinks.kubernetes._Target.is_no_newer_than", lambda _target, _found: False)
    count = count_after_a_late_write()
    note_control(f"{FAULT}, kubernetes", Harm(count == 1, "an old count"), "no guard by the version")


@pytest.mark.long
@pytest.mark.parametrize("name", ["webhook", "webhook-batch", *STORES])
@pytest.mark.parametrize("outage", ["pause", "count"])
def test_an_outage_buries_nothing_unless_it_counts(
    partition: Partition, note_control: NoteControl, outage: str, name: str
) -> None:
    store = STRICT_STORES[name]() if name in STORES else None
    endpoint, time = store.service if store else Endpoint(), OwnTime()
    endpoint.answers.extend([Answer(503)] * 1_000)
    with receiving(endpoint) as port:
        mode = "batch" if name == "webhook-batch" else "structured"
        environ = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1", "EVENTBUS_WEBHOOK_MODE": mode}
        url = store.url(port) if store else f"http://127.0.0.1:{port}"
        sink = make_sink(url, environ | (store.environ if store else {}), name="hook")
        exporter = make_exporter(partition.bus, sink, time, outage=Outage(outage))
        partition.record(*[about(number) for number in range(10)])
        time.end_s = 600
        with suppress(ExportStopped):
            assert exporter.acquire()
            run_until_idle(exporter)
        (status,) = export_status(partition.bus, partition.admin)
        close(exporter)
    if outage == "count":
        note_control(f"{FAULT}, {name}", Harm(status.dead == 10, f"{status.dead} lost"), "outage=count")
    else:
        assert status.dead == 0


def _stored(rv: int, count: int, *, uid: str = "producer:1") -> Event:
    event = make_event(count=count)
    metadata = msgspec.structs.replace(event.metadata, uid=uid, resource_version=str(rv))
    return msgspec.structs.replace(event, metadata=metadata)
