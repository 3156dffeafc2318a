"""Reads requests of OTLP/HTTP for logs, bounded: a log record is parsed alone, and becomes an event at once.

A small field may expand to an object of fifty bytes, so the parts around log records are walked, not parsed.
Needs `eventbus[otlp]`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from eventbus.api import status
from eventbus.api.eventbus_v1.intake import MAX_EVENTS
from eventbus.api.kube.protobuf import read_varint, varint
from eventbus.errors import InvalidEvent
from eventbus.model.bus_path import find_loop
from eventbus.model.decodable import decodable
from eventbus.model.encoding.otlp import BUS_PATH, RECORD_UID, event_of, texts_of
from eventbus.model.event import Event

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
#: Bytes of a body after expansion, as the collector has it.
MAX_BODY: Final = 20 * 1024 * 1024
#: Bytes of a log record, a resource or a scope.
MAX_PART: Final = 64 * 1024
#: Parts of a request, of any kind: without a limit, empty ones would keep a worker busy for minutes.
MAX_PARTS: Final = 4 * MAX_EVENTS
#: Objects of a request in JSON.
MAX_OBJECTS: Final = 20 * MAX_EVENTS
#: Characters of a `log.record.uid`.
MAX_UID: Final = 256


class Result(StrEnum):
    """The result of one log record, as it is counted."""

    ACCEPTED = "accepted"
    NO_EVENT_NAME = "no-event-name"
    OWN = "own"  #: it has passed this bus already
    TOO_MANY_BUSES = "too-many-buses"
    TOO_LARGE = "too-large"
    UNREADABLE = "unreadable"
    INVALID = "invalid"  #: no event, or one that its user may not record


#: Results of records that have come back, or go in circles.
LOOPS: Final = frozenset({Result.OWN, Result.TOO_MANY_BUSES})


class Received(NamedTuple):
    """A log record: its event, or why it has none. *uid*: `log.record.uid`, or ""."""

    event: Event | InvalidEvent
    result: Result
    uid: str = ""


class _Part(NamedTuple):
    """A log record that is not parsed, with the texts of its resource and the name of its scope."""

    record: bytes | memoryview
    texts: dict[str, str]
    scope: str


def read_logs(body: bytes, media_type: str, bus_id: str) -> list[Received]:
    """Read all log records of a request. Raises: ApiError: 400, 413."""
    is_json = media_type == JSON
    try:
        parts = _parts_of_json(body) if is_json else _parts_of_protobuf(body)
        found: list[Received] = []
        for part in parts:
            if len(found) == MAX_EVENTS:
                raise status.too_much(f"at most {MAX_EVENTS} log records in a request")
            found.append(_received(part, bus_id, is_json))
        return found
    except (DecodeError, ParseError, msgspec.DecodeError, RecursionError, ValueError, IndexError) as error:
        raise status.bad_request(f"the body is no ExportLogsServiceRequest: {str(error)[:200]}") from None


def pack_answer(rejected: int, text: str, media_type: str) -> bytes:
    """Return the ExportLogsServiceResponse of a request of which *rejected* records were not accepted."""
    answer = ExportLogsServiceResponse()
    if rejected:
        answer.partial_success.CopyFrom(ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=text))
    if media_type == JSON:
        return msgspec.json.encode(MessageToDict(answer))
    packed: bytes = answer.SerializeToString()
    return packed


def pack_status(code: int, message: str, media_type: str) -> bytes:
    """Return a google.rpc.Status with only these two fields. *code*: of HTTP, below 2^14."""
    if media_type == JSON:
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode("utf-8", "replace")
    return b"\x08" + varint(code) + b"\x12" + varint(len(text)) + text


def _received(part: _Part, bus_id: str, is_json: bool) -> Received:
    if len(part.record) > MAX_PART:
        problem = f"has {len(part.record)} bytes; at most {MAX_PART}"
        return Received(InvalidEvent("log record", problem), Result.TOO_LARGE)
    try:
        record = _record_of_json(part.record) if is_json else LogRecord.FromString(bytes(part.record))
    except (DecodeError, ParseError, msgspec.DecodeError, RecursionError, ValueError, TypeError) as error:
        return Received(InvalidEvent("log record", f"cannot be read: {str(error)[:200]}"), Result.UNREADABLE)
    if not record.event_name:
        problem = "is empty: only log records that are events are accepted"
        return Received(InvalidEvent("event_name", problem), Result.NO_EVENT_NAME)
    texts = part.texts | texts_of(record.attributes)
    if (loop := find_loop(BUS_PATH, texts.get(BUS_PATH, ""), bus_id)) is not None:
        return Received(loop, Result(loop.word))
    uid = texts.get(RECORD_UID, "")
    if len(uid) > MAX_UID:
        return Received(InvalidEvent(RECORD_UID, f"has more than {MAX_UID} characters"), Result.INVALID)
    try:
        return Received(event_of(record, texts, part.scope), Result.ACCEPTED, uid)
    except InvalidEvent as error:
        return Received(error, Result.INVALID)


# -- protobuf ----------------------------------------------------------------------------------------------------


class _Walk:
    """Counts the parts of one request."""

    def __init__(self) -> None:
        self._parts = 0

    def messages(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the number and bytes of each message in *data*. Raises: ValueError, IndexError: it is malformed."""
        place, end = 0, len(data)
        while place < end:
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise status.too_much(f"at most {MAX_PARTS} parts in a request")
            key, place = read_varint(data, place)
            match key & 7:
                case 0:
                    _, place = read_varint(data, place)
                case 1:
                    place += 8
                case 5:
                    place += 4
                case 2:
                    size, place = read_varint(data, place)
                    if size > end - place:
                        raise ValueError("it is cut off")
                    yield key >> 3, data[place : place + size]
                    place += size
                case _:
                    raise ValueError("it has an unknown wire type")
        if place > end:
            raise ValueError("it is cut off")


