"""Retention of the PostgreSQL sink: partitions by day, their making and dropping, and the migration there and back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from eventbus.cli.commands.postgres import partition_table
from eventbus.errors import ConfigError, SinkUnreachable
from eventbus.export.sinks.postgres.partitions import maintain, partition, partitions
from eventbus.export.sinks.postgres.sink import PostgresSink, split_retention
from eventbus.export.sinks.registry import default_name
from eventbus.model.event import Event
from tests.builders import make_event
from tests.integration.test_sink_postgres import WAITING_FOR_A_LOCK, open_sink, rows, writes
from tests.integration.test_sink_postgres import url as url
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("postgres")

TODAY = datetime.now(UTC).date()


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def retaining(url: str) -> Iterator[PostgresSink]:
    """The sink of an empty database, with a retention of 30 days."""
    sink = open_sink(f"{url}&retention=30d" if "?" in url else f"{url}?retention=30d")
    sink.open()
    yield sink
    sink.close()


def named(day: date, number: int = 0) -> str:
    """The name that a recorder gives to an event of this day."""
    return f"web-0.{int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()) * 10**9 + number:x}"


def event_of(name: str, *, rv: int = 1, seen: date = TODAY) -> Event:
    moment = datetime(seen.year, seen.month, seen.day, 13, tzinfo=UTC)
    event = make_event(count=rv, last_timestamp=moment)
    metadata = {"name": name, "uid": f"producer:{name}", "resource_version": str(rv)}
    return replace(event, metadata=replace(event.metadata, **metadata))


def put(sink: PostgresSink, *events: Event) -> None:
    assert sink.write(writes(*events)) == list(events)


def places(url: str) -> dict[str, str]:
    """The partition of each event by its name."""
    return {name: table for name, table in rows(url, "name, tableoid::regclass::text")}


def dated(day: date) -> str:
    return f"eventbus_events_d{day:%Y%m%d}"


def test_an_event_is_in_the_partition_of_the_day_in_its_name(retaining: PostgresSink, url: str) -> None:
    tomorrow, last_year = TODAY + timedelta(days=1), TODAY - timedelta(days=365)
    names = [named(TODAY), named(tomorrow), named(last_year), "by-hand", "web-0.ffffffffffffffff"]
    put(retaining, *[event_of(name) for name in names])
    other = "eventbus_events_other"
    assert places(url) == dict(zip(names, [dated(TODAY), dated(tomorrow), other, other, other], strict=True))


def test_a_repeat_days_later_replaces_the_row_of_the_first_day(retaining: PostgresSink, url: str) -> None:
    name = named(TODAY - timedelta(days=1))
    put(retaining, event_of(name, seen=TODAY - timedelta(days=1)))
    put(retaining, event_of(name, rv=2))
    put(retaining, event_of(name, rv=1))
    assert rows(url) == [(name, 2, 2)]


def test_the_database_refuses_a_row_with_another_day_than_that_of_its_name(
    retaining: PostgresSink, connection: psycopg.Connection[Any]
) -> None:
    put(retaining, event_of(named(TODAY)))
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE eventbus_events SET day = day + 1")
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("INSERT INTO eventbus_events SELECT * FROM eventbus_events")


def test_old_partitions_are_dropped_and_events_that_go_on_are_kept(
    retaining: PostgresSink, connection: psycopg.Connection[Any], url: str
) -> None:
    old, kept_day = TODAY - timedelta(days=31), TODAY - timedelta(days=30)
    for day in (old, kept_day):
        connection.execute(
            f"CREATE TABLE {dated(day)} PARTITION OF eventbus_events"
            f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
        )
    gone, goes_on, young = named(old, 1), named(old, 2), named(kept_day)
    put(retaining, event_of(gone, seen=old), event_of(goes_on), event_of(young, seen=kept_day))
    put(retaining, event_of("by-hand-old", seen=old), event_of("by-hand"))
    maintain(connection, 30)
    assert places(url) == {
        goes_on: "eventbus_events_other",
        young: dated(kept_day),
        "by-hand": "eventbus_events_other",
    }
    put(retaining, event_of(goes_on, rv=2))
    assert rows(url, where="rv = 2") == [(goes_on, 2, 2)]


def test_without_a_retention_nothing_is_dropped_and_partitions_are_made(
    retaining: PostgresSink, connection: psycopg.Connection[Any]
) -> None:
    put(retaining, event_of("by-hand-old", seen=TODAY - timedelta(days=400)))
    connection.execute(f"DROP TABLE {dated(TODAY)}")
    maintain(connection, 0)
    assert dated(TODAY) in dict(partitions(connection))
    assert connection.execute("SELECT count(*) FROM eventbus_events").fetchone() == (1,)


def test_maintenance_waits_for_no_reader_and_writes_go_on(
    retaining: PostgresSink, connection: psycopg.Connection[Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.postgres.partitions.LOCK_TIMEOUT_MS", 50)
    connection.execute(f"DROP TABLE {dated(TODAY)}")
    with psycopg.connect(url) as reader:
        reader.execute("SELECT * FROM eventbus_events")
        maintain(connection, 30)
        assert dated(TODAY) not in dict(partitions(connection))
        put(retaining, event_of(named(TODAY)))
    assert places(url) == {named(TODAY): "eventbus_events_other"}
    maintain(connection, 30)  # the day stays in the other partition, which has a row of it
    assert dated(TODAY) not in dict(partitions(connection))
    put(retaining, event_of(named(TODAY), rv=2))
    assert rows(url) == [(named(TODAY), 2, 2)]


def test_a_write_during_the_drop_of_its_partition_is_not_lost(
    retaining: PostgresSink, connection: psycopg.Connection[Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = TODAY - timedelta(days=31)
    connection.execute(
        f"CREATE TABLE {dated(old)} PARTITION OF eventbus_events FOR VALUES FROM ('{old}') TO ('{old + timedelta(1)}')"
    )
    name = named(old)
    put(retaining, event_of(name))
    monkeypatch.setattr("eventbus.export.sinks.postgres.partitions.LOCK_TIMEOUT_MS", 60_000)
    with psycopg.connect(url) as writer, psycopg.connect(url, autocommit=True) as observer:
        writer.execute("UPDATE eventbus_events SET rv = 2, count = 2")
        dropper = threading.Thread(target=lambda: maintain(connection, 30))
        dropper.start()
        eventually(lambda: waiting(observer) == 1)
        writer.commit()
        dropper.join()
    assert places(url) == {name: "eventbus_events_other"}
    assert rows(url) == [(name, 2, 2)]


def waiting(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(WAITING_FOR_A_LOCK).fetchone()
    assert row
    return int(row[0])


def test_a_worker_maintains_the_partitions_from_time_to_time(
    retaining: PostgresSink, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute(f"DROP TABLE {dated(TODAY)}")
    put(retaining, event_of("a"))
    assert dated(TODAY) not in dict(partitions(connection))
    monkeypatch.setattr("eventbus.export.sinks.postgres.sink.MAINTAIN_EVERY_S", 0)
    put(retaining, event_of("b"))
    assert dated(TODAY) in dict(partitions(connection))


# -- the migration -------------------------------------------------------------------------------------------------


def filled(url: str) -> list[Event]:
    """Fill a table without partitions."""
    events = [event_of(named(TODAY - timedelta(days=day), day), seen=TODAY - timedelta(days=day)) for day in range(50)]
    events.append(event_of("by-hand"))
    sink = open_sink(url)
    put(sink, *events)
    sink.close()
    return events


def everything(url: str) -> list[tuple[Any, ...]]:
    return rows(url, "namespace, name, uid, rv, type, reason, message, count, first_seen, last_seen, event, origin")


def test_a_table_with_rows_needs_the_command_and_a_worker_waits_for_it(url: str) -> None:
    filled(url)
    sink = open_sink(f"{url}?retention=30d" if "?" not in url else f"{url}&retention=30d")
    with pytest.raises(SinkUnreachable, match="eventbus postgres partition"):
        sink.open()
    assert CliRunner().invoke(partition_table, ["--to", url, "-y"]).exit_code == 0
    sink.open()
    sink.close()


def test_the_migration_keeps_every_row_and_each_event_stays_one_row(
    url: str, connection: psycopg.Connection[Any]
) -> None:
    events = filled(url)
    before = everything(url)
    steps: list[str] = []
    partition(connection, report=steps.append)
    assert len(steps) == 3
    assert everything(url) == before
    old = f"eventbus_events_before_{TODAY + timedelta(days=2):%Y%m%d}"
    assert set(places(url).values()) == {old}
    sink = open_sink(url)
    new = [event_of(named(TODAY, 999)), event_of(named(TODAY + timedelta(days=2)))]
    put(sink, *[replace(event, metadata=replace(event.metadata, resource_version="2")) for event in events], *new)
    sink.close()
    assert len(rows(url)) == len(events) + 2
    assert {rv for _, rv, _ in rows(url)} == {1, 2}
    assert places(url)[named(TODAY, 999)] == old
    assert places(url)[named(TODAY + timedelta(days=2))] == dated(TODAY + timedelta(days=2))


def test_the_table_of_before_is_dropped_when_its_retention_is_over(
    url: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(url)
    partition(connection, report=lambda _: None)
    maintain(connection, 30)
    assert len(rows(url)) == 51
    later = TODAY + timedelta(days=32)
    monkeypatch.setattr("eventbus.export.sinks.postgres.partitions._today", lambda: later)
    sink = open_sink(url)
    put(sink, event_of("by-hand", rv=2, seen=later))
    maintain(connection, 30)
    assert [name for name, _, _ in rows(url)] == ["by-hand"]
    put(sink, event_of("by-hand", rv=3, seen=later))
    sink.close()
    assert rows(url) == [("by-hand", 3, 3)]


@pytest.mark.parametrize("step", ["_validate", "_build_index", "_switch"])
def test_an_interrupted_migration_changes_nothing_for_writers_and_is_done_by_the_next_call(
    url: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    filled(url)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"eventbus.export.sinks.postgres.partitions.{step}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            partition(connection, report=lambda _: None)
    sink = open_sink(url)
    put(sink, event_of("by-hand", rv=2), event_of(named(TODAY, 999)))
    partition(connection, report=lambda _: None)
    sink.close()
    assert len(rows(url)) == 52


def test_an_index_that_is_not_complete_is_built_again(
    url: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(url)
    with monkeypatch.context() as patch:
        patch.setattr("eventbus.export.sinks.postgres.partitions._switch", lambda *_, **__: connection.execute("!"))
        with pytest.raises(psycopg.errors.SyntaxError):
            partition(connection, report=lambda _: None)
    connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'eventbus_events_key'::regclass")
    partition(connection, report=lambda _: None)
    sink = open_sink(url)
    put(sink, event_of("by-hand", rv=2))
    sink.close()
    assert len(rows(url)) == 51


def test_a_row_with_a_day_in_the_future_stops_the_migration(url: str, connection: psycopg.Connection[Any]) -> None:
    sink = open_sink(url)
    put(sink, event_of(named(TODAY + timedelta(days=300))))
    with pytest.raises(ConfigError, match="a day in the future"):
        partition(connection, report=lambda _: None)
    put(sink, event_of("by-hand"))
    sink.close()


def test_writers_go_on_during_the_migration(url: str, connection: psycopg.Connection[Any]) -> None:
    filled(url)
    stop, written = threading.Event(), []

    def write() -> None:
        sink, number = open_sink(url), 0
        while not stop.is_set():
            number += 1
            event = event_of(named(TODAY, number))
            try:
                (answer,) = sink.write(writes(event))
            except SinkUnreachable:  # it had connected before the switch
                sink.close()
                continue
            if isinstance(answer, Event):
                written.append(answer.metadata.name)
        sink.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        partition(connection, report=lambda _: None)
    finally:
        stop.set()
        thread.join()
    assert {name for name, _, _ in rows(url)} >= set(written)


# -- the URL -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://h/d?retention=90d", ("postgresql://h/d", 90)),
        ("postgresql://h/d?sslmode=require&retention=7d", ("postgresql://h/d?sslmode=require", 7)),
        ("postgresql://h/d", ("postgresql://h/d", 0)),
    ],
)
def test_the_retention_is_taken_out_of_the_url(url: str, found: tuple[str, int]) -> None:
    assert split_retention(url) == found
    assert default_name(url) == default_name(url.partition("?")[0])


@pytest.mark.parametrize("text", ["0d", "90", "2w", "-1d", ""])
def test_a_retention_that_is_no_number_of_days_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give whole days"):
        split_retention(f"postgresql://h/d?retention={text}")
