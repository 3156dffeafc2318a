"""Lines in Loki, as its users query them, and lines that it drops."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from eventbus.errors import EventRejected
from eventbus.export.sinks import make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.model.event import Event
from tests.integration.test_sink_otlp import ALLOWED, stored, write
from tests.support.otlp_server import Loki
from tests.support.webhook_server import receiving


@pytest.fixture
def server() -> Loki:
    return Loki()


@pytest.fixture
def sink(server: Loki) -> Iterator[HttpBatchSink]:
    with receiving(server) as port:
        made = make_sink(f"loki+http://127.0.0.1:{port}", ALLOWED)
        assert isinstance(made, HttpBatchSink)
        yield made
        made.close()


def test_lines_are_found_by_namespace_and_metadata_and_name_their_object(server: Loki, sink: HttpBatchSink) -> None:
    now = datetime.now(UTC)
    write(sink, stored(1, last_timestamp=now), stored(2, last_timestamp=now, reason="BackOff", message='of "web"\n'))
    (found,) = server.query(
        labels={"k8s_namespace_name": "default"}, k8s_event_reason="BackOff", severity_text="Normal"
    )
    assert found.line == 'kind=Pod name=web-0 type=Normal reason=BackOff id=producer:2/1 msg="of \\"web\\"\\n"'


def test_lines_that_are_too_old_are_dead_letters_and_the_others_are_stored_once(
    server: Loki, sink: HttpBatchSink
) -> None:
    now = datetime.now(UTC)
    events = [stored(n, last_timestamp=now - timedelta(days=8 * (n == 5))) for n in range(16)]
    answers = write(sink, *events)
    assert [type(answer) for answer in answers] == [EventRejected if n == 5 else Event for n in range(16)]
    assert len(server.query(labels={})) == 15
