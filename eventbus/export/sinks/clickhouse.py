"""Writes events into a table of ClickHouse: a row for each change of an event.

clickhouse+https://host:8443/DATABASE/TABLE     default/eventbus_events unless given; http: clickhouse+http://host:8123
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from eventbus.errors import ConfigError, EventRejected, InvalidEvent, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.common import query_of, row_of
from eventbus.export.sinks.contract import SinkWrite
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
from eventbus.util.http.guarded_http import MAX_REPLY_BYTES, Reply, error_of

DEFAULT_DATABASE, DEFAULT_TABLE = "default", "eventbus_events"
MOST_BYTES: Final = 8 * 1024 * 1024
#: Codes of exceptions of the server, answered with 500, that no row is to blame for: too many queries (202), no free
#: connection (203, 279), timeouts (159, 209), network (210), no keeper or a session of it that ended (225, 242, 999),
#: out of memory (241) or disk (243), too many parts (252), no quorum (285, 286, 319).
_OF_SERVER: Final = frozenset(
    {"159", "202", "203", "209", "210", "225", "241", "242", "243", "252", "279", "285", "286", "319", "999"}
)
#: By default, one insert may write to 100 partitions: to so many months, or days in tables of older builds.
_TOO_MANY_TARGETS: Final = b"partitions for single INSERT block"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_ENCODE: Final = msgspec.json.Encoder().encode

#: A repeat has the sorting key of its first write, and ClickHouse keeps one of them. The window drops repeated
#: inserts at once; without it, a table that is not replicated has none.
TABLE: Final = """\
CREATE TABLE IF NOT EXISTS {table} (
    namespace LowCardinality(String),
    name String,
    uid String,
    version UInt64,
    object_kind LowCardinality(String),
    object_name String,
    object_uid String,
    type LowCardinality(String),
    reason LowCardinality(String),
    message String,
    component LowCardinality(String),
    host LowCardinality(String),
    count Int32,
    first_seen Nullable(DateTime64(6, 'UTC')),
    last_seen DateTime64(6, 'UTC'),
    origin LowCardinality(String),
    event String
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(last_seen)
ORDER BY (namespace, object_kind, object_name, last_seen, uid, count)
SETTINGS non_replicated_deduplication_window = 1000
"""


def make_clickhouse_sink(url: str, options: SinkOptions) -> HttpBatchSink:
    """Make the sink of `clickhouse+https://host:8443/DATABASE/TABLE`. Raises: ConfigError."""
    return open_http_sink(url, options, Rows)


class Rows:
    """The `BatchFormat` of `INSERT … FORMAT JSONEachRow`."""

    most_events = 10_000
    most_bytes = MOST_BYTES
    most_reply_bytes = MAX_REPLY_BYTES

    def __init__(self, url: str) -> None:
        query_of(url)
        parts = urlsplit(url)
        names = [name for name in parts.path.split("/") if name]
        if len(names) > 2 or not all(map(_NAME.match, names)):
            raise ConfigError("the sink's URL must end with /DATABASE/TABLE, of letters, digits and _")
        database = names[0] if names else DEFAULT_DATABASE
        self._table = names[1] if len(names) == 2 else DEFAULT_TABLE
        self._url = urlunsplit(parts._replace(path="/", query=f"database={database}", fragment=""))

    @property
    def opening(self) -> Sequence[Request]:
        """Return the request that makes the table."""
        return [self._statement(TABLE.format(table=self._table))]

    def encode(self, write: SinkWrite) -> bytes:
        row, core = row_of(write.event)
        row |= {"origin": write.origin, "event": _ENCODE(core).decode()}
        return _ENCODE(row) + b"\n"

    def request(self, parts: Sequence[bytes]) -> Request:
        body = b"".join(parts)
        options = {
            "query": f"INSERT INTO {self._table} FORMAT JSONEachRow",
            "insert_deduplication_token": blake2b(body, digest_size=16).hexdigest(),
            "date_time_input_format": "best_effort",
            # Also if the user's profile says otherwise: an asynchronous insert ignores the token, and may be answered
            # before it is on disk.
            "async_insert": "0",
        }
        return compressed(f"{self._url}&{urlencode(options, quote_via=quote)}", body, "application/x-ndjson")

    def judge(self, reply: Reply, events: int) -> Verdict:
        code = reply.headers.get("x-clickhouse-exception-code", "")
        error = error_of(reply, "ClickHouse")
        if (
            code == "252" and _TOO_MANY_TARGETS in reply.body
        ):  # the code of too many parts, too; half of the rows may do
            return Verdict(UnexpectedReply(str(error), status=reply.status))
        if code and (error is None or code in _OF_SERVER):  # an exception after the head of an answer with 200
            return Verdict(SinkUnreachable(f"exception {code}: {error or 'after the head of the answer'}"))
        return Verdict(error)

    def held(self, ask: Ask, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        seen_us = (since - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        lines = self._rows(
            ask,
            f"SELECT event FROM {self._table} FINAL WHERE origin = {_literal(origin)}"
            f" AND version > {after} AND version <= {until} AND last_seen >= fromUnixTimestamp64Micro({seen_us})"
            f" ORDER BY version LIMIT {min(PAGE_EVENTS, most)} FORMAT JSONEachRow",
        )
        try:
            return [decode_core(_EVENT(line).event) for line in lines]
        except (msgspec.DecodeError, InvalidEvent, RecursionError) as error:
            raise EventRejected("the server's answer has other rows than those of JSONEachRow") from error

    def delete(self, ask: Ask, events: Sequence[Event]) -> int:
        """Delete the rows. They are counted before, because the answer has no number."""
        rows = [f"({_literal(event.metadata.uid)}, {int(event.metadata.resource_version)})" for event in events]
        where = f"WHERE (uid, version) IN ({', '.join(rows)})"
        (count,) = self._rows(ask, f"SELECT count() FROM {self._table} FINAL {where} FORMAT TabSeparated") or [b"0"]
        if int(count):
            self._rows(ask, f"DELETE FROM {self._table} {where}")
        return int(count)

    def _rows(self, ask: Ask, statement: str) -> Sequence[bytes]:
        reply = ask(self._statement(statement))
        if code := reply.headers.get("x-clickhouse-exception-code"):
            raise EventRejected(f"exception {code} after the head of the answer")
        return reply.body.splitlines()

    def _statement(self, text: str) -> Request:
        return Request(self._url, text.encode(), {"content-type": "text/plain"})


class _EventRow(msgspec.Struct):
    event: str


_EVENT: Final = msgspec.json.Decoder(decodable(_EventRow)).decode


def _literal(text: str) -> str:
    """Return *text* as a string of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
