"""Partitions of the PostgreSQL sink's table by day, so that old events are dropped and not deleted row by row.

    eventbus_events                    partitioned by `day`, which is the day in the event's name (eventbus_day)
    eventbus_events_d20260206          events that were recorded first on this day, in UTC
    eventbus_events_before_20260205    the table of before the migration, with all events of before this day
    eventbus_events_other              all others: without a day in their name, of a partition that was dropped, or of a
                                       day without a partition

The name decides the day, so an event is in one partition for ever, and (namespace, name, day) is as unique as
(namespace, name). A constraint of the table checks the day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from eventbus.errors import ConfigError, SinkUnreachable
from eventbus.export.sinks.postgres.schema import STEPS, UPSERT
from eventbus.util.log import log

#: The version of the tables with partitions; a build that does not know it refuses to write.
PARTITIONED: Final = len(STEPS) + 1
#: Partitions of this many days are made ahead.
AHEAD: Final = 3
#: Seconds between two looks for partitions to make or drop.
MAINTAIN_EVERY_S: Final = 600.0
#: No query waits longer for maintenance. A step without a lock in this time is done the next time.
LOCK_TIMEOUT_MS: Final = 2000
#: Rows of eventbus_events_other that are deleted at once.
DELETED_ROWS: Final = 10_000

#: Keys of advisory locks, unlikely to be used by other programs: eight letters, read as an integer.
_MIGRATION_LOCK: Final = int.from_bytes(b"eventbus", "big")
_LOCK: Final = int.from_bytes(b"eventday", "big")
_DAY_NS: Final = 86_400 * 10**9
_EPOCH: Final = date(1970, 1, 1)
#: The day of events without one; and the number of days from it to 1970.
_UNDATED: Final = date(1, 1, 1)
_EPOCH_DAYS: Final = (_EPOCH - _UNDATED).days
_LAST: Final = date(2100, 1, 1)
_NAME: Final = re.compile(r"eventbus_events_(d|before_)(\d{8})")

PARTITIONED_UPSERT: Final[LiteralString] = (
    UPSERT.replace("event, origin)\n", "event, origin, day)\n", 1)
    .replace("event, $2\n", "event, $2, eventbus_day(coalesce(meta->>'name', ''))\n", 1)
    .replace("ON CONFLICT (namespace, name)", "ON CONFLICT (namespace, name, day)", 1)
)

#: The indexes of the table, as `schema.STEPS` made them, by their names.
_INDEXES: Final[dict[str, LiteralString]] = {
    "eventbus_events_object": "(namespace, object_kind, object_name, last_seen DESC)",
    "eventbus_events_last_seen": "(last_seen DESC)",
    "eventbus_events_warnings": "(reason, last_seen DESC) WHERE type = 'Warning'",
    "eventbus_events_rv": "USING brin (rv)",
}


def migrate(connection: psycopg.Connection[Any], *, lock_timeout_ms: int, retention: bool = False) -> bool:
    """Bring the tables to the newest version. Return True if they have partitions.

    *retention*: an empty table gets partitions; one with rows needs `eventbus postgres partition`.

    Workers that start together migrate one at a time. A role without DDL rights may use tables of another role.

    Raises:   SinkUnreachable: the tables are of a newer version, or have rows and no partitions.  psycopg.Error.
    """
    version = table_version(connection)
    if version == PARTITIONED or (version == len(STEPS) and not retention):
        return version == PARTITIONED
    with connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{lock_timeout_ms}ms",))
        connection.execute("SELECT set_config('statement_timeout', '0', true)")  # an index over old rows takes its time
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS eventbus_schema"
            " (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        version = table_version(connection)
        if version > PARTITIONED:
            raise SinkUnreachable(f"the tables have version {version}, this worker knows {PARTITIONED}: upgrade it")
        for number, step in enumerate(STEPS[version:], start=version + 1):
            connection.execute(step)
            connection.execute("INSERT INTO eventbus_schema (version) VALUES (%s)", (number,))
        if retention and version < PARTITIONED and not partition_empty(connection):
            raise SinkUnreachable("retention= needs partitions, and the table has rows: eventbus postgres partition")
        return retention or version == PARTITIONED


def table_version(connection: psycopg.Connection[Any]) -> int:
    """Read the version of the tables; 0 if there are none."""
    exists = connection.execute("SELECT to_regclass('eventbus_schema') IS NOT NULL").fetchone()
    if exists is None or not exists[0]:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM eventbus_schema").fetchone()
    return 0 if row is None else int(row[0])


def partition(connection: psycopg.Connection[Any], *, report: Callable[[str], None]) -> None:
    """Give the existing table partitions. No row is copied. Can be called again after an interruption.

    Reads and writes go on during the two long steps, which read each row once. The switch holds an exclusive lock for
    some milliseconds. *connection* is in autocommit.

    Raises: ConfigError: a row has a name with a day in the future.  psycopg.Error.
    """
    cutover = _today() + timedelta(days=2)
    with _locks(connection, timeout_ms=30_000):
        with connection.transaction():
            connection.execute("ALTER TABLE eventbus_events DROP CONSTRAINT IF EXISTS eventbus_events_day")
            connection.execute("ALTER TABLE eventbus_events DROP CONSTRAINT IF EXISTS eventbus_events_undated")
            _add_day(connection, cutover)
        report("checking the day of each row")
        _validate(connection)
        report("building the index on namespace, name and day")
        _build_index(connection)
        report("switching")
        with connection.transaction():
            connection.execute("LOCK TABLE eventbus_events IN ACCESS EXCLUSIVE MODE")
            if _today() >= cutover:
                raise ConfigError("it took more than two days: call it again, which is faster", cure="call it again")
            _switch(connection, f"eventbus_events_before_{cutover:%Y%m%d}", attach=True)


def partition_empty(connection: psycopg.Connection[Any]) -> bool:
    """Give the table partitions if it has no rows. Call it in a transaction. Returns False: it has rows."""
    connection.execute("LOCK TABLE eventbus_events IN ACCESS EXCLUSIVE MODE")
    if connection.execute("SELECT 1 FROM eventbus_events LIMIT 1").fetchone():
        return False
    connection.execute("ALTER TABLE eventbus_events DROP CONSTRAINT IF EXISTS eventbus_events_day")
    connection.execute("ALTER TABLE eventbus_events DROP CONSTRAINT IF EXISTS eventbus_events_undated")
    _add_day(connection, date(2000, 1, 1))
    _switch(connection, "eventbus_events_empty", attach=False)
    return True


def maintain(connection: psycopg.Connection[Any], retention_days: int) -> None:
    """Make the partitions of the next days, and drop those of events that are older than the retention.

    Events that were last seen later than that stay. One worker at a time does it. *retention_days* 0: drop nothing.
    Raises: psycopg.Error.
    """
    made = {name for name, _ in partitions(connection)}
    for number in range(AHEAD):
        day = _today() + timedelta(days=number)
        if f"eventbus_events_d{day:%Y%m%d}" not in made:
            _attempt(connection, _make_day, day)
    if not retention_days:
        return
    oldest = _today() - timedelta(days=retention_days)
    for name, end in partitions(connection):
        if end <= oldest:
            _attempt(connection, _drop, name, oldest)
    _attempt(connection, _delete_others, oldest)


def partitions(connection: psycopg.Connection[Any]) -> list[tuple[str, date]]:
    """Return the partitions of days, and that of before the migration, with the day after their last, oldest first."""
    rows = connection.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
        " WHERE inhparent = to_regclass('eventbus_events')"
    ).fetchall()
    found = []
    for (name,) in rows:
        if match := _NAME.fullmatch(name):
            day = datetime.strptime(match[2], "%Y%m%d").date()
            found.append((name, day + timedelta(days=match[1] == "d")))
    return sorted(found, key=lambda each: each[1])


def _add_day(connection: psycopg.Connection[Any], cutover: date) -> None:
    """Add the column, and the function that computes it: undated for names with a day before *cutover*."""
    connection.execute(
        sql.SQL("ALTER TABLE eventbus_events ADD COLUMN IF NOT EXISTS day date NOT NULL DEFAULT {}").format(_UNDATED)
    )
    # One expression, which PostgreSQL inlines. The digits are compared as text: only those that fit become a number.
    digits = 'right(name, 16) COLLATE "C"'
    first, last = (f"{(day - _EPOCH).days * _DAY_NS:016x}" for day in (cutover, _LAST))
    body = (
        f"SELECT date '{_UNDATED}' + CASE WHEN right(name, 17) ~ '^[.][0-7][0-9a-f]{{15}}$'"
        f" AND {digits} >= '{first}' AND {digits} < '{last}'"
        f" THEN (('x' || right(name, 16))::bit(64)::bigint / {_DAY_NS})::integer + {_EPOCH_DAYS} ELSE 0 END"
    )
    connection.execute(
        sql.SQL(
            "CREATE OR REPLACE FUNCTION eventbus_day(name text) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS {}"
        ).format(sql.Literal(body))
    )
    connection.execute(
        sql.SQL(
            "ALTER TABLE eventbus_events ADD CONSTRAINT eventbus_events_day CHECK (day = eventbus_day(name)) NOT VALID,"
            " ADD CONSTRAINT eventbus_events_undated CHECK (day <= {}) NOT VALID"
        ).format(_UNDATED)
    )


def _validate(connection: psycopg.Connection[Any]) -> None:
    """Read each row once. Writes go on."""
    try:
        connection.execute(
            "ALTER TABLE eventbus_events VALIDATE CONSTRAINT eventbus_events_day,"
            " VALIDATE CONSTRAINT eventbus_events_undated"
        )
    except psycopg.errors.CheckViolation:
        raise ConfigError(
            "a row of eventbus_events has a name with a day in the future: SELECT namespace, name FROM eventbus_events"
            " WHERE eventbus_day(name) <> day; delete these rows, or call it again when their day has come"
        ) from None


def _build_index(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('eventbus_events_key')"
    ).fetchone()
    if row is not None and not row[0]:  # of a call that was interrupted
        connection.execute("DROP INDEX CONCURRENTLY eventbus_events_key")
    if row is None or not row[0]:
        connection.execute(
            "CREATE UNIQUE INDEX CONCURRENTLY eventbus_events_key ON eventbus_events (namespace, name, day)"
        )


def _switch(connection: psycopg.Connection[Any], old: str, *, attach: bool) -> None:
    """Put a table with partitions in the place of the table, which becomes the partition *old*, or is dropped."""
    table = sql.Identifier(old)
    connection.execute(sql.SQL("ALTER TABLE eventbus_events RENAME TO {}").format(table))
    for name in (*_INDEXES, "eventbus_events_key"):
        connection.execute(
            sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(f"{name}_old"))
        )
    connection.execute(
        sql.SQL(
            "CREATE TABLE eventbus_events (LIKE {} INCLUDING DEFAULTS INCLUDING COMMENTS,"
            " CONSTRAINT eventbus_events_day CHECK (day = eventbus_day(name))) PARTITION BY RANGE (day)"
        ).format(table)
    )
    connection.execute("CREATE UNIQUE INDEX eventbus_events_key ON eventbus_events (namespace, name, day)")
    for name, columns in _INDEXES.items():
        _create_index(connection, name, "eventbus_events", columns)
    if attach:
        # Its constraint proves that all rows fit, and its indexes are those of the new table: nothing is read.
        connection.execute(
            sql.SQL("ALTER TABLE eventbus_events ATTACH PARTITION {} FOR VALUES FROM (MINVALUE) TO ({})").format(
                table, _UNDATED + timedelta(days=1)
            )
        )
        connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT eventbus_events_undated").format(table))
    else:
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
    connection.execute("CREATE TABLE eventbus_events_other PARTITION OF eventbus_events DEFAULT")
    for number in range(-1, AHEAD):
        _make_day(connection, _today() + timedelta(days=number))
    connection.execute("INSERT INTO eventbus_schema (version) VALUES (%s)", (PARTITIONED,))


def _create_index(connection: psycopg.Connection[Any], name: str, table: str, columns: LiteralString) -> None:
    statement = sql.SQL("CREATE INDEX {} ON {} ").format(sql.Identifier(name), sql.Identifier(table))
    connection.execute(statement + sql.SQL(columns))


def _make_day(connection: psycopg.Connection[Any], day: date) -> None:
    connection.execute(
        sql.SQL("CREATE TABLE {} PARTITION OF eventbus_events FOR VALUES FROM ({}) TO ({})").format(
            sql.Identifier(f"eventbus_events_d{day:%Y%m%d}"), day, day + timedelta(days=1)
        )
    )


def _drop(connection: psycopg.Connection[Any], name: str, oldest: date) -> None:
    """Drop a partition, but for the events that were last seen on *oldest* or later, which go to the other one."""
    # All writers use this table, so that none changes a row between the copy and the drop.
    connection.execute("LOCK TABLE ONLY eventbus_events IN ACCESS EXCLUSIVE MODE")
    table = sql.Identifier(name)
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE eventbus_kept ON COMMIT DROP AS SELECT * FROM {} WHERE last_seen >= {}").format(
            table, oldest
        )
    )
    connection.execute(sql.SQL("DROP TABLE {}").format(table))
    kept = connection.execute("INSERT INTO eventbus_events SELECT * FROM eventbus_kept").rowcount
    connection.execute("DROP TABLE eventbus_kept")
    log.info("retention: %s is dropped; %d events of it go on, and are kept", name, kept)


def _delete_others(connection: psycopg.Connection[Any], oldest: date) -> None:
    connection.execute(
        "DELETE FROM eventbus_events_other WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM eventbus_events_other WHERE last_seen < %s LIMIT %s))",
        (oldest, DELETED_ROWS),
    )


def _attempt(connection: psycopg.Connection[Any], work: Callable[..., None], *given: object) -> None:
    """Do it in a transaction of its own, so that no lock is held longer than needed, or leave it for the next time.

    Then another transaction or worker is in the way, or rows of this day are in the other partition.
    """
    try:
        with connection.transaction():
            row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_LOCK,)).fetchone()
            if row is None or not row[0]:
                return
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_TIMEOUT_MS}ms",))
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            work(connection, *given)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation, psycopg.errors.DuplicateTable) as error:
        log.debug("maintenance of %s is not possible now: %s", given[0], error)


@contextmanager
def _locks(connection: psycopg.Connection[Any], *, timeout_ms: int) -> Iterator[None]:
    """Let one process at a time work, without a limit for statements, and a limit for locks."""
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{timeout_ms}ms",))
        connection.execute("SELECT set_config('statement_timeout', '0', false)")
        yield
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _today() -> date:
    return datetime.now(UTC).date()
