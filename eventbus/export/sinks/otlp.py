"""Sends events as log records to an OpenTelemetry collector, or to another server of OTLP over HTTP, such as Loki.

otlp://host:4318, otlps://host          POST /v1/logs; a path of the URL comes before it
loki+https://host                       POST /otlp/v1/logs
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from eventbus.errors import EventRejected, EventUnbuildable, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.common import query_of, repaired
from eventbus.export.sinks.contract import SinkWrite
from eventbus.export.sinks.http_batch import HttpBatchSink, Request, Verdict, compressed, open_http_sink
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.encoding.otlp import LogRecordPacker
from eventbus.model.event import Event
from eventbus.util.http.guarded_http import MAX_REPLY_BYTES, Reply, error_of
from eventbus.util.log import log
from eventbus.util.text import cut_bytes, printable, repair

PROTOBUF: Final = "application/x-protobuf"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@-]+")
_ENCODE: Final = msgspec.json.Encoder().encode
#: A collector takes 20 MiB, after expansion.
MOST_BYTES: Final = 4 * 1024 * 1024


def make_otlp_sink(url: str, options: SinkOptions) -> HttpBatchSink:
    """Make the sink of `otlp://host:4318` or `otlps://…`. Raises: ConfigError."""
    return open_http_sink(url, options, lambda url: LogRecords(url, "/v1/logs", options.bus_id))


def make_loki_sink(url: str, options: SinkOptions) -> HttpBatchSink:
    """Make the sink of `loki+https://host`. Raises: ConfigError."""
    return open_http_sink(url, options, lambda url: LokiLines(url, "/otlp/v1/logs", options.bus_id))


class LogRecords:
    """The `BatchFormat` of OTLP over HTTP, in protobuf. *path* is added to that of *url*."""

    most_events = 10_000
    most_bytes = MOST_BYTES
    most_reply_bytes = MAX_REPLY_BYTES
    opening: Sequence[Request] = ()

    def __init__(self, url: str, path: str, bus_id: str) -> None:
        query_of(url)
        parts = urlsplit(url)
        self._url = urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))
        self._packer = LogRecordPacker(bus_id)

    def encode(self, write: SinkWrite) -> bytes:
        try:
            return self._pack(write.event, write.delivery_id)
        except ValueError:  # a lone surrogate
            pass
        try:
            return self._pack(repaired(write.event), repair(write.delivery_id))
        except (ValueError, TypeError, OverflowError) as error:
            raise EventUnbuildable(f"no log record can be made of it: {error}") from error

    def _pack(self, event: Event, uid: str) -> bytes:
        return self._packer.pack(event, uid=uid, now_ns=time.time_ns(), body=self._body(event, uid))

    def _body(self, event: Event, _uid: str) -> str:
        return event.message

    def request(self, parts: Sequence[bytes]) -> Request:
        return compressed(self._url, b"".join(parts), PROTOBUF)

    def judge(self, reply: Reply, events: int) -> Verdict:
        """Return the meaning. By the protocol, only 429, 502, 503 and 504 are tried again.

        Departure: so are replies that no event can change, such as 401 and 404.
        """
        if not 200 <= reply.status < 300:
            error = error_of(reply, "the server")
            if error is None or isinstance(error, UnexpectedReply):
                error = EventRejected(str(error or f"the server answered {reply.status}"))
            return Verdict(error)
        if not reply.body:  # as Loki's 204
            return Verdict()
        if reply.headers.get("content-type", "").partition(";")[0].strip() != PROTOBUF:
            return Verdict(SinkUnreachable("the server does not answer in protobuf: it does not speak OTLP/HTTP"))
        try:
            partial = ExportLogsServiceResponse.FromString(reply.body).partial_success
        except DecodeError:
            return Verdict(SinkUnreachable("the server's answer is no ExportLogsServiceResponse: is it a collector?"))
        text = cut_bytes(printable(partial.error_message), 200)
        rejected = partial.rejected_log_records
        if rejected <= 0:
            if text:
                log.warning("the server accepted all log records, with a warning: %s", text)
            return Verdict()
        if rejected >= events:
            return Verdict(each=[EventRejected(f"the server rejected it: {text}")] * events)
        log.warning("the server rejected %d of %d log records: %s", rejected, events, text)
        return Verdict(rejected=rejected)


class LokiLines(LogRecords):
    """The format for Loki. Its lines name the object and the delivery id.

    Loki drops a line if the stream has an equal line with an equal time, and ignores the attributes. Of the events of
    ten pods with the same message in the same second, it would store one.
    """

    def _body(self, event: Event, uid: str) -> str:
        about = event.involved_object
        fields = {"kind": about.kind, "name": about.name, "type": event.type, "reason": event.reason, "id": uid}
        return " ".join(f"{name}={_logfmt(text)}" for name, text in [*fields.items(), ("msg", event.message)])


def _logfmt(text: str) -> str:
    """Return *text* as a value of logfmt: quoted, unless it is a plain word."""
    return text if _PLAIN.fullmatch(text) else _ENCODE(text).decode()
