"""Stand-ins for a receiver of OTLP/HTTP logs and for Loki's OTLP endpoint, written from the published definitions.

Stricter than the protocol: an unknown field of a message is refused, where receivers must ignore it, and so are a
second value of an attribute and a severity without a number. OTLP has no identity of a record: a repeat is a double.
Source: opentelemetry-proto (docs/specification.md, logs.proto, common.proto); Loki's documentation: Ingesting logs to
Loki using OpenTelemetry, Enforce rate limits and push request validation; Loki's pkg/loghttp/push/otlp.go, and
pkg/chunkenc/unordered.go for lines that it takes for repeats.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from tests.support.strict_service import StrictService
from tests.support.webhook_server import Answer, Delivery

PROTOBUF: Final = "application/x-protobuf"
#: The resource attributes that Loki makes index labels of, if its configuration says nothing else.
INDEX_LABELS: Final = {
    *("cloud.availability_zone", "cloud.region", "container.name", "deployment.environment", "k8s.cluster.name"),
    *("k8s.container.name", "k8s.cronjob.name", "k8s.daemonset.name", "k8s.deployment.name", "k8s.job.name"),
    *("k8s.namespace.name", "k8s.pod.name", "k8s.replicaset.name", "k8s.statefulset.name", "service.instance.id"),
    *("service.name", "service.namespace"),
}


@dataclass(frozen=True)
class Record:
    """A log record with the attributes of its resource and scope."""

    resource: dict[str, Any]
    scope: str
    attributes: dict[str, Any]
    body: Any
    event_name: str
    severity: int
    severity_text: str
    time_ns: int
    trace_id: str
    span_id: str


class OtlpReceiver(StrictService):
    """A receiver of logs. It rejects a record with *refused_text* in its body, and stores the others."""

    def __init__(self, *, authorization: str = "", max_bytes: int = 20 << 20, path: str = "/v1/logs") -> None:
        super().__init__(authorization=authorization, max_bytes=max_bytes)
        self.path = path
        self.records: list[Record] = []

    def find(self, **attributes: Any) -> list[Record]:
        """Return the records with these attributes; `__` in a name stands for a dot."""
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        return [record for record in self.records if record.attributes.items() >= wanted.items()]

    def refuse(self, status: int, message: str) -> Answer:
        text = message.encode()[:100]
        return Answer(status, {"content-type": PROTOBUF}, b"\x12" + bytes([len(text)]) + text)  # Status.message

    def serve(self, delivery: Delivery) -> Answer:
        if delivery.path != self.path:
            return self.refuse(404, "no such path")
        if delivery.method != "POST":
            return self.refuse(405, "only POST")
        if delivery.headers.get("content-type") != PROTOBUF:
            return self.refuse(415, f"Content-Type must be {PROTOBUF}")
        try:
            request = ExportLogsServiceRequest.FromString(delivery.body)
        except DecodeError as error:
            return self.refuse(400, f"no ExportLogsServiceRequest: {error}")
        if _unknown(request):
            return self.refuse(400, "the message has a field that the definition does not have")
        try:
            records = list(_records(request))
        except ValueError as error:
            return self.refuse(400, str(error))
        return self.store(records)

    def store(self, records: list[Record]) -> Answer:
        kept = [record for record in records if not self._is_refused(record)]
        self.records += kept
        response = ExportLogsServiceResponse()
        if len(kept) < len(records):
            response.partial_success.rejected_log_records = len(records) - len(kept)
            response.partial_success.error_message = "some records are not acceptable"
        return Answer(200, {"content-type": PROTOBUF}, response.SerializeToString())

    def _is_refused(self, record: Record) -> bool:
        return self.refused_text != "" and self.refused_text in str(record.body)


@dataclass(frozen=True)
class Entry:
    """A line of a stream of Loki, with its structured metadata."""

    time_ns: int
    line: str
    metadata: dict[str, str]


class Loki(OtlpReceiver):
    """One tenant. An invalid line is dropped with status 400, and the valid lines of the same request are stored.

    A line of a stream is stored once for its time, whatever its structured metadata.
    """

    MAX_LINE: Final = 256 << 10
    MAX_LABELS: Final = 15
    MAX_LABEL_VALUE: Final = 2048
    MAX_METADATA: Final = 128
    MAX_METADATA_BYTES: Final = 64 << 10
    MAX_AGE_S: Final = 7 * 24 * 3600
    MAX_FUTURE_S: Final = 600
    MAX_BEHIND_S: Final = 3600  # half of max_chunk_age

    def __init__(self, *, authorization: str = "", tenant: str = "", max_bytes: int = 100 << 20) -> None:
        super().__init__(authorization=authorization, max_bytes=max_bytes, path="/otlp/v1/logs")
        self.tenant = tenant
        self.streams: dict[frozenset[tuple[str, str]], list[Entry]] = {}

    def query(self, *, labels: dict[str, str], **metadata: str) -> list[Entry]:
        """Return the entries of `{labels} | metadata`, oldest first; names are Loki's, with `_` for each dot."""
        found = [
            entry
            for stream, entries in self.streams.items()
            for entry in entries
            if stream >= labels.items() and entry.metadata.items() >= metadata.items()
        ]
        return sorted(found, key=lambda entry: entry.time_ns)

    def serve(self, delivery: Delivery) -> Answer:
        if delivery.headers.get("x-scope-orgid", "") != self.tenant:
            return self.refuse(401, "no org id")
        return super().serve(delivery)

    def store(self, records: list[Record]) -> Answer:
        problems = [problem for record in records if (problem := self._keep(record))]
        return self.refuse(400, problems[-1]) if problems else Answer(204)

    def _keep(self, record: Record) -> str:
        resource = {_label(name): _text(value) for name, value in record.resource.items() if name in INDEX_LABELS}
        labels = frozenset(({"service_name": "unknown_service"} | resource).items())
        rest = [(name, value) for name, value in record.resource.items() if name not in INDEX_LABELS]
        metadata = dict(_metadata([*record.attributes.items(), *rest]))
        metadata |= {"scope_name": record.scope} if record.scope else {}
        metadata |= {"severity_number": str(record.severity)} if record.severity else {}
        metadata |= {"severity_text": record.severity_text} if record.severity_text else {}
        metadata |= {"trace_id": record.trace_id} if record.trace_id else {}
        metadata |= {"span_id": record.span_id} if record.span_id else {}
        metadata |= {"event_name": record.event_name} if record.event_name else {}
        entry = Entry(record.time_ns or time.time_ns(), _text(record.body), metadata)
        if self._is_refused(record):
            return "the line is refused"
        if problem := self._problem(labels, entry):
            return problem
        entries = self.streams.setdefault(labels, [])
        if not any((kept.time_ns, kept.line) == (entry.time_ns, entry.line) for kept in entries):
            entries.append(entry)
        return ""

    def _problem(self, labels: frozenset[tuple[str, str]], entry: Entry) -> str:
        age_s = (time.time_ns() - entry.time_ns) / 1e9
        if len(entry.line.encode()) > self.MAX_LINE:
            return "Max entry size exceeded"
        if age_s > self.MAX_AGE_S:
            return "entry has timestamp too old"
        if age_s < -self.MAX_FUTURE_S:
            return "entry has timestamp too new"
        if len(labels) > self.MAX_LABELS or any(len(value.encode()) > self.MAX_LABEL_VALUE for _, value in labels):
            return "too many labels, or a label's value is too long"
        if len(entry.metadata) > self.MAX_METADATA:
            return "too many pairs of structured metadata"
        if sum(len(name) + len(value.encode()) for name, value in entry.metadata.items()) > self.MAX_METADATA_BYTES:
            return "structured metadata too large"
        newest = max((kept.time_ns for kept in self.streams.get(labels, [])), default=0)
        if entry.time_ns < newest - self.MAX_BEHIND_S * 1_000_000_000:
            return "entry too far behind"
        return ""


