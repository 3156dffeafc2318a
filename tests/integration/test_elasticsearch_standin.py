"""Events in a data stream, as a user of Elasticsearch or OpenSearch finds them; the items that the server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from eventbus.errors import SinkUnreachable, Throttled
from eventbus.export.sinks import make_sink
from eventbus.export.sinks.http_batch import HttpBatchSink
from eventbus.model.event import Event
from tests.integration.test_sink_otlp import ALLOWED, stored, write
from tests.support.elasticsearch_server import Elasticsearch
from tests.support.webhook_server import receiving

Flavor = Literal["elasticsearch", "opensearch"]


@pytest.fixture(params=["elasticsearch", "opensearch"])
def server(request: pytest.FixtureRequest) -> Elasticsearch:
    return Elasticsearch(flavor=request.param)


@pytest.fixture
def sink(server: Elasticsearch) -> Iterator[HttpBatchSink]:
    with receiving(server) as port:
        made = make_sink(f"{server.flavor}+http://127.0.0.1:{port}/logs-events-default", ALLOWED)
        assert isinstance(made, HttpBatchSink)
        made.open()
        yield made
        made.close()


def test_documents_are_found_by_their_fields_and_by_the_words_of_the_message(
    server: Elasticsearch, sink: HttpBatchSink
) -> None:
    labels = {"app": "shop", "app.kubernetes.io/name": "shop"}
    events = [stored(1, annotations=labels), stored(2, type="Warning", reason="BackOff", message="Back-off, 5m0s")]
    assert write(sink, *events) == events

    def found(**term: str) -> list[str]:
        since = "2023-12-31T00:00:00Z"
        return [document["uid"] for document in server.search("logs-events-default", term=term, since=since)]

    assert found(type="Warning", object_name="web-0", reason="BackOff") == ["producer:2"]
    assert found(message="container STARTED") == ["producer:1"]
    assert found(namespace="default", component="kubelet") == ["producer:1", "producer:2"]
    assert server.refusals == []


def test_items_of_a_full_queue_are_written_later_and_the_others_once(
    server: Elasticsearch, sink: HttpBatchSink
) -> None:
    events = [stored(number) for number in range(6)]
    server.rejecting = 2
    answers = write(sink, *events)
    assert [type(answer) for answer in answers] == [Throttled] * 2 + [Event] * 4
    write(sink, *events)
    ids = [document["uid"] for document in server.documents("logs-events-default")]
    assert sorted(ids) == sorted(event.metadata.uid for event in events)


def test_after_a_rollover_a_repeat_is_stored_again(server: Elasticsearch, sink: HttpBatchSink) -> None:
    write(sink, stored(1))
    server.rollover("logs-events-default")
    write(sink, stored(1))
    write(sink, stored(1))
    assert len(server.documents("logs-events-default")) == 2


def test_without_a_template_for_the_stream_the_sink_waits(server: Elasticsearch, sink: HttpBatchSink) -> None:
    server.templates.clear()
    (answer,) = write(sink, stored(1))
    assert isinstance(answer, SinkUnreachable)
