"""`eventbus postgres partition`: changes the table of a PostgreSQL sink."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.input.options import ask_consent
from eventbus.errors import ConfigError
from eventbus.util.extras import extra_needed

if TYPE_CHECKING:
    import psycopg

#: As measured, rounded up; see docs/sinks.md.
SECONDS_A_MILLION = 4


@click.command()
@click.option("--to", "url", default="", metavar="URL", help="The URL of the sink.  [default: EVENTBUS_EXPORT_TO]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def partition_table(url: str, yes: bool) -> None:
    """Give the table eventbus_events partitions by day, so that `retention=90d` in the sink's URL can drop old ones.

    No row is copied. Two steps read each row once, while reads and writes go on: a check of the rows, and a new unique
    index on namespace, name and day. Then the table is locked for some milliseconds. If the command is interrupted,
    call it again. Stop workers of older builds before, because they cannot write to partitions.

    The existing table becomes one partition. It is dropped as a whole when the retention after today is over. Without
    `retention=` in the URL, no partition is dropped. There is no way back to a table without partitions.

    \b
    Examples:
      eventbus postgres partition --to 'postgresql://events@db/events'
      eventbus worker export --to 'postgresql://events@db/events?retention=90d'
    """
    from eventbus.export.sinks.postgres.partitions import PARTITIONED, migrate, partition, table_version

    with _connected(url) as connection:
        if table_version(connection) == PARTITIONED:
            click.echo("The table has partitions already.", err=True)
            return
        migrate(connection, lock_timeout_ms=30_000)
        rows = _rows_of(connection)
        if not yes:
            ask_consent(
                f"Give eventbus_events partitions by day? It has about {rows:,} rows: some"
                f" {max(1, rows * SECONDS_A_MILLION // 1_000_000)} s, in which it can be read and written."
            )
        begun = time.monotonic()
        partition(connection, report=lambda step: click.echo(f"{time.monotonic() - begun:6.1f} s  {step}", err=True))
        click.echo(f"{time.monotonic() - begun:6.1f} s  done", err=True)


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    from eventbus.export.sinks.registry import given_url, split_counts

    url = split_counts(given_url(url, os.environ))[0]
    if not url.startswith(("postgresql:", "postgres:")):
        raise ConfigError("give the URL of a PostgreSQL sink: postgresql://role@host/database")
    with extra_needed("postgres"):
        from eventbus.export.sinks.postgres.sink import connect_to_tables
    with connect_to_tables(url, os.environ) as connection:
        yield connection


def _rows_of(connection: psycopg.Connection[Any]) -> int:
    """Return the number of rows that the planner knows of."""
    row = connection.execute("SELECT reltuples FROM pg_class WHERE oid = to_regclass('eventbus_events')").fetchone()
    return max(0, int(row[0])) if row else 0