def _unknown(message: Message) -> bool:
    """Whether *message*, or one in it, has a field that its definition does not have."""
    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = value if field.is_repeated else [value]
            if any(_unknown(element) for element in inner):
                return True
    return False


def _records(request: ExportLogsServiceRequest) -> Iterator[Record]:
    """Yield the records of *request*. Raises ValueError for what the definition forbids."""
    for resource_logs in request.resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                _check(record)
                yield Record(
                    resource=resource,
                    scope=scope_logs.scope.name,
                    attributes=_attributes(record.attributes),
                    body=_value(record.body),
                    event_name=record.event_name,
                    severity=record.severity_number,
                    severity_text=record.severity_text,
                    time_ns=record.time_unix_nano,
                    trace_id=record.trace_id.hex(),
                    span_id=record.span_id.hex(),
                )


def _check(record: LogRecord) -> None:
    if record.severity_number not in range(25) or (record.severity_text and not record.severity_number):
        raise ValueError(f"severity_number {record.severity_number}")
    if len(record.trace_id) not in (0, 16) or (record.trace_id and not any(record.trace_id)):
        raise ValueError("trace_id must have 16 bytes, not all zero")
    if len(record.span_id) not in (0, 8) or (record.span_id and not any(record.span_id)):
        raise ValueError("span_id must have 8 bytes, not all zero")
    if record.span_id and not record.trace_id:
        raise ValueError("span_id without trace_id")
    if record.flags & ~0xFF:
        raise ValueError("reserved bits of flags are set")
    if not record.time_unix_nano and not record.observed_time_unix_nano:
        raise ValueError("neither time_unix_nano nor observed_time_unix_nano is set")


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs:
        if not pair.key or pair.key in attributes:
            raise ValueError(f"attribute key {pair.key!r} is empty, or there twice")
        attributes[pair.key] = _value(pair.value)
    return attributes


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(element) for element in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _label(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _metadata(pairs: Iterable[tuple[str, Any]], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield structured metadata: nested attributes are flattened with `_`."""
    for name, value in pairs:
        if isinstance(value, dict):
            yield from _metadata(value.items(), f"{prefix}{_label(name)}_")
        else:
            yield prefix + _label(name), _text(value)
