"""The sinks for Elasticsearch, ClickHouse, Splunk and Loki: what arrives, and the answers that are their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from eventbus.errors import ConfigError, EventRejected, NotSent, SinkError, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.elasticsearch import document_id
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.model.encoding.event_json import decode_core
from eventbus.model.event import Event
from tests.integration.test_sink_otlp import ALLOWED, body_of, stored
from tests.support.clickhouse_server import ClickHouse
from tests.support.elasticsearch_server import Elasticsearch
from tests.support.otlp_server import Loki
from tests.support.strict_stores import STRICT_STORES, StrictStore
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving

MOMENT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> StrictStore:
    return STRICT_STORES[request.param]()


@pytest.fixture
def sink(store: StrictStore) -> Iterator[HttpBatchSink]:
    with receiving(store.service) as port:
        made = make_sink(store.url(port), ALLOWED | store.environ, timeout_s=60)
        assert isinstance(made, HttpBatchSink)
        made.open()
        yield made
        made.close()


def write(sink: HttpBatchSink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])


def writes_of(store: StrictStore) -> list[Delivery]:
    return [delivery for delivery in store.service.deliveries if store.service.is_write(delivery)]


def opening_of(store: StrictStore) -> Delivery:
    (opening,) = [delivery for delivery in store.service.deliveries if not store.service.is_write(delivery)]
    return opening


only = pytest.mark.parametrize


@only("store", ["elasticsearch", "clickhouse", "splunk"], indirect=True)
def test_each_change_of_an_event_is_written_and_a_repeat_of_a_write_is_recognizable(
    store: StrictStore, sink: HttpBatchSink
) -> None:
    events = [stored(1), stored(2), stored(1, count=2)]
    assert write(sink, *events) == events
    assert store.read() == [
        ("web-0.1", "producer:1/1"),
        ("web-0.2", "producer:2/1"),
        ("web-0.1", "producer:1/2"),
    ]
    assert write(sink, *events) == events
    first, second = writes_of(store)
    assert second.body == first.body


# -- Elasticsearch -------------------------------------------------------------------------------------------------


@only("store", ["elasticsearch"], indirect=True)
def test_a_document_has_the_columns_and_the_whole_event(store: StrictStore, sink: HttpBatchSink) -> None:
    event = stored(7, count=3, type="Warning")
    write(sink, event)
    (delivery,) = writes_of(store)
    action, document = map(json.loads, body_of(delivery).splitlines())
    assert action == {"create": {"_id": "producer:7/3"}}
    assert decode_core(json.dumps(document.pop("event"))) == event
    assert document == {
        "@timestamp": "2024-01-01T12:00:00Z",
        "namespace": "default",
        "name": "web-0.7",
        "uid": "producer:7",
        "version": 7,
        "object_kind": "Pod",
        "object_name": "web-0",
        "object_uid": "uid-1",
        "type": "Warning",
        "reason": "Started",
        "message": "Started container web",
        "component": "kubelet",
        "host": "node-1",
        "count": 3,
        "first_seen": "2024-01-01T12:00:00Z",
        "last_seen": "2024-01-01T12:00:00Z",
        "origin": "",
    }
    assert delivery.headers["content-type"] == "application/x-ndjson"


@only("store", ["elasticsearch"], indirect=True)
def test_the_template_is_made_at_start(store: StrictStore, sink: HttpBatchSink) -> None:
    opening = opening_of(store)
    assert opening.path == "/_index_template/eventbus-events"
    template = json.loads(opening.body)
    assert (template["index_patterns"], template["data_stream"]) == (["events"], {})
    assert set(template["template"]["mappings"]["properties"]) >= {"@timestamp", "reason", "event"}
    sink.open()
    assert len(store.service.deliveries) == 2


def bulk(*statuses: int) -> Answer:
    items = [
        {"create": {"status": status} | ({"error": {"type": "t", "reason": "why"}} if status >= 300 else {})}
        for status in statuses
    ]
    return Answer(200, body=json.dumps({"errors": True, "items": items}).encode())


@only("store", ["elasticsearch"], indirect=True)
def test_each_item_has_an_answer_of_its_own(store: StrictStore, sink: HttpBatchSink) -> None:
    store.service.answers.append(bulk(201, 409, 400, 429, 500, 503))
    answers = write(sink, *[stored(number) for number in range(6)])
    kinds = [Event, Event, EventRejected, Throttled, UnexpectedReply, SinkUnreachable]
    assert [type(answer) for answer in answers] == kinds
    assert str(answers[2]) == "the server answered 400: t: why"


@only("store", ["elasticsearch"], indirect=True)
def test_after_a_throttled_item_nothing_more_is_sent(
    store: StrictStore, sink: HttpBatchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.elasticsearch.Documents.most_events", 2)
    store.service.answers.append(bulk(201, 429))
    answers = write(sink, *[stored(number) for number in range(4)])
    assert [type(answer) for answer in answers] == [Event, Throttled, NotSent, NotSent]


@only("store", ["elasticsearch"], indirect=True)
def test_an_answer_without_its_items_is_tried_again(store: StrictStore, sink: HttpBatchSink) -> None:
    for body in (b"", b"<html>", b'{"items": []}', b'{"items": [{"create": {"status": "x"}}]}'):
        store.service.answers.append(Answer(200, body=body))
        (answer,) = write(sink, stored())
        assert isinstance(answer, UnexpectedReply), body


def test_an_id_that_is_too_long_is_a_digest() -> None:
    assert document_id("a/1") == "a/1"
    assert len(document_id("é" * 300)) == 64


@only("store", ["elasticsearch", "opensearch"], indirect=True)
def test_documents_are_found_by_their_fields_and_by_the_words_of_the_message(
    store: StrictStore, sink: HttpBatchSink
) -> None:
    server = store.service
    assert isinstance(server, Elasticsearch)
    labels = {"app": "shop", "app.kubernetes.io/name": "shop"}
    events = [stored(1, annotations=labels), stored(2, type="Warning", reason="BackOff", message="Back-off, 5m0s")]
    assert write(sink, *events) == events

    def found(**term: str) -> list[str]:
        return [document["uid"] for document in server.search("events", term=term, since="2023-12-31T00:00:00Z")]

    assert found(type="Warning", object_name="web-0", reason="BackOff") == ["producer:2"]
    assert found(message="container STARTED") == ["producer:1"]
    assert found(namespace="default", component="kubelet") == ["producer:1", "producer:2"]


@only("store", ["elasticsearch"], indirect=True)
def test_without_a_template_for_the_stream_the_sink_waits(store: StrictStore, sink: HttpBatchSink) -> None:
    assert isinstance(store.service, Elasticsearch)
    store.service.templates.clear()
    (answer,) = write(sink, stored(1))
    assert isinstance(answer, SinkUnreachable)


# -- ClickHouse ----------------------------------------------------------------------------------------------------


@only("store", ["clickhouse"], indirect=True)
def test_the_rows_of_an_insert_have_one_token(store: StrictStore, sink: HttpBatchSink) -> None:
    event = stored(7, count=3)
    for _ in range(2):
        write(sink, event)
    write(sink, stored(8))
    queries = [parse_qs(urlsplit(delivery.path).query) for delivery in writes_of(store)]
    assert queries[0]["query"] == ["INSERT INTO eventbus_events FORMAT JSONEachRow"]
    assert queries[0]["database"] == ["default"]
    tokens = [query["insert_deduplication_token"][0] for query in queries]
    assert tokens[0] == tokens[1] != tokens[2]
    (line,) = body_of(writes_of(store)[0]).splitlines()
    row: dict[str, Any] = json.loads(line)
    assert decode_core(row["event"]) == event
    columns = [line.split()[0] for line in body_of(opening_of(store)).decode().splitlines()[1:18]]
    assert columns == list(row)


#: An answer of ClickHouse, and what it is to the events of its request.
EXCEPTIONS: list[tuple[Answer, type[SinkError]]] = [
    (Answer(500, {"X-ClickHouse-Exception-Code": "252"}, b"Too many parts"), SinkUnreachable),
    (Answer(200, {"X-ClickHouse-Exception-Code": "241"}), SinkUnreachable),
    (Answer(404, {"X-ClickHouse-Exception-Code": "60"}, b"no table"), SinkUnreachable),
    (Answer(500, {"X-ClickHouse-Exception-Code": "202"}), SinkUnreachable),
    (Answer(404, {"X-ClickHouse-Exception-Code": "81"}), SinkUnreachable),
    (Answer(403, {"X-ClickHouse-Exception-Code": "516"}), SinkUnreachable),
    (Answer(500, {"X-ClickHouse-Exception-Code": "49"}), UnexpectedReply),
    (Answer(400, {"X-ClickHouse-Exception-Code": "27"}), EventRejected),
]


@only("store", ["clickhouse"], indirect=True)
def test_the_meaning_of_an_exception(store: StrictStore, sink: HttpBatchSink) -> None:
    for answer, error in EXCEPTIONS:
        store.service.answers.append(answer)
        (found,) = write(sink, stored())
        assert type(found) is error, answer


@only("store", ["clickhouse"], indirect=True)
def test_rows_have_the_time_in_utc_whatever_the_servers_zone_is(store: StrictStore, sink: HttpBatchSink) -> None:
    assert isinstance(store.service, ClickHouse)
    event = stored(7, type="Warning", first_timestamp=None, last_timestamp=MOMENT)
    assert write(sink, event) == [event]
    (row,) = store.service.select("eventbus_events", type="Warning", object_name="web-0")
    assert (row["last_seen"], row["first_seen"], row["version"]) == (MOMENT, None, 7)


@only("store", ["clickhouse"], indirect=True)
def test_events_of_more_months_than_one_insert_may_have_are_sent_in_parts(
    store: StrictStore, sink: HttpBatchSink
) -> None:
    events = [stored(month, last_timestamp=MOMENT - timedelta(days=31 * month)) for month in range(150)]
    assert write(sink, *events) == events
    assert len(store.ids) == 150


# -- Splunk --------------------------------------------------------------------------------------------------------


@only("store", ["splunk"], indirect=True)
def test_an_event_of_the_collector_has_a_time_and_the_columns(store: StrictStore, sink: HttpBatchSink) -> None:
    write(sink, stored(7, count=3))
    found = json.loads(writes_of(store)[0].body)
    event = found.pop("event")
    assert found == {
        "time": 1704110400.0,
        "host": "node-1",
        "source": "eventbus",
        "sourcetype": "eventbus:event",
        "index": "events",
    }
    assert (event["delivery_id"], event["reason"], event["object_kind"]) == ("producer:7/3", "Started", "Pod")


#: An answer of Splunk, and what it is to the events of its request.
CODES: list[tuple[Answer, type[SinkError]]] = [
    (Answer(400, body=b'{"text":"Incorrect index","code":7,"invalid-event-number":0}'), SinkUnreachable),
    (Answer(400, body=b'{"text":"Invalid data format","code":6,"invalid-event-number":0}'), EventRejected),
    (Answer(403, body=b'{"text":"Invalid token","code":4}'), SinkUnreachable),
    (Answer(503, body=b'{"text":"Server is busy","code":9}'), SinkUnreachable),
    (Answer(400, body=b"no json"), EventRejected),
]


@only("store", ["splunk"], indirect=True)
def test_the_meaning_of_a_code(store: StrictStore, sink: HttpBatchSink) -> None:
    for answer, error in CODES:
        store.service.answers.append(answer)
        (found,) = write(sink, stored())
        assert type(found) is error, answer


@only("store", ["splunk"], indirect=True)
def test_an_invalid_event_repeats_the_others_at_most_once(store: StrictStore, sink: HttpBatchSink) -> None:
    """Splunk stores the events before the invalid one."""
    store.service.refused_text = "spoiled"
    answers = write(sink, *(stored(n, message="spoiled" if n in (30, 31, 63) else f"good {n}") for n in range(64)))
    assert [n for n, answer in enumerate(answers) if isinstance(answer, EventRejected)] == [30, 31, 63]
    assert (len(store.repeats), max(store.repeats.values())) == (61, 2)
    assert len(writes_of(store)) <= 8


# -- Loki ----------------------------------------------------------------------------------------------------------


@only("store", ["loki"], indirect=True)
def test_lines_are_found_by_namespace_and_metadata_and_name_their_object(
    store: StrictStore, sink: HttpBatchSink
) -> None:
    assert isinstance(store.service, Loki)
    now = datetime.now(UTC)
    write(sink, stored(1, last_timestamp=now), stored(2, last_timestamp=now, reason="BackOff", message='of "web"\n'))
    labels = {"k8s_namespace_name": "default"}
    (found,) = store.service.query(labels=labels, k8s_event_reason="BackOff", severity_text="Normal")
    assert found.line == 'kind=Pod name=web-0 type=Normal reason=BackOff id=producer:2/1 msg="of \\"web\\"\\n"'


# -- opening, and URLs ---------------------------------------------------------------------------------------------


def test_a_server_that_refuses_the_template_pauses_the_sink() -> None:
    endpoint = Endpoint()
    endpoint.answers.append(Answer(400, body=b"no template"))
    with receiving(endpoint) as port:
        sink = make_sink(f"elasticsearch+http://127.0.0.1:{port}", ALLOWED)
        assert isinstance(sink, HttpBatchSink)
        with pytest.raises(SinkUnreachable, match=r"PUT /_index_template/eventbus-eventbus: .* 400: no template"):
            sink.open()
        sink.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("elasticsearch+https://127.0.0.1/No*", "the data stream"),
        ("opensearch+https://127.0.0.1/a/b", "the data stream"),
        ("clickhouse+https://127.0.0.1/a/b/c", "DATABASE/TABLE"),
        ("clickhouse+https://127.0.0.1/a/b;drop", "DATABASE/TABLE"),
        ("splunk+https://127.0.0.1?token=a", "no option 'token'"),
        ("splunk+https://127.0.0.1?index=a&index=b", "an option twice"),
    ],
)
def test_a_url_that_names_no_target_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, ALLOWED)