def _parts_of_protobuf(body: bytes) -> Iterator[_Part]:
    walk = _Walk()
    for number, resource_logs in walk.messages(memoryview(body)):
        if number != 1:
            continue
        resource, scopes = _head_and_items(walk, resource_logs)
        texts = texts_of(Resource.FromString(resource).attributes)
        for scope_logs in scopes:
            scope, records = _head_and_items(walk, scope_logs)
            name = InstrumentationScope.FromString(scope).name
            for record in records:
                yield _Part(record, texts, name)


def _head_and_items(walk: _Walk, data: memoryview) -> tuple[bytes, list[memoryview]]:
    """Return field 1, which may be in pieces that protobuf joins, and each field 2."""
    head, items = bytearray(), []
    for number, part in walk.messages(data):
        if number == 1:
            head += part
            if len(head) > MAX_PART:
                raise status.too_much(f"a resource or scope has at most {MAX_PART} bytes")
        elif number == 2:
            items.append(part)
    return bytes(head), items


# -- JSON --------------------------------------------------------------------------------------------------------


class _Counted(msgspec.Struct):
    """Any object, without its fields."""


class _CountedScopeLogs(msgspec.Struct, rename="camel"):
    log_records: list[_Counted] = []


class _CountedResourceLogs(msgspec.Struct, rename="camel"):
    scope_logs: list[_CountedScopeLogs] = []


class _CountedLogs(msgspec.Struct, rename="camel"):
    resource_logs: list[_CountedResourceLogs] = []


class _ScopeLogs(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = msgspec.Raw(b"{}")
    log_records: list[msgspec.Raw] = []


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_logs: list[_ScopeLogs] = []


class _Logs(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] = []


_COUNT: Final = msgspec.json.Decoder(decodable(_CountedLogs)).decode
_DECODE: Final = msgspec.json.Decoder(decodable(_Logs)).decode
_PLAIN: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _parts_of_json(body: bytes) -> Iterator[_Part]:
    if body.count(b"{") > MAX_OBJECTS:
        raise status.too_much(f"at most {MAX_OBJECTS} objects in a request")
    # A `Raw` has 80 bytes, even of one digit. This pass ends at a record that is no object: those are bounded above.
    _COUNT(body)
    for logs in _DECODE(body).resource_logs:
        resource = _message_of(logs.resource, Resource())
        texts = texts_of(resource.attributes)
        for scope_logs in logs.scope_logs:
            name = _message_of(scope_logs.scope, InstrumentationScope()).name
            for record in scope_logs.log_records:
                yield _Part(bytes(record), texts, name)


def _message_of(raw: msgspec.Raw, message: Any) -> Any:
    if len(data := bytes(raw)) > MAX_PART:
        raise status.too_much(f"a resource or scope has at most {MAX_PART} bytes")
    return ParseDict(_PLAIN(data), message, ignore_unknown_fields=True)


def _record_of_json(data: bytes | memoryview) -> LogRecord:
    """Read one record. Departure of OTLP from protobuf's JSON: trace and span ids are hexadecimal."""
    plain = _PLAIN(data)
    for name in ("traceId", "spanId"):
        if name in plain:
            plain[name] = base64.b64encode(bytes.fromhex(plain[name])).decode()
    record = LogRecord()
    ParseDict(plain, record, ignore_unknown_fields=True)
    return record
