"""The PostgreSQL sink against a real server: rows, versions, bad data, schema, and the ways a server can be away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from eventbus.errors import ConfigError, EventRejected, EventUnbuildable, SinkUnreachable, Throttled
from eventbus.export.sinks import EventPatch, SinkWrite, Verb, make_sink
from eventbus.export.sinks.contract import OpeningSink
from eventbus.export.sinks.postgres.schema import STEPS
from eventbus.export.sinks.postgres.sink import PostgresSink
from eventbus.model.event import Event, EventSeries
from tests.builders import NOW, make_event, make_reference
from tests.support.postgres_server import PostgresServer, empty
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(database_url: str) -> str:
    return database_url


@pytest.fixture
def sink(url: str) -> Iterator[PostgresSink]:
    sink = open_sink(url)
    yield sink
    sink.close()


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The private cluster, to be frozen, stopped and asked for passwords; its database `postgres` is empty."""
    empty(postgres.url())
    yield postgres
    if not postgres.runs:
        postgres.restart()


WAITING_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def open_sink(url: str, environ: dict[str, str] | None = None, **options: Any) -> PostgresSink:
    sink = make_sink(url, environ or {}, **options)
    assert isinstance(sink, PostgresSink)
    return sink


def stored(name: str, *, rv: int, count: int = 1, **overrides: Any) -> Event:
    """An event as the store has it."""
    event = make_event(count=count, **overrides)
    metadata = {"name": name, "uid": f"producer:{name}", "resource_version": str(rv)}
    return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, **metadata))


def writes(*events: Event) -> list[SinkWrite]:
    return [SinkWrite.of(Verb.CREATE, event) for event in events]


def rows(url: str, columns: str = "name, rv, count", where: str = "true") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        query: Any = f"SELECT {columns} FROM eventbus_events WHERE {where} ORDER BY namespace, name"
        return connection.execute(query).fetchall()


def test_a_row_holds_the_whole_event_and_what_is_asked_for_in_columns(sink: PostgresSink, url: str) -> None:
    event = stored(
        "web-0.1", rv=7, count=3, message='it\'s 100 % \\ "quoted" — ü 🚀\n\ttab', type="Warning", reason="BackOff"
    )
    assert sink.create(event) == event
    columns = (
        "namespace, uid, rv, object_kind, object_name, object_uid, type, reason, message, count, first_seen, last_seen"
    )
    assert rows(url, columns) == [
        ("default", "producer:web-0.1", 7, "Pod", "web-0", "uid-1", "Warning", "BackOff", event.message, 3, NOW, NOW)
    ]
    ((body,),) = rows(url, "event")
    assert (body["kind"], body["involvedObject"]["name"], body["message"]) == ("Event", "web-0", event.message)
    assert body["firstTimestamp"] == "2024-01-01T12:00:00Z"


def test_an_event_of_a_series_was_last_seen_when_the_series_was(sink: PostgresSink, url: str) -> None:
    late = NOW.replace(hour=13)
    sink.create(stored("a", rv=1, event_time=NOW, series=EventSeries(count=9, last_observed_time=late)))
    assert rows(url, "last_seen") == [(late,)]


def test_a_larger_version_replaces_the_row_and_an_older_or_equal_one_does_not(sink: PostgresSink, url: str) -> None:
    sink.create(stored("a", rv=9, count=2))
    sink.patch(stored("a", rv=10, count=3), EventPatch(name="a", count=3))
    assert rows(url) == [("a", 10, 3)]
    sink.update(stored("a", rv=9, count=2))  # as text "9" is larger than "10"
    sink.update(stored("a", rv=10, count=99))
    assert rows(url) == [("a", 10, 3)]


def test_versions_of_different_events_are_not_compared(sink: PostgresSink, url: str) -> None:
    # Two partitions count on their own.
    sink.write(writes(stored("a", rv=1763700000000001), stored("b", rv=5)))
    sink.write(writes(stored("b", rv=6, count=2)))
    assert rows(url) == [("a", 1763700000000001, 1), ("b", 6, 2)]


def test_a_batch_written_again_and_again_by_several_workers_leaves_every_event_once(url: str) -> None:
    def work(seed: int) -> None:
        sink = open_sink(url)
        for version in (1, 2, 3):
            batch = [stored(f"e{n}", rv=version, count=version) for n in range(300)]
            sink.write(writes(*(batch if seed % 2 else reversed(batch))))
        sink.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = rows(url)
    assert len(found) == 300
    assert {(rv, count) for _, rv, count in found} == {(3, 3)}


