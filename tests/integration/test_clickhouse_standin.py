"""Rows in a table of ClickHouse, as its users query them, and inserts that only a strict server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from eventbus.errors import SinkUnreachable
from eventbus.export.sinks import make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from tests.integration.test_sink_otlp import ALLOWED, stored, write
from tests.support.clickhouse_server import ClickHouse
from tests.support.webhook_server import receiving

MOMENT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def server() -> ClickHouse:
    return ClickHouse()


@pytest.fixture
def sink(server: ClickHouse) -> Iterator[HttpBatchSink]:
    with receiving(server) as port:
        made = make_sink(f"clickhouse+http://127.0.0.1:{port}", ALLOWED)
        assert isinstance(made, HttpBatchSink)
        made.open()
        yield made
        made.close()


def test_rows_have_the_time_in_utc_whatever_the_servers_zone_is(server: ClickHouse, sink: HttpBatchSink) -> None:
    event = stored(7, type="Warning", first_timestamp=None, last_timestamp=MOMENT)
    assert write(sink, event) == [event]
    (row,) = server.select("eventbus_events", type="Warning", object_name="web-0")
    assert (row["last_seen"], row["first_seen"], row["version"]) == (MOMENT, None, 7)
    assert server.refusals == []


def test_the_last_version_of_a_change_is_shown_once_with_final(server: ClickHouse, sink: HttpBatchSink) -> None:
    write(sink, stored(1), stored(2))
    write(sink, stored(2), stored(3))  # as another worker may cut its batches
    assert len(server.select("eventbus_events")) == 4
    assert [row["uid"] for row in server.select("eventbus_events", final=True)] == [f"producer:{n}" for n in (1, 2, 3)]


def test_events_of_more_months_than_one_insert_may_have_are_sent_in_parts(
    server: ClickHouse, sink: HttpBatchSink
) -> None:
    events = [stored(month, last_timestamp=MOMENT - timedelta(days=31 * month)) for month in range(150)]
    assert write(sink, *events) == events
    assert len(server.select("eventbus_events")) == 150


@pytest.mark.parametrize("code", [202, 252, 60, 81, 516])
def test_an_error_that_no_row_is_to_blame_for_pauses_the_sink(
    server: ClickHouse, sink: HttpBatchSink, code: int
) -> None:
    server.failing = [code]
    answers = write(sink, stored(1), stored(2))
    assert [type(answer) for answer in answers] == [SinkUnreachable] * 2
    assert write(sink, stored(1), stored(2)) == [stored(1), stored(2)]
