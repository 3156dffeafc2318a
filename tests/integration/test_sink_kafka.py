"""The sink for Kafka, with the mock of a broker that comes with the client's library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError

from eventbus.errors import ConfigError, EventRejected, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.kafka import KafkaSink, headers_of, key_of
from eventbus.model.event import Event, ObjectReference
from tests.faults.proxy import Proxy
from tests.integration.test_sink_otlp import stored
from tests.support.certificates import make_certificate
from tests.support.kafka_server import HANG_UP, KafkaServer, StoredMessages
from tests.waiting import eventually


@pytest.fixture
def server() -> Iterator[KafkaServer]:
    running = KafkaServer()
    yield running
    running.close()


@pytest.fixture
def messages(server: KafkaServer) -> Iterator[StoredMessages]:
    reading = StoredMessages(server.address)
    yield reading
    reading.close()


Sinks = Callable[..., KafkaSink]


@pytest.fixture
def sinks(server: KafkaServer) -> Iterator[Sinks]:
    made: list[KafkaSink] = []

    def make(end: str = "", *, timeout_s: float = 30, **env: str) -> KafkaSink:
        sink = make_sink(f"kafka://{server.address}{end}", env, timeout_s=timeout_s)
        assert isinstance(sink, KafkaSink)
        made.append(sink)
        return sink

    yield make
    for sink in made:
        sink.close()


def write(sink: KafkaSink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])


def about(name: str) -> Event:
    return msgspec.structs.replace(stored(), involved_object=ObjectReference("Pod", "default", name))


def test_each_change_of_an_event_is_a_message_with_the_key_of_its_object(
    sinks: Sinks, messages: StoredMessages
) -> None:
    events = [stored(1), stored(2), stored(1, count=2)]
    sink = sinks()
    sink.open()
    assert write(sink, *events) == events
    messages.read()
    assert [(key, headers["ce_id"], body["count"]) for _, key, headers, body in messages.messages] == [
        ("default/Pod/web-0", "producer:1/1", 1),
        ("default/Pod/web-0", "producer:2/1", 1),
        ("default/Pod/web-0", "producer:1/2", 2),
    ]
    assert len({partition for partition, *_ in messages.messages}) == 1
    assert messages.messages[2][2] == {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": "producer:1/2",
        "ce_source": "/eventbus",
        "ce_type": "io.eventbus.event.v1",
        "ce_subject": "default/Pod/web-0",
        "ce_time": "2024-01-01T12:00:00.000000Z",
        "ce_eventtype": "Normal",
        "ce_reason": "Started",
        "ce_sequence": "1",
    }


def test_a_key_and_headers_can_have_any_text() -> None:
    event = about("ä\ud800")
    assert key_of(event) == "default/Pod/ä?".encode()
    assert ("ce_subject", "default/Pod/ä?".encode()) in headers_of(SinkWrite.of(Verb.CREATE, event), key_of(event))


def test_a_message_that_is_too_large_is_rejected_and_the_others_are_written(
    server: KafkaServer, sinks: Sinks, messages: StoredMessages
) -> None:
    sink = sinks()
    answers = write(sink, stored(1), stored(2, message="x" * 1_100_000), stored(3))
    assert [type(answer) for answer in answers] == [Event, EventRejected, Event]
    server.fail(KafkaError.MSG_SIZE_TOO_LARGE, 0, KafkaError.MSG_SIZE_TOO_LARGE, 0)  # of the topic: the second of three
    answers = write(sink, stored(4), stored(5), stored(6))
    assert [type(answer) for answer in answers] == [Event, EventRejected, Event]
    assert "MSG_SIZE_TOO_LARGE" in str(answers[1])
    messages.read()
    assert messages.ids == dict.fromkeys([f"producer:{number}/1" for number in (1, 3, 4, 6)], 1)


def test_if_the_broker_fails_before_all_are_sent_alone_the_others_are_not_rejected(
    server: KafkaServer, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, sent = sinks(timeout_s=1), []
    eventually(lambda: write(sink, stored()) == [stored()])  # it is connected
    produce = sink._produce

    def note(*given: Any) -> None:
        sent.append(given)
        produce(*given)

    monkeypatch.setattr(sink, "_produce", note)
    server.fail(KafkaError.MSG_SIZE_TOO_LARGE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 1000)
    answers = write(sink, stored(1), stored(2), stored(3))
    assert [type(answer) for answer in answers] == [SinkUnreachable] * 3
    assert len(sent) == 3 + 1, "each would have taken as long"


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (KafkaError.INVALID_RECORD, EventRejected, "INVALID_RECORD"),
        (KafkaError.UNKNOWN, UnexpectedReply, "UNKNOWN"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SinkUnreachable, "give the user Write and Describe on the topic"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, SinkUnreachable, "give the user IdempotentWrite on the cluster"),
        (KafkaError.POLICY_VIOLATION, SinkUnreachable, "POLICY_VIOLATION"),
    ],
    ids=["record", "unknown", "topic", "cluster", "policy"],
)
def test_the_meaning_of_an_error(
    server: KafkaServer, sinks: Sinks, code: int, error: type[Exception], text: str
) -> None:
    server.fail(code)
    sink = sinks()
    (answer,) = write(sink, stored())
    assert type(answer) is error
    assert text in str(answer)
    assert write(sink, stored()) == [stored()]


def test_a_temporary_error_and_the_end_of_the_connection_are_not_seen(
    server: KafkaServer, sinks: Sinks, messages: StoredMessages
) -> None:
    server.fail(KafkaError.NOT_ENOUGH_REPLICAS, HANG_UP, KafkaError.REQUEST_TIMED_OUT)
    assert write(sinks(), stored()) == [stored()]
    messages.read()
    assert messages.ids == {"producer:1/1": 1}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "create the topic eventbus, or correct the sink's URL"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "give the user Write and Describe"),
    ],
    ids=["unknown", "forbidden"],
)
def test_a_topic_that_cannot_be_used_pauses_the_sink(server: KafkaServer, sinks: Sinks, code: int, text: str) -> None:
    server.fail_topic(code)
    sink = sinks()
    with pytest.raises(SinkUnreachable, match=text):
        sink.open()
    (answer,) = write(sink, stored())
    assert isinstance(answer, SinkUnreachable)
    assert text in str(answer)
    server.fail_topic(0)
    assert write(sink, stored()) == [stored()]


def test_a_broker_that_is_away_is_found_again(server: KafkaServer, sinks: Sinks, messages: StoredMessages) -> None:
    sink = sinks(timeout_s=1)
    eventually(lambda: write(sink, stored(1)) == [stored(1)])  # on a busy machine not at once
    server.stop()
    answers = write(sink, stored(2), stored(3))
    assert [type(answer) for answer in answers] == [SinkUnreachable] * 2
    assert "Connection refused" in str(answers[0])
    assert "check that the broker runs, and the sink's URL" in str(answers[0])
    with pytest.raises(SinkUnreachable, match="Connection refused"):
        sink.open()
    server.start()
    assert write(sinks(), stored(2), stored(3)) == [stored(2), stored(3)]
    messages.read()
    assert set(messages.ids) == {"producer:1/1", "producer:2/1", "producer:3/1"}


def test_a_frozen_broker_is_unreachable_after_the_timeout(server: KafkaServer, sinks: Sinks) -> None:
    sink = sinks(timeout_s=1)
    sink.open()
    server.answer_after(3_600_000)
    (answer,) = write(sink, stored())
    assert isinstance(answer, SinkUnreachable)
    server.answer_after(0)


def test_a_full_queue_of_the_client_delays_the_rest_of_a_batch(
    sinks: Sinks, messages: StoredMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.export.sinks.kafka.QUEUED", 3)
    events = [stored(number) for number in range(10)]
    assert write(sinks(), *events) == events
    messages.read()
    assert set(messages.ids.values()) == {1}
    assert len(messages.ids) == 10


def test_a_certificate_is_verified(server: KafkaServer, sinks: Sinks, tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path, "IP:127.0.0.1")
    with Proxy(f"tcp://{server.address}", seed=1, tls=context) as line:
        server.advertise(line.port)
        url = f"kafka+tls://127.0.0.1:{line.port}"
        trusting = make_sink(url, {"EVENTBUS_KAFKA_CA_FILE": str(certificate)})
        assert isinstance(trusting, KafkaSink)
        assert write(trusting, stored()) == [stored()]
        trusting.close()
        other = make_sink(url, {}, timeout_s=1)
        assert isinstance(other, KafkaSink)
        with pytest.raises(SinkUnreachable, match="certificate verify failed"):
            other.open()


def test_a_broker_that_hangs_up_on_clients_without_tls_is_reported_with_the_cure(tmp_path: Path) -> None:
    _, context = make_certificate(tmp_path, "IP:127.0.0.1")
    with Proxy("tcp://127.0.0.1:1", seed=1, tls=context) as line:
        sink = make_sink(f"kafka://127.0.0.1:{line.port}", {}, timeout_s=1)
        assert isinstance(sink, KafkaSink)
        with pytest.raises(SinkUnreachable, match="expects TLS or a user"):
            sink.open()


def test_a_user_without_tls_needs_a_mechanism_that_hides_the_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("right-one\n")
    env = {"EVENTBUS_KAFKA_PASSWORD_FILE": str(tmp_path / "password")}
    for url in ("kafka://ann@127.0.0.1", "kafka+tls://ann@127.0.0.1/shop?sasl=plain"):
        make_sink(url, env)
    with pytest.raises(ConfigError, match="plain text") as error:
        make_sink("kafka://ann@127.0.0.1?sasl=PLAIN", env)
    assert "right-one" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "environ", "problem"),
    [
        ("kafka://", {}, "must name its servers as kafka://host:9092"),
        ("kafka://a:b", {}, "must name its servers"),
        ("kafka://a/b/c", {}, "the topic 'b/c'"),
        ("kafka://a/..", {}, r"the topic '\.\.'"),
        ("kafka://a?acks=0", {}, "no option 'acks'"),
        ("kafka://ann@a", {}, "needs EVENTBUS_KAFKA_PASSWORD"),
        ("kafka://:hunter2@a", {}, "a password without a user"),
        ("kafka://ann@a?sasl=GSSAPI", {"EVENTBUS_KAFKA_PASSWORD": "x"}, "give SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
        ("kafka+tls://a", {"EVENTBUS_KAFKA_CA_FILE": "/none"}, "EVENTBUS_KAFKA_CA_FILE"),
        ("kafka://a", {"EVENTBUS_KAFKA_CA_FILE": "/none"}, r"does not use TLS: use kafka\+tls://"),
        ("kafka+tls://a", {"EVENTBUS_KAFKA_KEY_FILE": "/none"}, "needs EVENTBUS_KAFKA_CERT_FILE"),
    ],
)
def test_a_url_that_names_no_target_is_refused(url: str, environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, environ)