def test_an_event_of_another_object_with_the_same_name_is_rejected_not_overwritten(
    sink: PostgresSink, url: str
) -> None:
    sink.create(stored("web.1", rv=5))
    other = stored("web.1", rv=9, involved_object=make_reference(kind="Deployment"))
    first, second = sink.write(writes(other, stored("web.2", rv=6)))
    assert isinstance(first, EventRejected)
    assert isinstance(second, Event)
    assert rows(url, "name, object_kind") == [("web.1", "Pod"), ("web.2", "Pod")]


def test_nul_and_surrogates_are_replaced_because_neither_text_nor_jsonb_can_hold_them(
    sink: PostgresSink, url: str
) -> None:
    sink.create(stored("a", rv=1, message="nul \0 lone \ud800 pair \ud83d\ude80", reason="a\0b"))
    assert rows(url, "reason, message, event->>'message'") == [
        ("a\ufffdb", "nul \ufffd lone \ufffd pair 🚀", "nul \ufffd lone \ufffd pair 🚀")
    ]


def test_text_is_never_read_as_sql(sink: PostgresSink, url: str) -> None:
    text = "'); DROP TABLE eventbus_events; -- %s %(a)s $1 {}"
    sink.create(stored("a", rv=1, message=text, reason=text))
    assert rows(url, "reason, message") == [(text, text)]


def test_bad_rows_are_answered_alone_and_their_neighbours_are_written(sink: PostgresSink, url: str) -> None:
    too_long_for_an_index = stored("c", rv=1, type="Warning", reason="".join(map(chr, range(0x4E00, 0x4E00 + 20_000))))
    no_version = msgspec.structs.replace(
        stored("d", rv=1), metadata=msgspec.structs.replace(stored("d", rv=1).metadata, resource_version="x1")
    )
    before = [stored(f"b{n}", rv=1) for n in range(20)]
    answers = sink.write(writes(*before, too_long_for_an_index, no_version, stored("e", rv=1)))
    assert answers[:20] == before
    assert [type(answer) for answer in answers[20:]] == [EventRejected, EventUnbuildable, Event]
    assert [name for (name,) in rows(url, "name")] == sorted([*(f"b{n}" for n in range(20)), "e"])


def test_a_rejection_is_raised_by_a_single_call_and_quotes_nothing_of_the_row(sink: PostgresSink, url: str) -> None:
    sink.create(stored("a", rv=1))
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE eventbus_events ADD CHECK (message <> 'hunter2')")
    with pytest.raises(EventRejected, match="23514") as caught:
        sink.update(stored("a", rv=2, message="hunter2"))
    assert "hunter2" not in str(caught.value)


def test_workers_that_start_at_once_make_one_schema(url: str) -> None:
    start = threading.Barrier(6)

    def work(number: int) -> None:
        sink = open_sink(url)
        start.wait()
        sink.create(stored(f"e{number}", rv=1))
        sink.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(rows(url)) == 6
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT version FROM eventbus_schema").fetchall() == [
            (n,) for n in range(1, len(STEPS) + 1)
        ]


def test_tables_of_the_first_version_are_migrated_with_their_rows(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE eventbus_schema (version integer PRIMARY KEY, applied timestamptz DEFAULT now())"
        )
        connection.execute(STEPS[0])
        connection.execute("INSERT INTO eventbus_schema (version) VALUES (1)")
        connection.execute(
            "INSERT INTO eventbus_events VALUES"
            " ('default', 'old', 'u:1', 1, 'Pod', 'web-0', 'uid-1', 'Normal', 'R', 'm', 1, now(), now(), '{}')"
        )
    sink = open_sink(url)
    sink.write([SinkWrite.of(Verb.CREATE, stored("new", rv=2), origin="bus/0")])
    sink.close()
    assert rows(url, "name, origin") == [("new", "bus/0"), ("old", "")]


def test_tables_of_a_newer_version_are_left_alone(sink: PostgresSink, url: str) -> None:
    sink.create(stored("a", rv=1))
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO eventbus_schema (version) VALUES (1000)")
    other = open_sink(url)
    with pytest.raises(SinkUnreachable, match="upgrade"):
        other.create(stored("b", rv=1))
    other.close()
    assert rows(url) == [("a", 1, 1)]


