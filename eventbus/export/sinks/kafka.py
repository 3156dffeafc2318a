"""Publishes events to a topic of Kafka: a message for each change of an event.

kafka://host:9092/TOPIC, kafka+tls://…    TOPIC: eventbus unless given; several brokers of a cluster with commas
    ?sasl=SCRAM-SHA-256                   of the user in the URL; SCRAM-SHA-512 unless given; PLAIN with TLS alone

EVENTBUS_KAFKA_PASSWORD, …_FILE   of the user in the URL
EVENTBUS_KAFKA_CA_FILE            trusted CAs instead of the system's
EVENTBUS_KAFKA_CERT_FILE, EVENTBUS_KAFKA_KEY_FILE  the client's certificate
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.errors import ConfigError, EventRejected, EventUnbuildable, SinkError, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.common import (
    CLOUD_EVENT_SOURCE,
    CLOUD_EVENT_TYPE,
    AppendsBatches,
    check_host,
    core_json,
    credentials_of,
    error_text,
    query_of,
    servers_of,
    tls_context,
)
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.encoding.event_json import micros_to_json
from eventbus.model.event import Event

DEFAULT_PORT: Final = 9092
DEFAULT_TOPIC: Final = "eventbus"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
#: Messages that the client takes before the broker has acknowledged them.
QUEUED: Final = 100_000
#: The longest wait for a connection: a worker that is stopped meanwhile must end within EVENTBUS_DRAIN_S.
CONNECT_S: Final = 5.0
#: The client reports messages without an answer once a second.
REPORT_S: Final = 3.0

_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
#: A broker answers all messages that it got together with the error of one.
_OF_ONE_MESSAGE: Final[Mapping[int, type[SinkError]]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: EventRejected,
    KafkaError.INVALID_RECORD: EventRejected,
    KafkaError._INVALID_DIFFERENT_RECORD: EventRejected,
    KafkaError.INVALID_MSG: UnexpectedReply,
    KafkaError.UNKNOWN: UnexpectedReply,
}
#: Of all messages.
_SAME_HEADERS: Final = (
    ("content-type", b"application/json"),
    ("ce_specversion", b"1.0"),
    ("ce_source", CLOUD_EVENT_SOURCE.encode()),
    ("ce_type", CLOUD_EVENT_TYPE.encode()),
)
_CURES: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic {topic}, or correct the sink's URL",
    KafkaError._UNKNOWN_TOPIC: "create the topic {topic}, or correct the sink's URL",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give the user Write and Describe on the topic {topic}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give the user IdempotentWrite on the cluster",
}


def make_kafka_sink(url: str, options: SinkOptions) -> KafkaSink:
    """Make the sink of `kafka://host/TOPIC`. Raises: ConfigError."""
    parts = urlsplit(url)
    topic = parts.path.strip("/") or DEFAULT_TOPIC
    if not _TOPIC.match(topic):
        raise ConfigError(f"the topic {topic!a} in the sink's URL: give at most 249 letters, digits, and . _ -")
    servers = servers_of(parts, DEFAULT_PORT)
    mechanism = query_of(url, "sasl").get("sasl", MECHANISMS[0]).upper()

    def security() -> dict[str, Any]:
        return _security(parts, mechanism, options)

    security()  # report an unreadable secret at start
    return KafkaSink(options.name, servers, topic, security=security, timeout_s=options.timeout_s)


def _security(parts: SplitResult, mechanism: str, options: SinkOptions) -> dict[str, Any]:
    """Return the settings of TLS and of the user. The files may change. Raises: ConfigError."""
    tls = parts.scheme == "kafka+tls"
    user, password = credentials_of(parts, options, "EVENTBUS_KAFKA_PASSWORD")
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl={mechanism!a} in the sink's URL: give {', '.join(MECHANISMS)}")
    if user and mechanism == "PLAIN" and not tls:
        raise ConfigError("sasl=PLAIN would send the password in plain text: use kafka+tls://, or SCRAM-SHA-512")
    settings = {"security.protocol": f"{'SASL_' if user else ''}{'SSL' if tls else 'PLAINTEXT'}"}
    if user:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    if tls_context(options.environ, "EVENTBUS_KAFKA", parts.scheme):  # made to report a file that cannot be used
        for name, setting in (("CA", "ca"), ("CERT", "certificate"), ("KEY", "key")):
            if path := options.environ.get(f"EVENTBUS_KAFKA_{name}_FILE"):
                settings[f"ssl.{setting}.location"] = path
    return settings


class KafkaSink(AppendsBatches):
    """Publishes a batch at once, and waits for the acknowledgement of each message by all replicas in sync.

    The producer is idempotent: it repeats requests by itself, and the broker drops repeats. After an outage, the sink
    makes another producer, which the broker cannot compare with the former.
    """

    mode = SinkMode.APPEND

    def __init__(
        self,
        name: str,
        servers: Sequence[str],
        topic: str,
        *,
        security: Callable[[], dict[str, Any]],
        timeout_s: float,
    ) -> None:
        self.name = name
        self._servers = servers
        self._topic = topic
        self._security = security
        self._timeout_s = timeout_s
        self._producer: Producer | None = None
        self._problem = ""  # the last error of a connection

    def check(self) -> None:
        """Look up the hosts. Raises: ConfigError: none of them exists."""
        check_host(*(urlsplit(f"//{server}").hostname or "" for server in self._servers))

    def open(self) -> None:
        """Connect, and look for the topic. Raises: SinkUnreachable."""
        producer = self._connected()
        try:
            error = producer.list_topics(self._topic, min(self._timeout_s, CONNECT_S)).topics[self._topic].error
        except KafkaException as problem:
            error = problem.args[0]
            producer.poll(0)  # for the error of the connection
        if error is not None:
            text = str(self._error_of(error))
            self.close()
            raise SinkUnreachable(text)

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Publish them in order, and wait for all acknowledgements. Raises: SinkUnreachable: nothing was sent."""
        batch = _Batch(writes)
        self._connected()
        for place in range(len(writes)):
            self._produce(batch, place)
        return self._finish(batch)

    def close(self) -> None:
        """Close the connections. Messages without an acknowledgement are given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()

    def _connected(self) -> Producer:
        if self._producer is None:
            self._problem = ""
            timeout_ms = max(1_000, int(self._timeout_s * 1000))
            try:
                self._producer = Producer(
                    {
                        "bootstrap.servers": ",".join(self._servers),
                        "client.id": f"eventbus-{self.name}",
                        "enable.idempotence": True,  # with it acks=all
                        "compression.type": "lz4",
                        "linger.ms": 1,  # a batch is there at once
                        "batch.size": 256 * 1024,
                        "queue.buffering.max.messages": QUEUED,
                        # Java's, so that other producers put the same key into the same partition.
                        "partitioner": "murmur2_random",
                        "message.timeout.ms": timeout_ms,
                        "request.timeout.ms": timeout_ms,
                        "socket.timeout.ms": timeout_ms,
                        "socket.connection.setup.timeout.ms": timeout_ms,
                        "reconnect.backoff.max.ms": 1_000,
                        "topic.metadata.propagation.max.ms": 0,  # the export waits for the topic
                        "log_level": 0,  # errors are in the answers
                        "error_cb": self._on_error,
                        **self._security(),
                    }
                )
            except (KafkaException, ConfigError) as error:
                raise SinkUnreachable(error_text(error)) from error
        return self._producer

    def _produce(self, batch: _Batch, place: int) -> None:
        write, producer = batch.writes[place], self._connected()
        try:
            body = core_json(write.event)
        except EventUnbuildable as error:
            batch.answers[place] = error
            return
        key, until = key_of(write.event), time.monotonic() + self._timeout_s
        while True:
            try:
                producer.produce(
                    self._topic,
                    body,
                    key,
                    headers=headers_of(write, key),
                    on_delivery=partial(self._delivered, batch, place),
                )
            except BufferError:
                if time.monotonic() < until:
                    producer.poll(0.1)
                    continue
                batch.answers[place] = SinkUnreachable(self._problem or "the messages before it are not acknowledged")
            except KafkaException as error:
                batch.answers[place] = self._error_of(error.args[0])
            else:
                batch.waiting += 1
            return

    def _delivered(self, batch: _Batch, place: int, error: KafkaError | None, _message: Message) -> None:
        batch.waiting -= 1
        batch.answers[place] = batch.writes[place].event if error is None else self._error_of(error)
        if error is not None and error.code() in _OF_ONE_MESSAGE:
            batch.failed.append(place)

    def _finish(self, batch: _Batch) -> Sequence[SinkAnswer]:
        """Wait for the acknowledgements, and send messages alone that a broker has rejected with others."""
        self._wait(batch)
        failed, batch.failed = sorted(batch.failed), []
        if len(batch.writes) > 1:
            # They were sent together with others, and one of these may be the reason.
            for place in failed:
                batch.answers[place] = SinkUnreachable("not acknowledged")
            for place in failed:
                self._produce(batch, place)
                self._wait(batch)
                if isinstance(batch.answers[place], SinkUnreachable):
                    break
        if any(isinstance(answer, SinkUnreachable) for answer in batch.answers):
            self.close()  # late acknowledgements are not for the next batch
        else:
            self._problem = ""
        return batch.answers

    def _wait(self, batch: _Batch) -> None:
        """Wait for the acknowledgements, for a time in which the client gives up messages."""
        producer, until = self._connected(), time.monotonic() + self._timeout_s + REPORT_S
        while batch.waiting and (left_s := until - time.monotonic()) > 0:
            producer.poll(left_s)

    def _error_of(self, error: KafkaError) -> SinkError:
        code = error.code()
        text = f"{error.name()}: {error_text(error.str())}"
        if kind := _OF_ONE_MESSAGE.get(code):
            return kind(text)
        if cure := _CURES.get(code):
            return SinkUnreachable(f"{text}: {cure.format(topic=self._topic)}")
        return SinkUnreachable(f"{self._problem} ({error.name()})" if code < 0 and self._problem else text)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._TRANSPORT:
            self._problem = f"{error_text(error.str())}: check that the broker runs, and the sink's URL"
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._problem = error_text(error.str())
        elif not self._problem:
            self._problem = "no broker can be used: check the sink's URL, and whether the broker expects TLS or a user"


class _Batch:
    """The answers to the messages of a call. *waiting*: messages that are under way. *failed*: places to try alone."""

    def __init__(self, writes: Sequence[SinkWrite]) -> None:
        self.writes = writes
        self.answers: list[SinkAnswer] = [SinkUnreachable("Kafka has not acknowledged it in time")] * len(writes)
        self.waiting = 0
        self.failed: list[int] = []


def key_of(event: Event) -> bytes:
    """Return NAMESPACE/KIND/NAME of the object: its events are in one partition, in order."""
    about = event.involved_object
    return f"{about.namespace}/{about.kind}/{about.name}".encode("utf-8", "replace")


def headers_of(write: SinkWrite, key: bytes) -> list[tuple[str, str | bytes | None]]:
    """Return the attributes of the CloudEvent, in the binary mode of CloudEvents' binding for Kafka."""
    event = write.event
    attributes = (
        ("ce_id", write.delivery_id),
        ("ce_time", micros_to_json(event.last_seen)),
        ("ce_eventtype", event.type),
        ("ce_reason", event.reason),
        ("ce_sequence", event.metadata.resource_version),
    )
    own = [(name, value.encode("utf-8", "replace")) for name, value in attributes if value]
    return [*_SAME_HEADERS, ("ce_subject", key.removeprefix(b"/")), *own]
