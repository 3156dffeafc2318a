"""Writes events into PostgreSQL: one row an event, in batches, never overwritten by an older version.

postgresql://role@host/database?sslmode=verify-full     password: EVENTBUS_POSTGRES_PASSWORD, …_FILE, or ~/.pgpass
…?retention=90d     partitions by day, of which old ones are dropped: see `partitions.py`
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, LiteralString
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from eventbus.errors import (
    ConfigError,
    EventRejected,
    EventUnbuildable,
    SinkError,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks.common import (
    AppendsBatches,
    check_host,
    error_text,
    retention_days,
    storable_core,
    version_of,
)
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.postgres.partitions import MAINTAIN_EVERY_S, PARTITIONED_UPSERT, maintain, migrate
from eventbus.export.sinks.postgres.schema import CLASHES, DELETE, HELD, UPSERT
from eventbus.export.sinks.registry import SinkOptions, safe_sink_url, take_option
from eventbus.model.encoding.event_json import decode_core
from eventbus.model.event import Event
from eventbus.util.log import log

PASSWORD: Final = "EVENTBUS_POSTGRES_PASSWORD"

#: Rows of a statement at the most: 2 MiB if every event were as large as may be 4 KiB, and some 20 ms for the server.
STATEMENT_ROWS: Final = 500
CONNECT_TIMEOUT_S: Final = 5
#: A migration may have to build an index over all rows.
_MIGRATION_S: Final = 600.0

#: The parameters that select the tables, and the variables that libpq reads if the URL does not set them.
_TARGET: Final = {
    "service": "PGSERVICE",
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "options": "PGOPTIONS",
}
_SEARCH_PATH: Final = re.compile(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)", re.IGNORECASE)

_ENCODE: Final = msgspec.json.Encoder().encode


def make_postgres_sink(url: str, options: SinkOptions) -> PostgresSink:
    """Make the sink of `postgresql://…`: libpq's URL, all of its parameters. Raises: ConfigError."""
    url, retention_days = split_retention(url)
    parameters = _parameters(url)
    options.secret(PASSWORD)  # report an unreadable file at start
    return PostgresSink(
        options.name,
        parameters,
        password=lambda: options.secret(PASSWORD),
        timeout_s=options.timeout_s,
        retention_days=retention_days,
    )


def connect_to_tables(url: str, environ: Mapping[str, str]) -> psycopg.Connection[Any]:
    """Connect to the database of a sink's URL, for a command. Raises: ConfigError, SinkUnreachable."""
    sink = make_postgres_sink(url, SinkOptions(name="tables", environ=environ, timeout_s=10))
    try:
        return sink.dial()
    except psycopg.Error as error:
        raise translate(error) from error


def split_retention(url: str) -> tuple[str, int]:
    """Take `retention=90d` out of *url*: libpq does not know it. Return both; 0: none. Raises: ConfigError."""
    rest, given = take_option(url, "retention")
    return rest, 0 if given is None else retention_days(given)


def target_of(url: str, environ: Mapping[str, str]) -> str:
    """Return the database and tables of `postgresql://…`: server, port, database, and search_path if it is given.

    The user and the options of the connection are not part of it. Raises: ConfigError.
    """
    parameters = _parameters(split_retention(url)[0])
    target = {name: str(parameters.get(name) or environ.get(variable, "")) for name, variable in _TARGET.items()}
    target["port"] = target["port"] or "5432"
    # libpq's default: the database is called as the user.
    target["dbname"] = target["dbname"] or str(parameters.get("user") or environ.get("PGUSER", ""))
    target["options"] = (_SEARCH_PATH.findall(target["options"]) or [""])[-1]
    return "postgresql " + " ".join(f"{name}={value}" for name, value in target.items() if value)


