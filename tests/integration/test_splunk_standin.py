"""Events in an index of Splunk, as its users search them, and how often an invalid event repeats the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from eventbus.errors import EventRejected, SinkUnreachable
from eventbus.export.sinks import make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.model.event import Event
from tests.integration.test_sink_otlp import ALLOWED, stored, write
from tests.support.splunk_server import Splunk
from tests.support.webhook_server import receiving


@pytest.fixture
def server() -> Splunk:
    return Splunk(indexes=("main", "events"))


@pytest.fixture
def sink(server: Splunk) -> Iterator[HttpBatchSink]:
    with receiving(server) as port:
        made = make_sink(
            f"splunk+http://127.0.0.1:{port}?index=events",
            ALLOWED | {"EVENTBUS_EXPORT_HEADERS": "Authorization: Splunk T0K3N"},
        )
        assert isinstance(made, HttpBatchSink)
        yield made
        made.close()


def test_events_are_found_by_index_source_type_and_fields(server: Splunk, sink: HttpBatchSink) -> None:
    write(sink, stored(1), stored(2, type="Warning", reason="BackOff"))
    search = {"index": "events", "sourcetype": "eventbus:event", "host": "node-1"}
    (found,) = server.search(**search, type="Warning", reason="BackOff")
    assert (found["event"]["delivery_id"], found["time"]) == ("producer:2/1", 1704110400.0)
    assert server.refusals == []


def test_an_invalid_event_repeats_the_others_at_most_once(server: Splunk, sink: HttpBatchSink) -> None:
    """Splunk stores the events before the invalid one."""
    server.refused_text = "spoiled"
    events = [stored(n, message="spoiled" if n in (30, 31, 63) else f"good {n}") for n in range(64)]
    answers = write(sink, *events)
    assert Counter(map(type, answers)) == {Event: 61, EventRejected: 3}
    assert [type(answers[n]) for n in (30, 31, 63)] == [EventRejected] * 3
    copies = Counter(found["event"]["delivery_id"] for found in server.events)
    assert (len(copies), max(copies.values())) == (61, 2)
    assert len(server.deliveries) <= 8


def test_a_busy_collector_and_a_wrong_index_pause_the_sink(server: Splunk, sink: HttpBatchSink) -> None:
    server.busy = 1
    assert isinstance(write(sink, stored(1))[0], SinkUnreachable)
    server.indexes = ("main",)
    assert isinstance(write(sink, stored(1))[0], SinkUnreachable)
    assert server.events == []
