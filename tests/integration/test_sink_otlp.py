"""The OTLP sink against a server of the test's own: the log records that arrive, and what its answers mean."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from eventbus.errors import ConfigError, EventRejected, NotSent, SinkError, SinkUnreachable, Throttled
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.model.event import Event, EventSource
from tests.builders import make_event, make_reference
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving

ALLOWED = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def port(endpoint: Endpoint) -> Iterator[int]:
    with receiving(endpoint) as port:
        yield port


@pytest.fixture
def sink(port: int) -> Iterator[HttpBatchSink]:
    made = open_sink(f"otlp://127.0.0.1:{port}")
    yield made
    made.close()


def open_sink(url: str, **environ: str) -> HttpBatchSink:
    sink = make_sink(url, ALLOWED | environ, timeout_s=60, bus_id="bus-a")
    assert isinstance(sink, HttpBatchSink)
    return sink


def stored(number: int = 1, *, count: int = 1, annotations: dict[str, str] | None = None, **more: object) -> Event:
    event = msgspec.structs.replace(make_event(count=count), **more)
    metadata = {"name": f"web-0.{number}", "uid": f"producer:{number}", "resource_version": str(number)}
    metadata |= {"annotations": annotations or {}}  # type: ignore[dict-item]
    return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, **metadata))


def write(sink: HttpBatchSink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])


def requests_of(endpoint: Endpoint) -> list[ExportLogsServiceRequest]:
    return [ExportLogsServiceRequest.FromString(body_of(delivery)) for delivery in endpoint.deliveries]


def body_of(delivery: Delivery) -> bytes:
    zipped = delivery.headers.get("content-encoding") == "gzip"
    return gzip.decompress(delivery.body) if zipped else delivery.body


def logs_of(endpoint: Endpoint) -> list[tuple[ResourceLogs, LogRecord]]:
    return [
        (logs, record)
        for request in requests_of(endpoint)
        for logs in request.resource_logs
        for scope in logs.scope_logs
        for record in scope.log_records
    ]


def attributes(found: ResourceLogs | LogRecord) -> dict[str, str | int]:
    """All of them but for those that are empty."""
    pairs = found.resource.attributes if isinstance(found, ResourceLogs) else found.attributes
    values = {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}
    return {key: value for key, value in values.items() if value != ""}


def test_an_event_is_a_log_record_with_the_attributes_of_the_collectors_receiver(
    endpoint: Endpoint, sink: HttpBatchSink
) -> None:
    moment = datetime(2026, 2, 6, 10, 15, 30, tzinfo=UTC)
    event = stored(
        7,
        count=3,
        type="Warning",
        reason="BackOff",
        message="Back-off é",
        source=EventSource("kubelet", "node-1"),
        first_timestamp=moment,
        last_timestamp=moment,
        involved_object=make_reference(uid="u-1", api_version="v1", field_path="spec.containers{web}"),
    )
    assert write(sink, event) == [event]
    (delivery,), ((logs, record),) = endpoint.deliveries, logs_of(endpoint)
    assert (delivery.path, delivery.headers["content-type"]) == ("/v1/logs", "application/x-protobuf")
    assert attributes(logs) == {
        "k8s.node.name": "node-1",
        "k8s.namespace.name": "default",
        "k8s.object.kind": "Pod",
        "k8s.object.name": "web-0",
        "k8s.object.uid": "u-1",
        "k8s.object.fieldpath": "spec.containers{web}",
        "k8s.object.api_version": "v1",
    }
    assert attributes(record) == {
        "k8s.event.reason": "BackOff",
        "k8s.event.start_time": "2026-02-06 10:15:30 +0000 UTC",
        "k8s.event.name": "web-0.7",
        "k8s.event.uid": "producer:7",
        "k8s.event.count": 3,
        "k8s.event.reporting_controller": "kubelet",
        "k8s.event.reporting_instance": "node-1",
        "k8s.namespace.name": "default",
        "log.record.uid": "producer:7/3",
        "eventbus.bus.path": "bus-a",
    }
    assert (record.event_name, record.body.string_value) == ("k8s.event", "Back-off é")
    assert (record.severity_number, record.severity_text) == (13, "Warning")
    assert record.time_unix_nano == 1_770_372_930_000_000_000
    assert record.observed_time_unix_nano > record.time_unix_nano


def test_a_trace_and_the_buses_of_an_event_go_on_with_it(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    write(
        sink,
        stored(
            annotations={"eventbus.dev/traceparent": f"00-{trace}-{span}-01", "eventbus.dev/bus-path": "bus-x,bus-y"}
        ),
    )
    ((_, record),) = logs_of(endpoint)
    assert (record.trace_id.hex(), record.span_id.hex(), record.flags) == (trace, span, 1)
    assert attributes(record)["eventbus.bus.path"] == "bus-x,bus-y,bus-a"


def test_a_batch_is_one_compressed_request(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    events = [stored(number) for number in range(500)]
    assert write(sink, *events) == events
    (delivery,) = endpoint.deliveries
    assert delivery.headers["content-encoding"] == "gzip"
    assert len(delivery.body) < len(body_of(delivery)) / 4
    assert [attributes(record)["k8s.event.uid"] for _, record in logs_of(endpoint)] == [
        f"producer:{number}" for number in range(500)
    ]


def test_a_lone_surrogate_becomes_the_replacement_character(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    event = stored(message="half \ud800 of it")
    assert write(sink, event) == [event]
    ((_, record),) = logs_of(endpoint)
    assert record.body.string_value == "half \N{REPLACEMENT CHARACTER} of it"


#: An answer, and what it is to the events of its request.
ANSWERS: list[tuple[Answer, type[SinkError]]] = [
    (Answer(429, {"Retry-After": "7"}), Throttled),
    (Answer(503, {"Retry-After": "7"}), Throttled),
    (Answer(503), SinkUnreachable),
    (Answer(502), SinkUnreachable),
    (Answer(504), SinkUnreachable),
    (Answer(401), SinkUnreachable),
    (Answer(404), SinkUnreachable),
    (Answer(400), EventRejected),
    (Answer(500), EventRejected),
    (Answer(409), EventRejected),
    (Answer(200, {"Content-Type": "text/html"}, b"<html>sign in"), SinkUnreachable),
    (Answer(200, {"Content-Type": "application/x-protobuf"}, b"\xff\xff"), SinkUnreachable),
]


def test_the_meaning_of_an_answer(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    for answer, error in ANSWERS:
        endpoint.answers.append(answer)
        (found,) = write(sink, stored())
        assert type(found) is error, answer
        if isinstance(found, Throttled):
            assert found.retry_after_s == 7


def partial(rejected: int, text: str = "too old") -> Answer:
    success = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=text)
    body = ExportLogsServiceResponse(partial_success=success).SerializeToString()
    return Answer(200, {"Content-Type": "application/x-protobuf"}, body)


def test_a_partial_success_is_settled_and_counted_and_never_sent_again(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    events = [stored(number) for number in range(3)]
    endpoint.answers.append(partial(2))
    assert write(sink, *events) == events
    assert (sink.take_rejected(), sink.take_rejected()) == (2, 0)
    assert len(endpoint.deliveries) == 1


def test_a_partial_success_that_rejects_all_names_all(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    endpoint.answers.append(partial(2))
    answers = write(sink, stored(1), stored(2))
    assert [(type(answer), str(answer)) for answer in answers] == [
        (EventRejected, "the server rejected it: too old")
    ] * 2
    assert sink.take_rejected() == 0


def test_a_rejected_event_is_found_and_the_others_are_written(endpoint: Endpoint, sink: HttpBatchSink) -> None:
    endpoint.answers.extend(Answer(status) for status in (400, 200, 400, 400, 200))
    answers = write(sink, *[stored(number) for number in range(4)])
    assert [len(request.resource_logs) for request in requests_of(endpoint)] == [4, 2, 2, 1, 1]
    assert [type(answer) for answer in answers] == [Event, Event, EventRejected, Event]


class Rejecting(Endpoint):
    """Answers 400 to each request with one of the events called *names*."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def answer(self, delivery: Delivery) -> Answer:
        rejected = any(name.encode() in body_of(delivery) for name in self.names)
        self.deliveries.append(delivery)
        return Answer(400 if rejected else 200)


