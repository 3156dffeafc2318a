"""Converts events to and from log records of OTLP, with the attribute names of the collector's k8s_events receiver.

Needs `eventbus[otlp]`. Source: receiver/k8seventsreceiver of opentelemetry-collector-contrib, released and as in its
pull request 50962, which has `k8s.namespace.name` in the resource: it is sent in both places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from eventbus.errors import InvalidEvent
from eventbus.model.event import Event, EventSource, EventType, ObjectMeta, ObjectReference
from eventbus.model.reference import DEFAULT_NAMESPACE
from eventbus.model.validation import MAX_COMPONENT, MAX_CONTROLLER, MAX_INSTANCE, MAX_REASON
from eventbus.util.text import cut_bytes, repair

EVENT_NAME: Final = "k8s.event"
SCOPE: Final = "eventbus"
RECORD_UID: Final = "log.record.uid"
#: The buses that an event has passed, by their ids, the last one at the end, with commas.
BUS_PATH: Final = "eventbus.bus.path"
#: The same in the annotations of an event that came from another bus; without the bus that stores it.
PATH_ANNOTATION: Final = "eventbus.dev/bus-path"
#: `00-<trace id>-<span id>-<flags>`, as the header of W3C Trace Context.
TRACE_ANNOTATION: Final = "eventbus.dev/traceparent"
#: Buses that an event may pass.
MOST_BUSES: Final = 4
#: Bytes of a message that is made of a body.
MESSAGE_BYTES: Final = 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEVERITIES: Final = {
    "normal": SeverityNumber.SEVERITY_NUMBER_INFO,
    "warning": SeverityNumber.SEVERITY_NUMBER_WARN,
    "error": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "critical": SeverityNumber.SEVERITY_NUMBER_FATAL,
}
_SCOPE: Final = InstrumentationScope(name=SCOPE)
_TRACE: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


def pack_log_record(event: Event, *, uid: str, bus_id: str, now_ns: int) -> bytes:
    """Return an ExportLogsServiceRequest with the log record of *event*; several of them, joined, are one with all.

    *event* has no lone surrogates. Raises: ValueError, OverflowError: a value does not fit.
    """
    resource = Resource(attributes=_attributes(_resource_of(event)))
    logs = ScopeLogs(scope=_SCOPE, log_records=[_log_record(event, uid=uid, bus_id=bus_id, now_ns=now_ns)])
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource, scope_logs=[logs])])
    packed: bytes = request.SerializeToString()
    return packed


def _resource_of(event: Event) -> dict[str, str | int]:
    about = event.involved_object
    return {
        "k8s.node.name": event.source.host,
        "k8s.namespace.name": about.namespace,
        "k8s.object.kind": about.kind,
        "k8s.object.name": about.name,
        "k8s.object.uid": about.uid,
        "k8s.object.fieldpath": about.field_path,
        "k8s.object.api_version": about.api_version,
        "k8s.object.resource_version": about.resource_version,
    }


def _log_record(event: Event, *, uid: str, bus_id: str, now_ns: int) -> LogRecord:
    meta = event.metadata
    started = meta.creation_timestamp or event.first_timestamp
    path = meta.annotations.get(PATH_ANNOTATION, "")
    attributes: dict[str, str | int] = {
        "k8s.event.reason": event.reason,
        "k8s.event.action": event.action,
        "k8s.event.start_time": started.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC") if started else "",
        "k8s.event.name": meta.name,
        "k8s.event.uid": meta.uid,
        "k8s.event.count": event.times_seen,
        "k8s.event.reporting_controller": event.reporting_component or event.source.component,
        "k8s.event.reporting_instance": event.reporting_instance or event.source.host,
        "k8s.namespace.name": event.involved_object.namespace,
        RECORD_UID: uid,
        BUS_PATH: f"{path},{bus_id}" if path and bus_id else path or bus_id,
    }
    record = LogRecord(
        observed_time_unix_nano=now_ns,
        severity_text=event.type,
        body=AnyValue(string_value=event.message),
        attributes=_attributes(attributes),
        event_name=EVENT_NAME,
    )
    if (severity := _SEVERITIES.get(event.type.lower())) is not None:
        record.severity_number = severity
    if (seen := event.last_seen) is not None:
        record.time_unix_nano = max(0, (seen - _EPOCH) // timedelta(microseconds=1) * 1000)
    if trace := _TRACE.fullmatch(meta.annotations.get(TRACE_ANNOTATION, "")):
        record.trace_id, record.span_id = bytes.fromhex(trace[1]), bytes.fromhex(trace[2])
        record.flags = int(trace[3], 16)
    return record


def _attributes(values: Mapping[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value))
        for key, value in values.items()
        if value != ""
    ]


#: The attributes that `event_of` reads, of a record or its resource; others are not even converted.
_READ: Final = frozenset(
    {
        *("k8s.node.name", "k8s.namespace.name", "k8s.object.kind", "k8s.object.name", "k8s.object.uid"),
        *("k8s.object.fieldpath", "k8s.object.api_version", "k8s.object.resource_version", "k8s.event.reason"),
        *("k8s.event.action", "k8s.event.reporting_controller", "k8s.event.reporting_instance"),
        *("eventbus.object.kind", "eventbus.object.name", "eventbus.object.namespace", RECORD_UID, BUS_PATH),
        *("service.name", "service.namespace", "service.instance.id", "host.name"),
    }
)


def texts_of(attributes: Sequence[KeyValue]) -> dict[str, str]:
    """Return the attributes that `event_of` reads. Others are left out, and so are values that are no texts."""
    return {
        attribute.key: attribute.value.string_value
        for attribute in attributes
        if attribute.key in _READ and attribute.value.string_value
    }


def bus_path(texts: Mapping[str, str]) -> list[str]:
    """Return the ids of the buses that a record has passed."""
    return [bus for bus in texts.get(BUS_PATH, "").split(",") if bus]


def event_of(record: LogRecord, texts: Mapping[str, str], scope: str) -> Event:
    """Return the event of *record*, which has an event name.

    Args: texts: of the resource, overridden by those of the record; see `texts_of`.  scope: its name.
    Raises: InvalidEvent: the object that it is about is not known.
    """
    get = texts.get
    annotations = {}
    if path := get(BUS_PATH):
        annotations[PATH_ANNOTATION] = path
    if len(record.trace_id) == 16 and len(record.span_id) in (0, 8):
        span = record.span_id.hex() or "0" * 16
        annotations[TRACE_ANNOTATION] = f"00-{record.trace_id.hex()}-{span}-{record.flags & 0xFF:02x}"
    about, host = _object_of(texts), get("k8s.node.name") or get("host.name", "")
    component = get("k8s.event.reporting_controller") or scope or get("service.name", "")
    time = _time_of(record)
    return Event(
        metadata=ObjectMeta(namespace=about.namespace or DEFAULT_NAMESPACE, annotations=annotations),
        involved_object=about,
        reason=cut_bytes(get("k8s.event.reason") or _reason(record.event_name), MAX_REASON),
        message=cut_bytes(repair(_message(record.body)), MESSAGE_BYTES),
        source=EventSource(cut_bytes(component, MAX_COMPONENT), host),
        type=(
            EventType.WARNING if record.severity_number >= SeverityNumber.SEVERITY_NUMBER_WARN else EventType.NORMAL
        ).value,
        first_timestamp=time,
        last_timestamp=time,
        action=get("k8s.event.action", ""),
        reporting_component=cut_bytes(component, MAX_CONTROLLER),
        reporting_instance=cut_bytes(
            get("k8s.event.reporting_instance") or get("service.instance.id") or host, MAX_INSTANCE
        ),
    )


def _object_of(texts: Mapping[str, str]) -> ObjectReference:
    get = texts.get
    if (kind := get("k8s.object.kind")) and (name := get("k8s.object.name")):
        return ObjectReference(
            kind=kind,
            namespace=get("k8s.namespace.name", ""),
            name=name,
            uid=get("k8s.object.uid", ""),
            api_version=get("k8s.object.api_version", ""),
            resource_version=get("k8s.object.resource_version", ""),
            field_path=get("k8s.object.fieldpath", ""),
        )
    namespace = get("service.namespace") or DEFAULT_NAMESPACE
    if (kind := get("eventbus.object.kind")) and (name := get("eventbus.object.name")):
        return ObjectReference(kind=kind, namespace=get("eventbus.object.namespace") or namespace, name=name)
    if name := get("service.name"):
        return ObjectReference(kind="Service", namespace=namespace, name=name)
    raise InvalidEvent(
        "involvedObject",
        "is not known: the record has neither k8s.object.kind and .name, nor eventbus.object.kind and .name, nor"
        " service.name",
    )


def _time_of(record: LogRecord) -> datetime | None:
    nanoseconds = record.time_unix_nano or record.observed_time_unix_nano
    if not nanoseconds:
        return None
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        raise InvalidEvent("lastTimestamp", "is after the year 9999") from None


def _reason(event_name: str) -> str:
    """`shop.order.payment_failed` → PaymentFailed."""
    words = _WORD.findall(event_name.rpartition(".")[2]) or _WORD.findall(event_name)
    return "".join(word[:1].upper() + word[1:] for word in words) or "Received"


def _message(body: AnyValue) -> str:
    kind = body.WhichOneof("value")
    if kind == "string_value":
        return body.string_value
    return "" if kind is None else msgspec.json.encode(_plain(body)).decode()


def _plain(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bytes_value":
            return value.bytes_value
        case "array_value":
            return [_plain(each) for each in value.array_value.values]
        case "kvlist_value":
            return {each.key: _plain(each.value) for each in value.kvlist_value.values}
    return None
