"""The sink for NATS JetStream, with a real nats-server."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StreamInfo

from eventbus.errors import ConfigError, EventRejected, SinkUnreachable
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.nats import MOST_TOKEN_BYTES, NatsSink, Subject
from eventbus.model.event import Event, ObjectReference
from tests.integration.test_sink_otlp import stored
from tests.support.certificates import make_certificate
from tests.support.nats_server import NatsServer, StoredMessages, needs_nats
from tests.waiting import eventually


@pytest.fixture(scope="module")
def running() -> Iterator[NatsServer]:
    needs_nats()
    server = NatsServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def server(running: NatsServer) -> Iterator[NatsServer]:
    yield running

    async def delete_all(client: Client) -> None:
        context = client.jetstream()
        for stream in await context.streams_info():
            assert stream.config.name is not None
            await context.delete_stream(stream.config.name)

    running.call(delete_all)


Sinks = Callable[..., NatsSink]


@pytest.fixture
def sinks() -> Iterator[Sinks]:
    made: list[NatsSink] = []

    def make(server: NatsServer, end: str = "", *, timeout_s: float = 30, scheme: str = "nats", **env: str) -> NatsSink:
        sink = make_sink(f"{scheme}://127.0.0.1:{server.port}{end}", env, timeout_s=timeout_s)
        assert isinstance(sink, NatsSink)
        made.append(sink)
        return sink

    yield make
    for sink in made:
        sink.close()


def write(sink: NatsSink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])


def make_stream(server: NatsServer, **config: Any) -> None:
    async def make(client: Client) -> None:
        await client.jetstream().add_stream(**config)

    server.call(make)


def info(server: NatsServer, stream: str) -> StreamInfo:
    async def read(client: Client) -> StreamInfo:
        return await client.jetstream().stream_info(stream)

    return server.call(read)


def test_each_change_of_an_event_is_one_message_also_if_it_is_written_again(server: NatsServer, sinks: Sinks) -> None:
    events = [stored(1), stored(2), stored(1, count=2)]
    for sink in (sinks(server), sinks(server)):  # the second is of the worker that takes over
        sink.open()
        assert write(sink, *events) == events
    messages = StoredMessages(server)
    messages.read()
    assert [(subject, uid) for subject, uid, _ in messages.events] == [
        ("events.default.Pod.web-0", "producer:1/1"),
        ("events.default.Pod.web-0", "producer:2/1"),
        ("events.default.Pod.web-0", "producer:1/2"),
    ]
    body = messages.events[2][2]
    assert (body["kind"], body["reason"], body["count"]) == ("Event", "Started", 2)


def test_the_stream_is_made_at_start_and_one_that_exists_stays_as_it_is(server: NatsServer, sinks: Sinks) -> None:
    sinks(server, "/SHOP?subject=shop.{type}.{reason}&retention=2d").open()
    made = info(server, "SHOP").config
    assert (made.subjects, made.max_age) == (["shop.*.*"], 2 * 86_400)
    sinks(server, "/SHOP?subject=shop.{type}.{reason}").open()
    assert info(server, "SHOP").config.max_age == 2 * 86_400


def test_a_stream_that_may_not_be_made_pauses_the_sink(server: NatsServer, sinks: Sinks) -> None:
    with pytest.raises(SinkUnreachable, match="there is no stream SHOP: make it, or leave out create=false"):
        sinks(server, "/SHOP?create=false").open()
    make_stream(server, name="OTHER", subjects=["events.>"])
    with pytest.raises(SinkUnreachable, match=r"the stream SHOP cannot be made: .*overlap"):
        sinks(server, "/SHOP").open()


@pytest.mark.parametrize("other", [True, False], ids=["another stream", "no stream"])
def test_a_subject_that_the_stream_has_not_pauses_the_sink(server: NatsServer, sinks: Sinks, other: bool) -> None:
    make_stream(server, name="SHOP", subjects=["shop.>"])
    if other:
        make_stream(server, name="OTHER", subjects=["events.>"])
    (answer,) = write(sinks(server, "/SHOP"), stored())
    assert isinstance(answer, SinkUnreachable)
    assert ("stream does not match" if other else "has not the subject") in str(answer)


def test_a_message_that_is_too_large_is_rejected_and_the_others_are_written(server: NatsServer, sinks: Sinks) -> None:
    make_stream(server, name="EVENTBUS", subjects=["events.>"], max_msg_size=5_000)
    sink = sinks(server)
    events = [stored(1), stored(2, message="x" * 10_000), stored(3, message="x" * 1_100_000), stored(4)]
    answers = write(sink, *events)
    assert [type(answer) for answer in answers] == [Event, EventRejected, EventRejected, Event]
    assert "exceeds maximum" in str(answers[1])
    assert "too many for this server" in str(answers[2])


def test_a_full_stream_pauses_the_sink(server: NatsServer, sinks: Sinks) -> None:
    make_stream(server, name="EVENTBUS", subjects=["events.>"], max_msgs=1, discard=DiscardPolicy.NEW)
    answers = write(sinks(server), stored(1), stored(2))
    assert [type(answer) for answer in answers] == [Event, SinkUnreachable]


def test_a_server_that_is_away_is_found_again(sinks: Sinks) -> None:
    needs_nats()
    server = NatsServer()
    try:
        server.start()
        sink = sinks(server)
        write(sink, stored(1))
        server.stop()
        eventually(lambda: "Connect call failed" in problem_of(sink))
        server.start()
        assert write(sink, stored(1), stored(2)) == [stored(1), stored(2)]
        messages = StoredMessages(server)
        messages.read()
        assert messages.ids == {"producer:1/1": 1, "producer:2/1": 1}
    finally:
        server.close()


def problem_of(sink: NatsSink) -> str:
    try:
        sink.open()
    except SinkUnreachable as error:
        return str(error)
    return ""


def test_a_frozen_server_is_unreachable_after_the_timeout(server: NatsServer, sinks: Sinks) -> None:
    sink = sinks(server, timeout_s=0.5)
    sink.open()
    server.signal(signal.SIGSTOP)
    try:
        (answer,) = write(sink, stored())
        assert isinstance(answer, SinkUnreachable)
        assert "not acknowledged" in str(answer)
    finally:
        server.signal(signal.SIGCONT)
    assert write(sinks(server), stored()) == [stored()]


def test_a_user_and_a_password_from_the_environment_are_used(sinks: Sinks, tmp_path: Path) -> None:
    needs_nats()
    server = NatsServer("--user", "ann", "--pass", "right-one")
    (tmp_path / "password").write_text("right-one\n")
    try:
        server.start()
        url = f"nats://ann@127.0.0.1:{server.port}"
        sink = make_sink(url, {"EVENTBUS_NATS_PASSWORD_FILE": str(tmp_path / "password")})
        assert isinstance(sink, NatsSink)
        sink.open()
        sink.close()
        wrong = make_sink(url, {"EVENTBUS_NATS_PASSWORD": "wrong-one"})
        assert isinstance(wrong, NatsSink)
        with pytest.raises(SinkUnreachable, match="Authorization Violation") as error:
            wrong.open()
        wrong.close()
        assert "wrong-one" not in str(error.value)
    finally:
        server.close()


def test_a_certificate_is_verified(sinks: Sinks, tmp_path: Path) -> None:
    needs_nats()
    certificate, _ = make_certificate(tmp_path, "IP:127.0.0.1")
    server = NatsServer("--tls", "--tlscert", str(certificate), "--tlskey", str(tmp_path / "key.pem"))
    try:
        server.start()
        trusting = sinks(server, scheme="nats+tls", EVENTBUS_NATS_CA_FILE=str(certificate))
        assert write(trusting, stored()) == [stored()]
        with pytest.raises(SinkUnreachable, match="certificate verify failed"):
            sinks(server, scheme="nats+tls").open()
    finally:
        server.close()


def test_nothing_secret_is_sent_to_a_server_that_does_not_offer_tls() -> None:
    received = bytearray()

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.sendall(b'INFO {"server_id":"x","version":"2.9.10","max_payload":1048576,"auth_required":true}\r\n')
            while some := line.recv(4096):
                received.extend(some)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        sink = make_sink(f"nats+tls://127.0.0.1:{listener.getsockname()[1]}", {"EVENTBUS_NATS_TOKEN": "secret"})
        assert isinstance(sink, NatsSink)
        with pytest.raises(SinkUnreachable, match="does not offer TLS"):
            sink.open()
        sink.close()
        thread.join(30)
    assert received == b""


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("web-0", "web-0"),
        ("web-0.shop", "web-0%2Eshop"),
        ("", "-"),
        ("a b*>\r\n", "a%20b%2A%3E%0D%0A"),
        ("ä\ud800", "%C3%A4%3F"),
    ],
)
def test_a_name_is_one_token(name: str, token: str) -> None:
    assert Subject("events.{name}").of(about(name)) == f"events.{token}"


def test_long_names_are_cut_and_differ() -> None:
    first, second = (Subject("{name}").of(about("x" * 1_000 + end)) for end in "ab")
    assert len(first) == len(second) == MOST_TOKEN_BYTES
    assert first != second


def about(name: str) -> Event:
    return msgspec.structs.replace(stored(), involved_object=ObjectReference("Pod", "default", name))


@pytest.mark.parametrize(
    ("url", "environ", "problem"),
    [
        ("nats://", {}, "must name its servers"),
        ("nats://a:b", {}, "must name its servers"),
        ("nats://" + ",".join(["a"] * 17), {}, "17 servers; at most 16"),
        ("nats://a/b/c", {}, "the stream 'b/c'"),
        ("nats://a?subject=events.>", {}, "give tokens of letters"),
        ("nats://a?subject=events.{count}", {}, r"or \{namespace\}"),
        ("nats://a?subject=", {}, "give tokens of letters"),
        ("nats://a?create=no", {}, "create='no'"),
        ("nats://a?retention=1h", {}, "give whole days"),
        ("nats://a?retention=1d&create=false", {}, "leave out create=false"),
        ("nats://a?token=x", {}, "no option 'token'"),
        ("nats://ann@a", {}, "needs EVENTBUS_NATS_PASSWORD"),
        ("nats://:hunter2@a", {}, "a password without a user"),
        ("nats://ann:x@a", {"EVENTBUS_NATS_TOKEN": "y"}, "give one of"),
        ("nats+tls://a", {"EVENTBUS_NATS_CA_FILE": "/none"}, "EVENTBUS_NATS_CA_FILE"),
    ],
)
def test_a_url_that_names_no_target_is_refused(url: str, environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, environ)


def test_a_write_waits_while_the_process_may_not_start_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = make_sink("nats://127.0.0.1:1/events", {}, timeout_s=1.0)
    assert isinstance(sink, NatsSink)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _cannot_start)
        with pytest.raises(SinkUnreachable, match="can't start new thread"):
            sink.open()
    with pytest.raises(SinkUnreachable, match=r"127\.0\.0\.1:1"):
        sink.open()
    sink.close()


def _cannot_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