@pytest.mark.parametrize(
    ("rejected", "most_requests"),
    [(range(64), 64 + 2 * 6), ([0], 2 * 6 + 1), ([63], 2 * 6 + 1), ([0, 1, 2, 3, 63], 5 * 6)],
    ids=["all", "the first", "the last", "five"],
)
def test_a_server_that_rejects_everything_gets_few_more_requests_than_events(
    rejected: Sequence[int], most_requests: int
) -> None:
    endpoint = Rejecting(*(f"web-0.{100 + number}" for number in rejected))
    with receiving(endpoint) as port:
        sink = open_sink(f"otlp://127.0.0.1:{port}")
        answers = write(sink, *[stored(100 + number) for number in range(64)])
        sink.close()
    assert [place for place, answer in enumerate(answers) if isinstance(answer, EventRejected)] == list(rejected)
    assert len(endpoint.deliveries) <= most_requests


def test_after_a_lost_reply_only_the_events_of_that_request_may_have_arrived(
    endpoint: Endpoint, sink: HttpBatchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.otlp.LogRecords.most_events", 2)
    endpoint.answers.extend([Answer(), Answer(0)])
    answers = write(sink, *[stored(number) for number in range(6)])
    assert [type(answer) for answer in answers] == [Event] * 2 + [SinkUnreachable] * 2 + [NotSent] * 2


def test_a_path_of_the_url_comes_before_the_protocols_own(endpoint: Endpoint, port: int) -> None:
    for url in (f"otlp://127.0.0.1:{port}/otlp/", f"loki+http://127.0.0.1:{port}"):
        sink = open_sink(url)
        write(sink, stored())
        sink.close()
    assert [delivery.path for delivery in endpoint.deliveries] == ["/otlp/v1/logs"] * 2


def test_the_headers_of_a_file_are_sent_and_read_again(
    endpoint: Endpoint, port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("secret") / "headers"
    file.write_text("Authorization: Bearer one\nX-Scope-OrgID: shop\n")
    sink = open_sink(f"otlp://127.0.0.1:{port}", EVENTBUS_EXPORT_HEADERS_FILE=str(file))
    write(sink, stored())
    file.write_text("Authorization: Bearer two")
    write(sink, stored())
    file.unlink()
    (answer,) = write(sink, stored())
    sink.close()
    assert isinstance(answer, SinkUnreachable)
    sent = [(found.headers["authorization"], found.headers.get("x-scope-orgid")) for found in endpoint.deliveries]
    assert sent == [("Bearer one", "shop"), ("Bearer two", None)]
    assert endpoint.deliveries[0].headers["eventbus-bus"] == "bus-a"


def test_a_header_that_cannot_be_sent_is_refused_at_start_without_its_value() -> None:
    many = "\n".join(["A: b"] * 33)
    for headers in ("no colon", "Content-Length: 5", "Authorization: Bearer ü", "Host: a", many):
        with pytest.raises(ConfigError, match="EVENTBUS_EXPORT_HEADERS") as error:
            open_sink("otlp://127.0.0.1:4318", EVENTBUS_EXPORT_HEADERS=headers)
        assert "Bearer" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("otlp://collector.example.com:4318", "must use https"),
        ("otlps://10.0.0.7", "where no request may go"),
        ("otlp://127.0.0.1:4318?a=b", "no option 'a'"),
        ("otlp://", "needs a host"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_start(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_sink(url)