def test_a_role_without_the_right_to_make_tables_writes_into_those_that_are_there(url: str, sink: PostgresSink) -> None:
    role = f"writer_{url.rsplit('eb_', 1)[1][:12]}"
    sink.create(stored("a", rv=1))
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(psycopg.sql.SQL("CREATE ROLE {}").format(psycopg.sql.Identifier(role)))
        try:
            admin.execute(
                psycopg.sql.SQL("GRANT SELECT, INSERT, UPDATE ON eventbus_events TO {}").format(
                    psycopg.sql.Identifier(role)
                )
            )
            admin.execute(psycopg.sql.SQL("GRANT SELECT ON eventbus_schema TO {}").format(psycopg.sql.Identifier(role)))
            separator = "&" if "?" in url else "?"
            limited = open_sink(f"{url}{separator}options=-crole%3D{role}")
            limited.create(stored("b", rv=1))
            admin.execute(psycopg.sql.SQL("REVOKE ALL ON eventbus_events FROM {}").format(psycopg.sql.Identifier(role)))
            with pytest.raises(SinkUnreachable, match="42501"):
                limited.create(stored("c", rv=1))
            limited.close()
        finally:
            admin.execute(psycopg.sql.SQL("DROP OWNED BY {}").format(psycopg.sql.Identifier(role)))
            admin.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(role)))
    assert [name for (name,) in rows(url, "name")] == ["a", "b"]


def test_the_queries_of_the_docs_use_their_indexes(sink: PostgresSink, url: str) -> None:
    sink.write(writes(*(stored(f"e{n}", rv=1, type="Warning") for n in range(50))))
    queries = {
        "eventbus_events_object": "namespace = 'default' AND object_kind = 'Pod' AND object_name = 'web-0'",
        "eventbus_events_last_seen": "last_seen < now()",
        "eventbus_events_warnings": "type = 'Warning' AND reason = 'x' AND last_seen > now()",
    }
    with psycopg.connect(url) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
        for index, condition in queries.items():
            explain: Any = f"EXPLAIN SELECT event FROM eventbus_events WHERE {condition} ORDER BY last_seen DESC"
            plan = "\n".join(line for (line,) in connection.execute(explain).fetchall())
            assert f"using {index} " in plan, plan


def test_a_lock_that_is_held_ends_in_a_timeout_and_the_sink_goes_on_afterwards(url: str) -> None:
    sink = open_sink(url, timeout_s=0.5)
    written_in_the_end(sink.create, stored("a", rv=1))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE eventbus_events")

        def timed_out() -> bool:
            with pytest.raises(SinkUnreachable) as caught:
                sink.update(stored("a", rv=2))
            return "57014" in str(caught.value)

        eventually(timed_out)  # on a busy machine the client's own time may be over before the server's
    written_in_the_end(sink.update, stored("a", rv=2))
    sink.close()
    assert rows(url) == [("a", 2, 1)]


def written_in_the_end(write: Callable[[Event], object], event: Event) -> None:
    """A busy machine may need longer than the short timeout that is tested."""

    def done() -> bool:
        write(event)
        return True

    eventually(done, despite=SinkUnreachable)


def test_a_deadlock_asks_for_a_pause(url: str) -> None:
    # Its server process looks for a deadlock once, so long after it began to wait: the other has to wait by then.
    sink = open_sink(f"{url}{'&' if '?' in url else '?'}options=-cdeadlock_timeout%3D2s")
    sink.write(writes(stored("a", rv=1), stored("b", rv=1)))
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as looking:
        other.execute("SET deadlock_timeout = '10s'")
        other.execute("UPDATE eventbus_events SET rv = 1 WHERE name = 'b'")
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(sink.write, writes(stored("a", rv=2), stored("b", rv=2)))
            # It holds a and waits for b; now this one wants a.
            eventually(lambda: looking.execute(WAITING_FOR_A_LOCK).fetchone() != (0,))
            other.execute("UPDATE eventbus_events SET rv = 1 WHERE name = 'a'")
            answers = written.result(timeout=50)
    assert [type(answer) for answer in answers] == [Throttled, Throttled]
    assert "40P01" in str(answers[0])
    sink.close()


