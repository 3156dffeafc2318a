"""The sink for S3, with a server of the tests that knows PutObject alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus.errors import ConfigError, EventUnbuildable, SinkUnreachable
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.s3 import S3Sink
from eventbus.model.encoding.event_json import decode_core
from eventbus.model.event import Event
from tests.integration.test_sink_otlp import stored
from tests.support.certificates import make_certificate
from tests.support.s3_server import S3Store
from tests.support.webhook_server import Answer, receiving

KEYS = {"EVENTBUS_S3_ACCESS_KEY_ID": "AKIDEXAMPLE", "EVENTBUS_S3_SECRET_ACCESS_KEY": "not-to-be-seen"}


@pytest.fixture
def store() -> S3Store:
    return S3Store()


@pytest.fixture
def port(store: S3Store) -> Iterator[int]:
    with receiving(store) as port:
        yield port
    assert store.mistakes == []


@contextmanager
def sink_for(port: int, scheme: str = "s3+http", **environ: str) -> Iterator[S3Sink]:
    sink = make_sink(f"{scheme}://127.0.0.1:{port}/events/some/prefix", KEYS | environ, timeout_s=30)
    assert isinstance(sink, S3Sink)
    yield sink
    sink.close()


def write(sink: S3Sink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event, origin="bus-a/3") for event in events])


def test_a_batch_is_one_object_and_a_repeat_of_it_is_the_same_object(store: S3Store, port: int) -> None:
    events = [stored(7), stored(12, count=2), stored(5)]
    for _ in range(2):  # the second is of the worker that takes over
        with sink_for(port) as sink:
            assert write(sink, *events) == events
    ((key, body),) = store.objects.items()
    assert key.startswith(f"some/prefix/bus-a/3/2024/01/01/{5:019d}-{12:019d}-")
    assert key.endswith(".ndjson.gz")
    assert body[4:8] == bytes(4), "a time would make each repeat another content"
    lines = [json.loads(line) for line in gzip.decompress(body).splitlines()]
    assert [line["deliveryId"] for line in lines] == ["producer:7/1", "producer:12/2", "producer:5/1"]
    assert [decode_core(json.dumps(line["event"])) for line in lines] == events


def test_a_batch_with_some_of_the_events_is_another_object(store: S3Store, port: int) -> None:
    with sink_for(port) as sink:
        write(sink, stored(1), stored(2), stored(3))
        write(sink, stored(1), stored(3))  # the same first and last version
    assert len(store.objects) == 2


def test_a_batch_that_is_too_large_is_several_objects(
    store: S3Store, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.s3.MOST_BYTES", 1_000)
    events = [stored(number) for number in range(4)]
    with sink_for(port) as sink:
        assert write(sink, *events) == events
    assert len(store.objects) == 4
    assert len(store.rows) == 4


def test_an_event_without_a_version_is_unbuildable_and_the_others_are_written(store: S3Store, port: int) -> None:
    with sink_for(port) as sink:
        answers = write(sink, stored(1), stored(-2), stored(3))
    assert [type(answer) for answer in answers] == [Event, EventUnbuildable, Event]
    assert len(store.rows) == 2


@pytest.mark.parametrize("status", [0, 301, 400, 403, 404, 429, 500, 503])
def test_any_failure_pauses_the_sink_and_shows_no_secret(store: S3Store, port: int, status: int) -> None:
    store.answers.append(Answer(status, body=b"<Error><Code>Odd</Code></Error>"))
    with sink_for(port) as sink:
        (answer,) = write(sink, stored())
        assert isinstance(answer, SinkUnreachable)
        assert "not-to-be-seen" not in str(answer)
        assert write(sink, stored()) == [stored()]
    assert len(store.deliveries) == 2  # the library itself has not tried again


def test_after_a_failure_the_objects_before_it_stay_written_and_no_more_are_sent(
    store: S3Store, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.s3.MOST_BYTES", 1_000)
    with sink_for(port) as sink:
        write(sink, stored(1))
        store.answers.append(Answer(503))
        answers = write(sink, stored(2), stored(3), stored(4))
    assert [type(answer) for answer in answers] == [SinkUnreachable] * 3
    assert len(store.deliveries) == 2


def test_a_certificate_is_verified(store: S3Store, tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path, "IP:127.0.0.1", ca=False)
    with receiving(store, tls=context) as port:
        with sink_for(port, "s3+https", EVENTBUS_S3_CA_FILE=str(certificate)) as trusting:
            assert write(trusting, stored()) == [stored()]
        with sink_for(port, "s3+https") as stranger:
            (answer,) = write(stranger, stored(2))
    assert isinstance(answer, SinkUnreachable)
    assert len(store.objects) == 1


@pytest.mark.parametrize(
    ("url", "environ", "problem"),
    [
        ("s3:///prefix", {}, "must be s3://BUCKET/PREFIX"),
        ("s3://No_Bucket", {}, "must be s3://BUCKET/PREFIX"),
        ("s3+https://host", {}, "must be s3://BUCKET/PREFIX"),
        ("s3+https://host/events/a/../b", {}, "the prefix"),
        ("s3://events/a%20b", {}, "the prefix"),
        ("s3://key:secret@events", {}, "no user and password"),
        ("s3://events?region=a/b", {}, "region="),
        ("s3://events?every=2h", {}, "at most 1h"),
        ("s3://events?every=fast", {}, "every='fast'"),
        ("s3://events?acl=x", {}, "no option 'acl'"),
        ("s3://events", {"EVENTBUS_S3_ACCESS_KEY_ID": "a"}, "give both"),
    ],
)
def test_a_url_that_names_no_bucket_is_refused(url: str, environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, environ)
