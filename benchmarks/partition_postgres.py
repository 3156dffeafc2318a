"""Measures the migration of the PostgreSQL sink's table to partitions, and back.

python -m benchmarks.partition_postgres [--rows N]

A private server with its default settings, fsync on. The rows are made in the server, as the sink would write them.
A writer upserts one row at a time meanwhile; its longest wait is what the migration costs the others.
"""

from __future__ import annotations

import argparse
import threading
import time
from itertools import pairwise
from typing import Any

import psycopg

from eventbus.export.sinks.postgres.partitions import maintain, migrate, partition
from tests.support.postgres_server import PostgresServer

ROWS = 1_000_000
FILL = """
    INSERT INTO eventbus_events (namespace, name, uid, rv, object_kind, object_name, object_uid, type, reason, message,
                                 count, first_seen, last_seen, event, origin)
    SELECT 'default', 'web-' || n %% 5000 || '.' || to_hex(1770372930000000000 - n * 2592000000), 'producer:' || n,
           n, 'Pod', 'web-' || n %% 5000, 'uid-' || n %% 5000,
           CASE n %% 3 WHEN 0 THEN 'Warning' ELSE 'Normal' END, 'BackOff',
           'Back-off restarting failed container web in pod web-' || n %% 5000, 3, seen, seen,
           jsonb_build_object('kind', 'Event', 'reason', 'BackOff', 'count', 3, 'involvedObject',
                              jsonb_build_object('kind', 'Pod', 'name', 'web-' || n %% 5000, 'namespace', 'default'),
                              'message', repeat('Back-off restarting failed container ', 8)), 'bus/0'
      FROM generate_series(1, %s) AS n, LATERAL (SELECT to_timestamp(1770372930 - n * 2.592) AS seen) AS times
"""

CHANGE = """
    UPDATE eventbus_events SET count = count + 1
     WHERE namespace = 'default' AND object_kind = 'Pod' AND object_name = 'web-1' AND uid = 'producer:1'
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the table (default {ROWS})")
    rows = parser.parse_args().rows
    server = PostgresServer(durable=True)
    try:
        url = server.start()
        with psycopg.connect(url, autocommit=True) as connection:
            migrate(connection, lock_timeout_ms=10_000)
            connection.execute(FILL, (rows,))
            connection.execute("VACUUM ANALYZE eventbus_events")
            size = connection.execute("SELECT pg_size_pretty(pg_total_relation_size('eventbus_events'))").fetchone()
            print(f"{rows:,} rows, {size[0] if size else '?'} with indexes\n\n| step | seconds |\n|---|--:|")
            _measure(url, connection)
    finally:
        server.close()
    return 0


def _measure(url: str, connection: psycopg.Connection[Any]) -> None:
    steps: list[tuple[str, float]] = [("first steps", time.perf_counter())]
    with _Writer(url) as writer:
        partition(connection, report=lambda step: steps.append((step, time.perf_counter())))
        steps.append(("", time.perf_counter()))
    for (step, begun), (_, ended) in pairwise(steps):
        print(f"| {step} | {ended - begun:.3f} |")
    print(f"| longest wait of a writer meanwhile | {writer.longest_s:.3f} |")
    begun = time.perf_counter()
    maintain(connection, 30)
    print(f"| maintenance, nothing to drop | {time.perf_counter() - begun:.3f} |")


class _Writer:
    """Changes one row of the table again and again, in a thread."""

    def __init__(self, url: str) -> None:
        self.longest_s = 0.0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop.is_set():
                begun = time.perf_counter()
                connection.execute(CHANGE)
                self.longest_s = max(self.longest_s, time.perf_counter() - begun)


if __name__ == "__main__":
    raise SystemExit(main())
