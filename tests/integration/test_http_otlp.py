"""`POST /v1/logs`: log records of OTLP become events of the bus; some are rejected, and counted by their reason."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from eventbus import Event, Settings
from eventbus.api.eventbus_v1.log_records import MAX_BODY, MAX_PART
from eventbus.broker.bus import Bus, open_bus
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection, Reply
from eventbus.export.sinks import SinkWrite, Verb, make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from tests.builders import make_event
from tests.integration.test_http_own import stored
from tests.support.api_in_process import serving
from tests.thin import one

PROTOBUF, JSON = "application/x-protobuf", "application/json"
#: 2026-02-06T10:15:30Z
TIME_NS = 1_770_372_930_000_000_000


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def url(bus: Bus) -> Iterator[str]:
    with serving(bus) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[ApiConnection]:
    connection = ApiConnection(parse_api_url(url, Settings()))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def shared(embedded_url: str) -> Iterator[ApiConnection]:
    """An API worker for tests that record nothing."""
    with serving(open_bus(embedded_url, Settings(prefix=f"t{secrets.token_hex(6)}"))) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        yield connection
        connection.close()


def pairs(attributes: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]


def record(event_name: str = "shop.order.payment_failed", **attributes: str) -> LogRecord:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    body = AnyValue(string_value="card declined")
    return LogRecord(event_name=event_name, time_unix_nano=TIME_NS, body=body, attributes=pairs(named))


def request_of(records: Sequence[LogRecord], scope: str = "checkout", **resource: str) -> bytes:
    named = {name.replace("__", "."): value for name, value in ({"service__name": "shop-api"} | resource).items()}
    logs = ScopeLogs(scope=InstrumentationScope(name=scope), log_records=records)
    found = ResourceLogs(resource=Resource(attributes=pairs(named)), scope_logs=[logs])
    packed: bytes = ExportLogsServiceRequest(resource_logs=[found]).SerializeToString()
    return packed


def send(api: ApiConnection, body: bytes, media_type: str = PROTOBUF, **headers: str) -> Reply:
    return api.request("POST", "/v1/logs", body=body, headers={"Content-Type": media_type} | headers)


def post(api: ApiConnection, *records: LogRecord, **resource: str) -> ExportLogsPartialSuccess:
    reply = send(api, request_of(records, **resource))
    assert (reply.status, reply.headers["content-type"]) == (200, PROTOBUF)
    answer: ExportLogsServiceResponse = ExportLogsServiceResponse.FromString(reply.body)
    return answer.partial_success


def results(api: ApiConnection) -> dict[str, float]:
    lines = api.call("GET", "/metrics").decode().splitlines()
    found = [line for line in lines if line.startswith("eventbus_apiserver_otlp_log_records_total{")]
    return {line.partition('"')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in found}


def test_a_log_record_with_an_event_name_becomes_an_event(bus: Bus, api: ApiConnection) -> None:
    trace, span = bytes(range(16)), bytes(range(8))
    sent = record()
    sent.severity_number = SeverityNumber.SEVERITY_NUMBER_ERROR
    sent.trace_id, sent.span_id, sent.flags = trace, span, 1
    answer = post(api, sent, service__namespace="shop", service__instance__id="api-7f9")
    assert (answer.rejected_log_records, answer.error_message) == (0, "")
    [event] = stored(bus)
    about = event.involved_object
    assert (about.kind, about.namespace, about.name) == ("Service", "shop", "shop-api")
    assert (event.type, event.reason, event.message) == ("Warning", "PaymentFailed", "card declined")
    assert (event.source.component, event.reporting_instance, event.count) == ("checkout", "api-7f9", 1)
    assert event.last_timestamp == datetime(2026, 2, 6, 10, 15, 30, tzinfo=UTC)
    assert dict(event.metadata.annotations) == {
        "eventbus.dev/traceparent": f"00-{trace.hex()}-{span.hex()}-01",
    }
    assert results(api) == {"accepted": 1}


def test_the_object_is_that_of_the_most_exact_attributes(bus: Bus, api: ApiConnection) -> None:
    kubernetes = {"k8s__object__kind": "Pod", "k8s__object__name": "web-0", "k8s__namespace__name": "shop"}
    ours = {"eventbus__object__kind": "Order", "eventbus__object__name": "7", "eventbus__object__namespace": "shop"}
    post(api, record(**kubernetes), record(**ours), record())
    about = [event.involved_object for event in stored(bus)]
    assert sorted((each.kind, each.namespace, each.name) for each in about) == [
        ("Order", "shop", "7"),
        ("Pod", "shop", "web-0"),
        ("Service", "default", "shop-api"),
    ]


def test_json_is_read_as_protobuf_is(bus: Bus, api: ApiConnection) -> None:
    body = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop-api"}}]},
                "scopeLogs": [
                    {
                        "scope": {"name": "checkout"},
                        "logRecords": [
                            {
                                "timeUnixNano": str(TIME_NS),
                                "severityNumber": 13,
                                "eventName": "shop.order.payment_failed",
                                "body": {"stringValue": "card declined"},
                                "traceId": "0AF7651916CD43DD8448EB211C80319C",
                                "spanId": "b7ad6b7169203331",
                                "aFieldOfLater": 1,
                            },
                            {"body": {"stringValue": "a plain log line"}},
                        ],
                    }
                ],
            }
        ]
    }
    reply = send(api, json.dumps(body).encode(), JSON)
    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, JSON)
    assert json.loads(reply.body)["partialSuccess"] == {
        "rejectedLogRecords": "1",
        "errorMessage": (
            "1 accepted, 1 no-event-name; the first: event_name: is empty: only log records that are events are"
            " accepted"
        ),
    }
    [event] = stored(bus)
    assert (event.type, event.reason) == ("Warning", "PaymentFailed")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    assert event.metadata.annotations["eventbus.dev/traceparent"] == trace


def test_records_that_cannot_be_events_are_rejected_and_counted_by_their_reason(bus: Bus, api: ApiConnection) -> None:
    long = AnyValue(string_value="x" * MAX_PART)
    deep = AnyValue(string_value="end")
    for _ in range(30):
        deep = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=deep)]))
    answer = post(
        api,
        record(),
        record(event_name=""),
        LogRecord(event_name="a.b", body=long),
        record(eventbus__bus__path=f"other,{bus.id}"),
        record(eventbus__bus__path="a,b,c,d"),
        record(k8s__object__kind="Pod", k8s__object__name="a", k8s__namespace__name="No!"),
        record(log__record__uid="u" * 300),
        LogRecord(event_name="a.deep", body=deep),
    )
    assert answer.rejected_log_records == 4  # those of the two loops are dropped
    expected = {"accepted": 2, "no-event-name": 1, "too-large": 1, "own": 1, "too-many-buses": 1, "invalid": 2}
    assert results(api) == expected
    assert len(stored(bus)) == 2


def test_a_record_that_cannot_be_read_leaves_the_others(bus: Bus, api: ApiConnection) -> None:
    scope_logs = b"\x12\x03\x2a\x05a"  # a record with a body that is cut off
    logs = b"\x12" + bytes([len(scope_logs)]) + scope_logs
    reply = send(api, b"\x0a" + bytes([len(logs)]) + logs + request_of([record()]))
    assert (reply.status, results(api)["unreadable"], len(stored(bus))) == (200, 1, 1)


def test_a_resource_without_a_name_has_no_object(api: ApiConnection) -> None:
    answer = post(api, record(), service__name="")
    assert answer.rejected_log_records == 1
    assert "service.name" in answer.error_message


def test_a_record_is_recorded_once_by_its_uid_whatever_request_it_is_in(bus: Bus, api: ApiConnection) -> None:
    first, second, third = (record(log__record__uid=f"p:{number}/1") for number in range(3))
    post(api, first, second)
    assert post(api, second, third, third).rejected_log_records == 0
    assert len(stored(bus)) == 3


def test_the_uids_of_two_users_are_two(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("a,one,1\nb,two,2\nc,three,3\n")
    with serving(bus, tokens=tokens, grants=["record=user:one", "record=user:two", "record=user:three@shop"]) as url:
        for token in "ab":
            api = ApiConnection(parse_api_url(url, Settings(token=token)))
            post(api, record(log__record__uid="u"))
            api.close()
        other = ApiConnection(parse_api_url(url, Settings(token="c")))
        answer = post(other, record(log__record__uid="v"))
        other.close()
    assert len(stored(bus)) == 2
    assert answer.rejected_log_records == 1
    assert "'three' may not record events in namespace 'default'" in answer.error_message


def test_a_request_that_is_sent_again_is_recorded_once_if_its_records_have_times(bus: Bus, api: ApiConnection) -> None:
    for _ in range(2):
        post(api, record(), record())
    assert len(stored(bus)) == 2
    untimed = LogRecord(event_name="a.b")
    for _ in range(2):
        post(api, untimed)
    assert len(stored(bus)) == 4


@pytest.mark.parametrize(
    ("body", "media_type", "headers", "code"),
    [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", PROTOBUF, {}, 400),
        (b"\x0a\x05a", PROTOBUF, {}, 400),
        (b"\x0b", PROTOBUF, {}, 400),
        (b"\x0a", PROTOBUF, {}, 400),
        (b"[]", JSON, {}, 400),
        (b'{"resourceLogs": [{"resource": {"attributes": 1}, "scopeLogs": []}]}', JSON, {}, 400),
        (b"{}", "text/plain", {}, 415),
        (b"no gzip", PROTOBUF, {"Content-Encoding": "gzip"}, 400),
        # made when they are sent, and not by each process that collects
        (lambda: gzip.compress(bytes(MAX_BODY + 1)), PROTOBUF, {"Content-Encoding": "gzip"}, 413),
        (b"\x0a\x00" * 100_000, PROTOBUF, {}, 413),
        (lambda: b'{"resourceLogs": [' + b"{}," * 500_000 + b"{}]}", JSON, {}, 413),
        (lambda: request_of([LogRecord()] * 20_001), PROTOBUF, {}, 413),
        (request_of([record()], scope="s" * (MAX_PART + 1)), PROTOBUF, {}, 413),
    ],
    ids=[
        *("long number", "cut off", "wire type", "no size", "json list", "json type", "media type", "no gzip"),
        *("expands", "parts", "objects", "records", "scope"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_a_status(
    shared: ApiConnection, body: bytes | Callable[[], bytes], media_type: str, headers: dict[str, str], code: int
) -> None:
    reply = send(shared, body() if callable(body) else body, media_type, **headers)
    assert reply.status == code
    if media_type == PROTOBUF:
        assert reply.body.startswith(b"\x08" + bytes([code & 0x7F | 0x80, code >> 7]) + b"\x12")
    else:
        assert json.loads(reply.body)["code"] == code


def test_a_compressed_request_is_expanded(bus: Bus, api: ApiConnection) -> None:
    reply = send(api, gzip.compress(request_of([record()])), **{"Content-Encoding": "gzip"})
    assert (reply.status, len(stored(bus))) == (200, 1)


def test_a_request_may_end_in_the_middle_anywhere_and_never_records_half_of_a_record(shared: ApiConnection) -> None:
    whole = request_of([record(), record()])
    codes = {send(shared, whole[:end]).status for end in range(1, len(whole))}
    assert codes == {400}


def write(sink: HttpBatchSink, *events: Event) -> list[Any]:
    return list(sink.write([SinkWrite.of(Verb.CREATE, event) for event in events]))


def test_events_of_another_bus_arrive_with_their_object_and_their_way(
    bus: Bus, url: str, embedded_url: str, prefix: str
) -> None:
    event = make_event(message="Ünï")
    sink = make_sink(url.replace("http://", "otlp://"), {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, bus_id="another")
    assert isinstance(sink, HttpBatchSink)
    assert write(sink, event) == [event]
    sink.close()
    [found] = stored(bus)
    assert (found.involved_object, found.reason, found.message) == (event.involved_object, event.reason, "Ünï")
    assert (found.type, found.source, found.last_timestamp) == (event.type, event.source, event.last_timestamp)
    assert dict(found.metadata.annotations) == {"eventbus.dev/bus-path": "another"}


def test_a_bus_drops_its_own_events_that_come_back_through_another(bus: Bus, url: str, api: ApiConnection) -> None:
    sink = make_sink(url.replace("http://", "otlp://"), {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, bus_id="other")
    assert isinstance(sink, HttpBatchSink)
    event = make_event()

    def through(*buses: str) -> Event:
        metadata = replace(event.metadata, annotations={"eventbus.dev/bus-path": ",".join(buses)})
        return replace(event, metadata=metadata)

    came_back, control = through(bus.id, "between"), through("elsewhere", "between")
    assert write(sink, came_back) == [came_back]  # and is no dead letter of the bus between
    assert write(sink, control) == [control]
    sink.close()
    assert len(stored(bus)) == 1
    assert results(api)["own"] == 1