def _parameters(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.Error:
        # libpq's own words may quote the password
        unknown = ", ".join(map(repr, _unknown_parameters(url)))
        why = f": there is no parameter {unknown}" if unknown else ""
        raise ConfigError(f"{safe_sink_url(url)} is not a URL that PostgreSQL's clients can read{why}") from None


def _unknown_parameters(url: str) -> list[str]:
    """Return the names in the query that libpq does not know; none that may be a piece of a password."""
    query = urlsplit(url).query
    if "@" in query or "password" in query:
        return []
    # In a URL libpq takes JDBC's ssl=true too.
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    names = [unquote(name) for name, equals, _ in (part.partition("=") for part in query.split("&")) if equals]
    return [name for name in dict.fromkeys(names) if name not in known]


class PostgresSink(AppendsBatches):
    """One connection, opened on demand. The first worker that connects creates or migrates the tables.

    A row is replaced only by a larger version of the same event, so that repeats, late workers and lost replies change
    nothing. A statement is one transaction. If a row has invalid data, only this row fails: the batch is halved until
    the row is found.

    Args:     parameters: libpq's.  password: called at every connect, because the password may change; "": use the
              parameters' password.  timeout_s: of a statement; the server's own limit is half of it.
              retention_days: how long events stay in a table with partitions; 0: for ever, with or without them.
    """

    mode = SinkMode.UPSERT

    def __init__(
        self,
        name: str,
        parameters: dict[str, Any],
        *,
        password: Callable[[], str],
        timeout_s: float,
        retention_days: int = 0,
    ) -> None:
        self.name = name
        self._retention_days = retention_days
        self._upsert: LiteralString = UPSERT
        self._maintained = -MAINTAIN_EVERY_S  #: when, by the monotonic clock
        self._parameters = parameters
        self._password = password
        self._timeout_s = timeout_s
        self._rows = STATEMENT_ROWS
        self._connection: psycopg.Connection[Any] | None = None

    def __repr__(self) -> str:
        shown = {key: self._parameters[key] for key in ("host", "port", "dbname") if key in self._parameters}
        return f"<PostgresSink {self.name} {shown}>"

    def open(self) -> None:
        """Connect, and make or migrate the tables. Raises: SinkUnreachable, Throttled."""
        try:
            self._connected()
        except psycopg.Error as error:
            raise translate(error) from error

    def check(self) -> None:
        """Connect once, without writing.

        Raises: ConfigError: no host name resolves, or the server refuses this database or user permanently. Other
                errors may be temporary: the first write reports them.
        """
        if not self._parameters.get("hostaddr"):
            hosts = str(self._parameters.get("host") or "").split(",")
            check_host(*(host for host in hosts if host and not host.startswith("/")))
        try:
            self.dial().close()
        except SinkUnreachable:
            return  # no password as yet
        except psycopg.Error as error:
            text = str(error)
            named = [str(self._parameters[key]) for key in ("dbname", "user") if self._parameters.get(key)]
            # libpq has no SQLSTATE for a failed connect, and the server's messages may be localized. But they contain
            # FATAL and the refused name. Errors about the number of connections, or a database that accepts none for
            # now, are temporary.
            refused = text.partition("FATAL")[2]
            if any(name in refused for name in named) and "connections" not in refused:
                cure = "correct the sink's URL or password, or make the database"
                why = error_text(text.partition("FATAL:")[2] or text)
                raise ConfigError(f"PostgreSQL refuses: {why}: {cure}", cure=cure) from None

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Insert or replace the rows, up to 500 a statement; if one fails, so does every row that is left."""
        batch = _Batch(writes)
        while rows := batch.next(self._rows):
            try:
                self._put(batch, rows)
            except SinkError as error:
                batch.fail(error)
        return batch.answers

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Read the rows of *origin* in a range of versions, seen since then. Raises: SinkUnreachable, Throttled."""
        rows = self._alone(HELD, (origin, after, until, since, most)).fetchall()
        return [decode_core(text) for (text,) in rows]

    def delete(self, events: Sequence[Event]) -> int:
        """Delete the rows that have exactly these uids and versions. Raises: EventRejected: no right to; as `held`."""
        return self._alone(DELETE, (_ENCODE([storable_core(event) for event in events]).decode(),)).rowcount

    def _alone(self, query: LiteralString, parameters: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        """Execute a statement that may have to read many rows: its limit of time is a migration's."""
        try:
            connection = self._connected()
            with hang_up_after(_MIGRATION_S, connection.fileno()), connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', '0', true)")
                return connection.execute(query, parameters)
        except psycopg.errors.InsufficientPrivilege as error:
            raise EventRejected(str(translate(error))) from error
        except psycopg.Error as error:
            self.close()
            raise translate(error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _put(self, batch: _Batch, rows: list[_Row]) -> None:
        try:
            clashes = self._write_rows(rows, batch.origin)
        except psycopg.Error as error:
            translated = translate(error)
            if not is_of_one_row(translated):
                self._recover(error)
                raise translated from error
            if len(rows) == 1:
                batch.settle(rows, translated)
                return
            middle = len(rows) // 2
            self._put(batch, rows[:middle])
            self._put(batch, rows[middle:])
            return
        for number in clashes:
            batch.answers[rows[number].place] = EventRejected("an event of another object has its name")
        batch.settle(rows)
        self._rows = min(self._rows * 2, STATEMENT_ROWS)

    def _write_rows(self, rows: list[_Row], origin: str) -> Sequence[int]:
        """Write *rows*. Return the numbers of those with a name that an event of another object uses."""
        events = "[" + ",".join(row.json for row in rows) + "]"
        connection = self._connected()
        with hang_up_after(self._timeout_s, connection.fileno()):
            if psycopg.RawCursor(connection).execute(self._upsert, (events, origin)).rowcount == len(rows):
                return ()
        # Rare: these rows had been written already, or another object has the name.
        with hang_up_after(self._timeout_s, connection.fileno()):
            return [number for (number,) in connection.execute(CLASHES, (events,)).fetchall()]

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        if self._upsert is not UPSERT and time.monotonic() - self._maintained >= MAINTAIN_EVERY_S:
            self._maintain(self._connection)
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        timeout_ms = int(self._timeout_s * 1000)
        connection = self.dial()
        try:
            # If the client has timed out, the server must end the statement as well.
            with hang_up_after(_MIGRATION_S, connection.fileno()):
                connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{timeout_ms // 2}ms",))
                is_partitioned = migrate(connection, lock_timeout_ms=timeout_ms, retention=bool(self._retention_days))
                self._upsert = PARTITIONED_UPSERT if is_partitioned else UPSERT
        except BaseException:
            connection.close()
            raise
        return connection

    def _maintain(self, connection: psycopg.Connection[Any]) -> None:
        """Make and drop partitions. Without it events are written all the same."""
        self._maintained = time.monotonic()
        try:
            with hang_up_after(_MIGRATION_S, connection.fileno()):
                maintain(connection, self._retention_days)
        except psycopg.errors.InsufficientPrivilege as error:  # the owner's worker does it
            log.debug("the partitions are not maintained: %s", error)

    def dial(self) -> psycopg.Connection[Any]:
        """Connect, without the tables. Raises: psycopg.Error; SinkUnreachable: the password cannot be read."""
        options: dict[str, Any] = {
            "connect_timeout": min(CONNECT_TIMEOUT_S, max(2, int(self._timeout_s))),
            "application_name": f"eventbus {self.name}"[:63],
            "keepalives_idle": 10,
            "tcp_user_timeout": int(self._timeout_s * 1000),
        }
        try:
            password = self._password()
        except ConfigError as error:
            raise SinkUnreachable(str(error)) from error
        parameters = options | self._parameters | ({"password": password} if password else {})
        # No prepared statements: a connection pooler may run each statement in another session.
        return psycopg.connect(**parameters | {"client_encoding": "UTF8"}, autocommit=True, prepare_threshold=None)

    def _recover(self, error: psycopg.Error) -> None:
        if isinstance(error, psycopg.errors.QueryCanceled):
            # Else a batch that is too large for a slow server would time out again and again.
            self._rows = max(1, self._rows // 2)
        # The next connection may reach another server with other tables.
        self.close()


class _Row(msgspec.Struct, frozen=True):
    place: int
    key: tuple[str, str]
    json: str


class _Batch:
    """The rows of the writes that can be built, and an answer for every write."""

    def __init__(self, writes: Sequence[SinkWrite]) -> None:
        self.answers: list[SinkAnswer] = [write.event for write in writes]
        self.origin = writes[0].origin if writes else ""
        rows = []
        for place, write in enumerate(writes):
            metadata = write.event.metadata
            try:
                version_of(write.event)
                body = _ENCODE(storable_core(write.event)).decode()
            except EventUnbuildable as error:
                self.answers[place] = error
            else:
                rows.append(_Row(place, (metadata.namespace, metadata.name), body))
        # Two workers that write the same events in another order would wait for each other.
        self._left = sorted(rows, key=lambda row: row.key)

    def next(self, limit: int) -> list[_Row]:
        """Return the first rows that are not settled."""
        return self._left[:limit]

    def settle(self, rows: Sequence[_Row], error: SinkError | None = None) -> None:
        """Note that *rows*, which are the next ones, are written, or failed with *error*."""
        for row in rows if error else ():
            self.answers[row.place] = error or self.answers[row.place]
        self._left = self._left[len(rows) :]

    def fail(self, error: SinkError) -> None:
        """Note that all rows not settled failed."""
        self.settle(list(self._left), error)


@contextmanager
def hang_up_after(seconds: float, fileno: int) -> Iterator[None]:
    """Shut the connection down if the body takes longer, so that a blocked read ends.

    A frozen server keeps its connections alive: neither keep-alive nor the server's own timeouts end the wait.

    Raises: psycopg.OperationalError: the body took longer, or the process may not start the thread that watches it.
    """
    # Shut down a duplicate: the descriptor may be closed and its number reused before the timer fires.
    with socket.socket(fileno=os.dup(fileno)) as line:
        late = threading.Event()
        timer = threading.Timer(seconds, _hang_up, (line, late))
        timer.name, timer.daemon = "eventbus-watchdog", True
        try:
            timer.start()
        except RuntimeError as error:
            raise psycopg.OperationalError(str(error)) from error
        try:
            yield
        except psycopg.OperationalError as error:  # libpq says that the server has closed the connection
            if late.is_set():
                raise psycopg.OperationalError("no answer in time") from error
            raise
        finally:
            timer.cancel()
            timer.join()


def _hang_up(line: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


#: This row will never do: data exceptions, broken constraints, program limits (a value too long for an index), RAISE
#: of a trigger. 21: two rows of one batch are the same event, which splitting cures.
_ROW: Final = frozenset({"21", "22", "23", "44", "54", "P0"})
#: Another transaction was in the way; nothing was written.
_BUSY: Final = frozenset({"40", "55"})
#: The server answers, but fails on this row: retried, then a dead letter.
_ODD: Final = frozenset({"XX"})
#: All other classes concern every row: 08 connection, 25 read-only standby, 28 and 42 no permission or no table, 3D no
#: database, 53 out of disk, memory or connections, 57 shut down or statement_timeout, 58 input or output failed.

_PAUSE_S: Final = 0.2


def translate(error: psycopg.Error) -> SinkError:
    """Return the error to raise or, if it concerns only one row (`hits_one_row`), to return as the row's answer.

    It contains no values of a row."""
    # Only the primary message: detail and context quote the row's values.
    message = error.diag.message_primary or str(error)
    text = error_text(f"{error.sqlstate or 'connection'}: {message}")
    kind = (error.sqlstate or "")[:2]
    if kind in _BUSY:
        return Throttled(text, retry_after_s=_PAUSE_S)
    if kind in _ROW or (error.sqlstate is None and isinstance(error, psycopg.DataError)):
        return EventRejected(text)
    if kind in _ODD:
        return UnexpectedReply(text)
    return SinkUnreachable(text)


def is_of_one_row(error: SinkError) -> bool:
    """Return True if the others of a batch may be written: the fault is of one row."""
    return isinstance(error, EventRejected | UnexpectedReply)
