"""Writes events into a data stream of Elasticsearch or OpenSearch: a document for each change of an event.

elasticsearch+https://host:9200/STREAM, opensearch+https://host:9200/STREAM      STREAM: eventbus unless given
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from eventbus.errors import ConfigError, EventRejected, InvalidEvent, SinkError, UnexpectedReply
from eventbus.export.sinks.common import query_of, row_of
from eventbus.export.sinks.contract import SinkWrite, delivery_id
from eventbus.export.sinks.http_batch import (
    PAGE_EVENTS,
    Ask,
    HttpBatchSink,
    Request,
    Verdict,
    compressed,
    open_http_sink,
)
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import decode_core
from eventbus.model.event import Event
from eventbus.util.http.guarded_http import Reply, error_of

DEFAULT_STREAM: Final = "eventbus"
#: Both allow 100 MiB; they advise 5 to 15.
MOST_BYTES: Final = 5 * 1024 * 1024
#: Of a document's id.
MOST_ID_BYTES: Final = 512
#: Above the priority of the templates that come with Elasticsearch, for names like logs-eventbus-default.
PRIORITY: Final = 500
_STREAM: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,200}\Z")

_ENCODE: Final = msgspec.json.Encoder().encode
_KEYWORD: Final = {"type": "keyword", "ignore_above": 1024}
_MAPPINGS: Final = {
    # A field that it does not name is kept, and not searchable: events cannot make the index grow.
    "dynamic": False,
    "properties": {
        "@timestamp": {"type": "date"},
        **dict.fromkeys(("namespace", "name", "uid", "object_kind", "object_name", "object_uid"), _KEYWORD),
        **dict.fromkeys(("type", "reason", "component", "host", "origin"), _KEYWORD),
        "message": {"type": "text"},
        "count": {"type": "integer"},
        "version": {"type": "long"},
        "first_seen": {"type": "date"},
        "last_seen": {"type": "date"},
        "event": {"type": "object", "enabled": False},
    },
}


def make_elasticsearch_sink(url: str, options: SinkOptions) -> HttpBatchSink:
    """Make the sink of `elasticsearch+https://host/STREAM`. Raises: ConfigError."""
    return open_http_sink(url, options, Documents)


class _Error(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _Item(msgspec.Struct):
    status: Annotated[int, msgspec.Meta(ge=100, le=599)]
    error: _Error = msgspec.field(default_factory=_Error)


class _BulkReply(msgspec.Struct):
    items: list[dict[str, _Item]]


class _Source(msgspec.Struct):
    event: msgspec.Raw


class _Hit(msgspec.Struct):
    source: _Source = msgspec.field(name="_source")


class _Hits(msgspec.Struct):
    hits: list[_Hit] = []


class _Found(msgspec.Struct):
    hits: _Hits = msgspec.field(default_factory=_Hits)


class _Deleted(msgspec.Struct):
    deleted: int


class Documents:
    """The `BatchFormat` of `_bulk`. A document that is there already (409) counts as written."""

    most_events = 5_000
    most_bytes = MOST_BYTES
    most_reply_bytes = 4 * 1024 * 1024

    def __init__(self, url: str) -> None:
        query_of(url)
        parts = urlsplit(url)
        self._stream = parts.path.strip("/") or DEFAULT_STREAM
        if not _STREAM.match(self._stream):
            raise ConfigError(
                f"the data stream {self._stream!a} in the sink's URL: give small letters, digits, and . _ -"
            )
        self._server = urlunsplit(parts._replace(path="", query="", fragment=""))
        # Only these fields of the reply: a whole one is half as long as the request.
        read = "errors,items.*.status,items.*.error.type,items.*.error.reason"
        self._url = f"{self._server}/{self._stream}/_bulk?filter_path={read}"

    @property
    def opening(self) -> Sequence[Request]:
        """Return the request that makes the template of the data stream."""
        template = {
            "index_patterns": [self._stream],
            "data_stream": {},
            "priority": PRIORITY,
            "template": {"mappings": _MAPPINGS},
            "_meta": {"made_by": "eventbus"},
        }
        url = f"{self._server}/_index_template/eventbus-{self._stream}"
        return [Request(url, _ENCODE(template), {"content-type": "application/json"}, "PUT")]

    def encode(self, write: SinkWrite) -> bytes:
        row, core = row_of(write.event)
        document = {"@timestamp": row["last_seen"], **row, "origin": write.origin, "event": core}
        return _ENCODE({"create": {"_id": document_id(write.delivery_id)}}) + b"\n" + _ENCODE(document) + b"\n"

    def request(self, parts: Sequence[bytes]) -> Request:
        return compressed(self._url, b"".join(parts), "application/x-ndjson")

    def judge(self, reply: Reply, events: int) -> Verdict:
        """Return the meaning; of a reply with 200, that of each item."""
        if not 200 <= reply.status < 300:
            return Verdict(error_of(reply, "the server"))
        try:
            items = _ITEMS(reply.body).items
        except (msgspec.DecodeError, RecursionError):
            return Verdict(UnexpectedReply("the server's answer is no answer to _bulk"))
        if len(items) != events or any(len(item) != 1 for item in items):
            return Verdict(UnexpectedReply(f"the server answered {len(items)} items to {events}"))
        return Verdict(each=[_error_of(item) for (item,) in map(dict.values, items)])

    def held(self, ask: Ask, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Search the documents of *origin*. Not in the index yet are those of the last second: so refresh it before."""
        missing_is_empty = "ignore_unavailable=true"
        ask(Request(f"{self._server}/{self._stream}/_refresh?{missing_is_empty}", b"", {}))
        filters = [
            {"term": {"origin": origin}},
            {"range": {"version": {"gt": after, "lte": until}}},
            {"range": {"last_seen": {"gte": since}}},
        ]
        reply = self._query(
            ask,
            f"_search?{missing_is_empty}&filter_path=hits.hits._source",
            {
                "size": min(PAGE_EVENTS, most),
                "sort": ["version"],
                "_source": ["event"],
                "query": {"bool": {"filter": filters}},
            },
        )
        try:
            return [decode_core(hit.source.event) for hit in _FOUND(reply.body).hits.hits]
        except (msgspec.DecodeError, InvalidEvent, RecursionError) as error:
            raise EventRejected("the server's answer is no answer to _search") from error

    def delete(self, ask: Ask, events: Sequence[Event]) -> int:
        """Delete by query: a data stream deletes no document by its id."""
        filters = [
            {"ids": {"values": [document_id(delivery_id(event)) for event in events]}},
            {"terms": {"version": [int(event.metadata.resource_version) for event in events]}},
        ]
        reply = self._query(ask, "_delete_by_query?conflicts=proceed", {"query": {"bool": {"filter": filters}}})
        try:
            return _DELETED(reply.body).deleted
        except msgspec.DecodeError as error:
            raise EventRejected("the server's answer is no answer to _delete_by_query") from error

    def _query(self, ask: Ask, path: str, query: Any) -> Reply:
        url = f"{self._server}/{self._stream}/{path}"
        return ask(Request(url, _ENCODE(query), {"content-type": "application/json"}))


_ITEMS: Final = msgspec.json.Decoder(decodable(_BulkReply)).decode
_FOUND: Final = msgspec.json.Decoder(decodable(_Found)).decode
_DELETED: Final = msgspec.json.Decoder(decodable(_Deleted)).decode


def document_id(delivery_id: str) -> str:
    """Return the id of a document: the delivery id, or its digest if it is too long."""
    packed = delivery_id.encode("utf-8", "replace")
    return packed.decode() if len(packed) <= MOST_ID_BYTES else blake2b(packed, digest_size=32).hexdigest()


def _error_of(item: Any) -> SinkError | None:
    why = f"{item.error.type}: {item.error.reason}".encode()
    return error_of(Reply(item.status, {}, why), "the server")