def test_an_outage_in_the_middle_of_a_batch_is_the_answer_to_what_is_left(url: str, sink: PostgresSink) -> None:
    sink.write(writes(stored("a", rv=1)))
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'disk full' USING ERRCODE = '53100'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER fail BEFORE INSERT ON eventbus_events FOR EACH ROW WHEN (new.name = 'z') EXECUTE"
            " FUNCTION fail()"
        )
    given = [stored("z", rv=2), *[stored(f"n{number:03}", rv=number + 2) for number in range(999)]]
    answers = sink.write(writes(*given))
    written = [answer for answer in answers if isinstance(answer, Event)]
    assert written == sorted(written, key=lambda event: event.metadata.name)
    assert (len(written), len(rows(url))) == (500, 501)
    assert {str(answer) for answer in answers if not isinstance(answer, Event)} == {"53100: disk full"}


def test_the_tables_are_there_before_there_is_an_event(url: str, sink: PostgresSink) -> None:
    assert isinstance(sink, OpeningSink)
    sink.open()
    sink.open()
    assert rows(url) == []


def test_a_database_that_is_missing_is_an_error_of_the_url(url: str) -> None:
    wrong = open_sink(url.replace(url.rpartition("/")[2].partition("?")[0], "no_such_database"))
    with pytest.raises(ConfigError, match="no_such_database"):
        wrong.check()
    wrong.close()


def test_a_database_that_takes_no_connection_for_now_is_no_error_of_the_url(server: PostgresServer) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE closed ALLOW_CONNECTIONS false")
    name = psycopg.conninfo.conninfo_to_dict(server.url())["dbname"]
    closed = open_sink(server.url().replace(f"/{name}", "/closed"))
    with pytest.raises(SinkUnreachable):
        closed.open()
    closed.check()
    closed.close()


def test_checking_makes_no_tables(server: PostgresServer) -> None:
    sink = open_sink(server.url())
    sink.check()
    sink.close()
    with psycopg.connect(server.url(), autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_a_server_that_is_away_is_no_error_of_the_url(server: PostgresServer) -> None:
    away = open_sink(server.url())
    server.stop()
    away.check()
    away.close()


def test_a_server_that_is_away_raises_unreachable_and_is_found_again(server: PostgresServer) -> None:
    sink = open_sink(server.url())
    sink.create(stored("a", rv=1))
    server.stop()
    for _ in range(2):
        with pytest.raises(SinkUnreachable):
            sink.create(stored("b", rv=1))
    server.restart()
    sink.create(stored("b", rv=1))
    sink.close()
    assert [name for (name,) in rows(server.url(), "name")] == ["a", "b"]


def test_a_frozen_server_is_waited_for_no_longer_than_the_timeout(server: PostgresServer) -> None:
    sink = open_sink(server.url(), timeout_s=1.0)
    written_in_the_end(sink.create, stored("a", rv=1))
    assert sink._connection is not None
    backend = sink._connection.info.backend_pid
    server.signal_backend(backend, signal.SIGSTOP)
    try:
        with pytest.raises(SinkUnreachable, match="no answer in time"):
            sink.create(stored("b", rv=1))
    finally:
        server.signal_backend(backend, signal.SIGCONT)
    written_in_the_end(sink.create, stored("b", rv=1))
    sink.close()


def test_a_write_waits_while_the_process_may_not_start_a_thread(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink(server.url())
    sink.create(stored("a", rv=1))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _cannot_start)
        with pytest.raises(SinkUnreachable, match="can't start new thread"):
            sink.create(stored("b", rv=1))
    sink.create(stored("b", rv=1))
    sink.close()


def _cannot_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_the_password_comes_from_the_environment_or_a_file_and_is_shown_nowhere(
    server: PostgresServer, tmp_path: Path
) -> None:
    bare = server.url(password="x").replace(":x@", "@")
    file = tmp_path / "password"
    file.write_text("wrong\n")
    sink = open_sink(bare, {"EVENTBUS_POSTGRES_PASSWORD_FILE": str(file)})
    with pytest.raises(SinkUnreachable) as caught:
        sink.create(stored("a", rv=1))
    assert "wrong" not in f"{caught.value}"
    file.write_text(server.password)  # changed while the worker waits
    sink.create(stored("a", rv=1))
    sink.close()
    given = open_sink(server.url(password=server.password), {})
    assert server.password not in repr(given)
    by_variable = open_sink(bare, {"EVENTBUS_POSTGRES_PASSWORD": server.password})
    by_variable.create(stored("b", rv=1))
    by_variable.close()
