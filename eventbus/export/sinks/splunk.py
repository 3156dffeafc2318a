"""Sends events to the HTTP Event Collector of Splunk. It cannot recognize a repeat: doubles are possible.

splunk+https://host:8088?index=INDEX    the token: EVENTBUS_EXPORT_HEADERS="Authorization: Splunk …"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from eventbus.errors import SinkUnreachable
from eventbus.export.sinks.common import query_of, row_of
from eventbus.export.sinks.contract import SinkWrite
from eventbus.export.sinks.http_batch import HttpBatchSink, Request, Verdict, compressed, open_http_sink
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.decodable import decodable
from eventbus.util.http.guarded_http import MAX_REPLY_BYTES, Reply, error_of

PATH: Final = "/services/collector/event"
SOURCE_TYPE: Final = "eventbus:event"
#: Splunk Cloud accepts 1 MB.
MOST_BYTES: Final = 800 * 1024
#: Codes of answers with 400 that concern every event: the index is wrong, or acknowledgements are required.
_OF_ALL: Final = frozenset({7, 10, 11, 14})

_ENCODE: Final = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct):
    code: int = 0
    invalid: int | None = msgspec.field(default=None, name="invalid-event-number")


_ANSWER: Final = msgspec.json.Decoder(decodable(_Answer)).decode


def make_splunk_sink(url: str, options: SinkOptions) -> HttpBatchSink:
    """Make the sink of `splunk+https://host:8088`. Raises: ConfigError."""
    return open_http_sink(url, options, CollectorEvents)


class CollectorEvents:
    """The `BatchFormat` of the HTTP Event Collector."""

    most_events = 2_000
    most_bytes = MOST_BYTES
    most_reply_bytes = MAX_REPLY_BYTES
    opening: Sequence[Request] = ()

    def __init__(self, url: str) -> None:
        index = query_of(url, "index").get("index", "")
        parts = urlsplit(url)
        self._url = urlunsplit(parts._replace(path=parts.path.rstrip("/") + PATH, query="", fragment=""))
        self._more = {"index": index} if index else {}

    def encode(self, write: SinkWrite) -> bytes:
        row, _ = row_of(write.event)
        event = {"delivery_id": write.delivery_id, **row}
        envelope = {
            "time": round(row["last_seen"].timestamp(), 3),
            "host": row["host"] or row["component"] or "eventbus",
            "source": "eventbus",
            "sourcetype": SOURCE_TYPE,
            **self._more,
            "event": event,
        }
        return _ENCODE(envelope)

    def request(self, parts: Sequence[bytes]) -> Request:
        return compressed(self._url, b"\n".join(parts), "application/json")

    def judge(self, reply: Reply, events: int) -> Verdict:
        """Return the meaning. Splunk may have stored the events before the invalid one: halving would repeat them."""
        error = error_of(reply, "Splunk")
        if error is None or reply.status != 400:
            return Verdict(error)
        answer = _answer_of(reply)
        if answer.code in _OF_ALL:
            return Verdict(SinkUnreachable(str(error), status=reply.status))
        known = answer.invalid is not None and 0 <= answer.invalid < events
        return Verdict(error, culprit=answer.invalid if known else None)


def _answer_of(reply: Reply) -> _Answer:
    try:
        return _ANSWER(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return _Answer()
