"""The webhook sink against real HTTP and HTTPS servers: what arrives, what answers mean, and where it refuses to go."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from eventbus.errors import (
    ConfigError,
    DeadCause,
    EventBusError,
    EventRejected,
    NotSent,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.deliveries import Outcome, SinkDelivery
from eventbus.export.lease import pause
from eventbus.export.rules import Outage
from eventbus.export.sink_writer import MAX_TRIES, SinkWriter
from eventbus.export.sinks import BatchSink, EventPatch, EventSink, SinkMode, SinkWrite, Verb, make_sink
from eventbus.model.encoding.event_json import decode_core
from eventbus.model.event import Event
from eventbus.util.http.guarded_http import GuardedClient
from eventbus.util.http.ssrf import Guard
from tests.builders import NOW, make_event, make_reference
from tests.support.certificates import make_certificate
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving
from tests.unit.export.test_sink_writer import Time, Told, written
from tests.waiting import PATIENCE_S, eventually

ALLOWED = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def url(endpoint: Endpoint) -> Iterator[str]:
    with receiving(endpoint) as port:
        yield f"http://127.0.0.1:{port}/hooks/T0P?team=a"


@pytest.fixture
def sinks() -> Iterator[list[EventSink]]:
    """Yield a list; the sinks that a test puts there are closed."""
    made: list[EventSink] = []
    yield made
    for sink in made:
        sink.close()


@pytest.fixture
def sink(url: str, sinks: list[EventSink]) -> EventSink:
    sinks.append(make_sink(url, ALLOWED, timeout_s=60))
    return sinks[-1]


def stored(number: int = 1, *, count: int = 1, **overrides: Any) -> Event:
    event = make_event(count=count, **overrides)
    metadata = {"name": f"web-0.{number}", "uid": f"producer:{number}", "resource_version": str(number)}
    return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, **metadata))


def batch_of(*events: Event) -> list[SinkWrite]:
    return [SinkWrite.of(Verb.CREATE, event) for event in events]


def open_batch_sink(url: str, sinks: list[EventSink]) -> BatchSink:
    sink = make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_MODE": "batch"}, timeout_s=60)
    sinks.append(sink)
    assert isinstance(sink, BatchSink)
    return sink


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_delivery_is_a_cloud_event_that_the_sdk_can_read(
    endpoint: Endpoint, url: str, sinks: list[EventSink], mode: str
) -> None:
    sink = make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_MODE": mode, "EVENTBUS_WEBHOOK_SOURCE": "/prod"})
    sinks.append(sink)
    event = stored(7, count=3, type="Warning", reason="Back Off é", message='ü 🚀 "quoted" % \n')
    assert sink.create(event) == event
    (delivery,) = endpoint.deliveries
    assert delivery.path == "/hooks/T0P?team=a"
    found = from_http_event(HTTPMessage(delivery.headers, delivery.body))
    assert found.get_specversion() == "1.0"
    assert (found.get_id(), found.get_source(), found.get_type()) == ("producer:7/3", "/prod", "io.eventbus.event.v1")
    assert (found.get_subject(), found.get_time()) == ("default/Pod/web-0", NOW)
    assert found.get_extension("eventtype") == "Warning"
    assert found.get_extension("reason") == "Back Off é"
    assert found.get_extension("sequence") == "7"
    assert decode_core(msgspec.json.encode(found.get_data())) == event
    assert ("ce-id" in delivery.headers) == (mode == "binary")
    assert delivery.headers["content-type"] == (
        "application/json" if mode == "binary" else "application/cloudevents+json"
    )


def test_it_appends_one_by_one_and_a_patch_sends_the_whole_event(endpoint: Endpoint, sink: EventSink) -> None:
    assert sink.mode is SinkMode.APPEND
    event = stored(count=2)
    assert sink.patch(event, EventPatch(name="", count=2)) == event
    assert sink.update(event) == event
    bodies = [msgspec.json.decode(delivery.body)["data"] for delivery in endpoint.deliveries]
    assert [body["count"] for body in bodies] == [2, 2]
    assert bodies[0]["involvedObject"]["name"] == "web-0"


def test_the_delivery_id_is_the_idempotency_key_the_same_for_a_repeat_and_another_for_the_next_count(
    endpoint: Endpoint, sink: EventSink
) -> None:
    endpoint.answers.append(Answer(0))  # taken, and the reply is lost
    with pytest.raises(SinkUnreachable):
        sink.create(stored(7))
    sink.create(stored(7))
    sink.create(stored(7, count=2))
    keys = [delivery.headers["idempotency-key"] for delivery in endpoint.deliveries]
    assert keys == ["producer:7/1", "producer:7/1", "producer:7/2"]


def test_one_connection_serves_many_deliveries(endpoint: Endpoint, sink: EventSink) -> None:
    for number in range(5):
        sink.create(stored(number))
    assert (len(endpoint.deliveries), endpoint.connections) == (5, 1)


def test_a_signature_covers_the_time_and_the_body(endpoint: Endpoint, url: str, sinks: list[EventSink]) -> None:
    sinks.append(make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_SECRET": "hunter2", "EVENTBUS_WEBHOOK_TOKEN": "t0ken"}))
    before = int(time.time())
    sinks[-1].create(stored())
    (delivery,) = endpoint.deliveries
    timestamp = delivery.headers["x-eventbus-timestamp"]
    assert before <= int(timestamp) <= time.time()
    expected = hmac.new(b"hunter2", timestamp.encode() + b"." + delivery.body, hashlib.sha256).hexdigest()
    assert delivery.headers["x-eventbus-signature"] == f"sha256={expected}"
    assert delivery.headers["authorization"] == "Bearer t0ken"


def test_without_a_secret_nothing_is_signed(endpoint: Endpoint, sink: EventSink) -> None:
    sink.create(stored())
    assert not {"authorization", "x-eventbus-signature"} & set(endpoint.deliveries[0].headers)


def test_a_secret_in_a_file_is_read_anew_and_shown_nowhere(
    endpoint: Endpoint, url: str, sinks: list[EventSink], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    sinks.append(make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_TOKEN_FILE": str(file)}))
    sinks[-1].create(stored())
    file.write_text("second\n")
    sinks[-1].create(stored())
    assert [delivery.headers["authorization"] for delivery in endpoint.deliveries] == ["Bearer first", "Bearer second"]
    assert "second" not in repr(sinks[-1])
    assert "T0P" not in repr(sinks[-1])
    file.unlink()
    with pytest.raises(SinkUnreachable, match="TOKEN_FILE"):
        sinks[-1].create(stored())


#: Status, and the error of a delivery that gets it.
ANSWERS: list[tuple[int, type[EventBusError] | None]] = [
    (200, None),
    (202, None),
    (204, None),
    (409, None),
    (301, SinkUnreachable),
    (307, SinkUnreachable),
    (400, EventRejected),
    (413, EventRejected),
    (422, EventRejected),
    (401, SinkUnreachable),
    (403, SinkUnreachable),
    (404, SinkUnreachable),
    (410, SinkUnreachable),
    (429, Throttled),
    (500, UnexpectedReply),
    (502, SinkUnreachable),
    (503, SinkUnreachable),
]


def test_an_answer_means(endpoint: Endpoint, sink: EventSink) -> None:
    for number, (status, error) in enumerate(ANSWERS, start=1):
        endpoint.answers.append(Answer(status, headers={"Location": "http://127.0.0.1:1/"}))
        assert error_of(sink) is error, status
        assert len(endpoint.deliveries) == number, "redirects must not be followed"


def error_of(sink: EventSink) -> type[EventBusError] | None:
    try:
        sink.create(stored())
    except EventBusError as error:
        return type(error)
    return None


def test_retry_after_may_be_seconds_or_a_date(endpoint: Endpoint, sink: EventSink) -> None:
    endpoint.answers.append(Answer(429, headers={"Retry-After": "3"}))
    endpoint.answers.append(Answer(429, headers={"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}))
    found = []
    endpoint.answers.append(Answer(503, headers={"Retry-After": "5"}))
    for _ in range(3):
        with pytest.raises(Throttled) as caught:
            sink.create(stored())
        found.append(caught.value.retry_after_s)
    assert found == [3.0, 600.0, 5.0]


def test_what_the_endpoint_says_is_made_harmless_and_short(endpoint: Endpoint, sink: EventSink) -> None:
    endpoint.answers.append(Answer(422, body=b"\x1b]52;no\r\n" + b"x" * 100_000))
    with pytest.raises(EventRejected) as caught:
        sink.create(stored())
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300
    sink.create(stored())


def test_an_endpoint_that_drips_is_left_after_the_timeout(endpoint: Endpoint, url: str, sinks: list[EventSink]) -> None:
    sinks.append(make_sink(url, ALLOWED, timeout_s=0.5))
    endpoint.answers.append(Answer(200, drip_s=0.05))
    with pytest.raises(SinkUnreachable):
        sinks[-1].create(stored())
    eventually(lambda: sinks[-1].create(stored()), despite=SinkUnreachable)


def test_addresses_that_swallow_connections_leave_a_dripping_one_no_time_of_its_own(
    endpoint: Endpoint, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = urlsplit(url).port
    assert port
    answer_names(monkeypatch, {"hooks.test": ["127.0.0.2", "127.0.0.3", "127.0.0.1"]})
    endpoint.answers.append(Answer(200, drip_s=0.05))
    client = GuardedClient(Guard(frozenset({"hooks.test"})), tls=ssl.create_default_context(), timeout_s=0.6)
    with black_hole("127.0.0.2", port), black_hole("127.0.0.3", port), pytest.raises(SinkUnreachable):
        client.post(f"http://hooks.test:{port}/", {"content-length": "0"}, b"")
    client.close()


@contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """A listener whose queue is full: connecting to it takes for ever."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((address, port))
        yield


def test_an_endpoint_that_never_answers_is_left_after_the_timeout(sinks: list[EventSink]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sinks.append(make_sink(f"http://127.0.0.1:{silent.getsockname()[1]}/", ALLOWED, timeout_s=0.3))
        with pytest.raises(SinkUnreachable, match=r"^no whole answer within 0\.3 s$"):
            sinks[-1].create(stored())


def test_an_endpoint_that_takes_a_request_drop_by_drop_is_left_after_the_timeout() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def drip() -> None:
            line, _ = server.accept()
            with line:
                while not ended.wait(0.02) and line.recv(2048):
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        client = GuardedClient(Guard(frozenset({"127.0.0.1"})), tls=ssl.create_default_context(), timeout_s=0.5)
        try:
            with pytest.raises(SinkUnreachable, match=r"^no whole answer within 0\.5 s$"):
                client.post(url, {"content-length": "100000000"}, b"x" * 100_000_000)
        finally:
            ended.set()
            thread.join()
            client.close()


def test_a_reply_is_read_up_to_64_kib(endpoint: Endpoint, url: str) -> None:
    client = GuardedClient(Guard(frozenset({"127.0.0.1"})), tls=ssl.create_default_context(), timeout_s=60)
    try:
        for size in (64 * 1024, 10_000_000):
            endpoint.answers.append(Answer(422, body=b"x" * size))
            assert client.post(url, {}, b"").body == b"x" * 64 * 1024
    finally:
        client.close()


def test_no_proxy_of_the_environment_is_used(
    endpoint: Endpoint, sink: EventSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sink.create(stored())
    assert len(endpoint.deliveries) == 1


def test_an_endpoint_that_hangs_up_itself_is_not_said_to_be_slow(sinks: list[EventSink]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        sinks.append(make_sink(f"http://127.0.0.1:{server.getsockname()[1]}/", ALLOWED, timeout_s=60))
        with pytest.raises(SinkUnreachable, match="Error: ") as left:
            sinks[-1].create(stored())
        thread.join()
    assert "within" not in str(left.value)


def of_object(number: int, object_number: int, message: str = "message") -> Event:
    return stored(number, involved_object=make_reference(name=f"pod-{object_number}"), message=message)


class Busy(Endpoint):
    """Answers 200 once *together* requests are under way. Notes how many of each object there were at once."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._together = together
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self._under_way = Counter[str]()
        self.most_of_an_object = 0

    def answer(self, delivery: Delivery) -> Answer:
        name = message_of(delivery)[0]
        with self._lock:
            self._under_way[name] += 1
            self.most_of_an_object = max(self.most_of_an_object, *self._under_way.values())
            if self._under_way.total() >= self._together:
                self._enough.set()
        self._enough.wait(PATIENCE_S)
        answer = super().answer(delivery)
        with self._lock:
            self._under_way[name] -= 1
        return answer


def message_of(delivery: Delivery) -> tuple[str, int, str]:
    """Object, version and message."""
    body = msgspec.json.decode(delivery.body)["data"]
    return body["involvedObject"]["name"], int(body["metadata"]["resourceVersion"]), body["message"]


def in_order(deliveries: list[Delivery]) -> dict[str, list[int]]:
    """Object → versions as they arrived."""
    found: dict[str, list[int]] = {}
    for name, version, _ in map(message_of, deliveries):
        found.setdefault(name, []).append(version)
    return found


def export(sink: EventSink, *events: Event, told: Told | None = None, time: Time | None = None) -> list[Outcome]:
    """What becomes of *events*; the versions of an object's grow."""
    deliveries = [SinkDelivery(key=event.metadata.uid, event=event) for event in events]
    writer = SinkWriter(sink, outage=Outage.PAUSE, progress=told or Told(), wait=pause)
    return written(writer, time or Time(), *deliveries)


def test_several_requests_are_under_way_at_once_and_one_of_an_object(sinks: list[EventSink]) -> None:
    endpoint = Busy(together=5)
    with receiving(endpoint) as port:
        sinks.append(make_sink(f"http://127.0.0.1:{port}/", ALLOWED | {"EVENTBUS_WEBHOOK_REQUESTS": "5"}, timeout_s=60))
        events = [of_object(number, number % 10) for number in range(100)]
        assert len(export(sinks[-1], *events)) == 100
    assert endpoint.most_of_an_object == 1
    assert endpoint.connections <= 5
    assert in_order(endpoint.deliveries) == {f"pod-{n}": list(range(n, 100, 10)) for n in range(10)}


def test_without_a_thread_for_each_request_there_are_fewer_at_once_and_none_is_repeated(
    sinks: list[EventSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_one(thread: threading.Thread) -> None:
        if thread.name.startswith("eventbus-webhook"):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    endpoint = Busy(together=2)
    with receiving(endpoint) as port:
        sinks.append(make_sink(f"http://127.0.0.1:{port}/", ALLOWED, timeout_s=60))
        assert len(export(sinks[-1], *(of_object(number, number % 10) for number in range(50)))) == 50
    assert in_order(endpoint.deliveries) == {f"pod-{n}": list(range(n, 50, 10)) for n in range(10)}


class Failing(Endpoint):
    """Answers *status* to the first *times* requests that hold `bad`."""

    def __init__(self, status: int, times: int) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._left = times
        self._status = status

    def answer(self, delivery: Delivery) -> Answer:
        with self._lock:
            answer = super().answer(delivery)
            if b"bad" in delivery.body and self._left:
                self._left -= 1
                return Answer(self._status)
            return answer


@pytest.mark.parametrize(("times", "cause"), [(2, None), (10**6, DeadCause.RETRIES)])
def test_no_later_event_of_an_object_passes_one_that_fails(
    sinks: list[EventSink], times: int, cause: DeadCause | None
) -> None:
    endpoint, time = Failing(500, times), Time()
    with receiving(endpoint) as port:
        sinks.append(make_sink(f"http://127.0.0.1:{port}/", ALLOWED, timeout_s=60))
        events = [of_object(n, n % 2, "bad" if n == 2 else "good") for n in range(20)]
        outcomes = export(sinks[-1], *events, time=time)
    buried = {outcome.delivery.version: outcome.cause for outcome in outcomes if outcome.cause}
    assert buried == ({2: cause} if cause else {})
    tries = times + 1 if cause is None else MAX_TRIES
    assert in_order(endpoint.deliveries) == {
        "pod-0": [0, *[2] * tries, *range(4, 20, 2)],
        "pod-1": list(range(1, 20, 2)),
    }
    settled = [outcome.delivery.version for outcome in outcomes]
    assert sorted(settled) == list(range(20))
    assert settled.index(19) < settled.index(2), "others go on meanwhile"
    assert len(time.slept) == tries - 1, "what waits behind it takes no time of its own"


def test_an_outage_leaves_what_is_not_sent_and_keeps_the_order(sinks: list[EventSink]) -> None:
    endpoint, told, time = Failing(503, 30), Told(), Time()
    with receiving(endpoint) as port:
        sinks.append(make_sink(f"http://127.0.0.1:{port}/", ALLOWED, timeout_s=60))
        outcomes = export(sinks[-1], *(of_object(n, n % 10, "bad") for n in range(100)), told=told, time=time)
    assert not any(outcome.cause for outcome in outcomes)
    for versions in in_order(endpoint.deliveries).values():
        assert versions == sorted(versions)
    assert len(endpoint.deliveries) == 100 + 30, "nothing that was taken is sent again"
    assert told.said[-1] == "resumed"
    assert len(time.slept) > 30 - 8, "while it is away, one request asks for all"


def test_a_number_of_requests_that_will_not_do_is_a_config_error(url: str) -> None:
    for text in ("0", "65", "many", "-1"):
        with pytest.raises(ConfigError, match=f"EVENTBUS_WEBHOOK_REQUESTS is '?{text}"):
            make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_REQUESTS": text})


def test_a_batch_is_one_request_that_holds_each_event_with_its_id(
    endpoint: Endpoint, url: str, sinks: list[EventSink]
) -> None:
    sink = open_batch_sink(url, sinks)
    events = [stored(number) for number in range(30)]
    assert sink.write(batch_of(*events)) == events
    assert sink.write(batch_of(*events)) == events
    first, again = endpoint.deliveries
    assert first.headers["content-type"].startswith("application/cloudevents-batch+json")
    assert [one["id"] for one in msgspec.json.decode(first.body)] == [f"producer:{number}/1" for number in range(30)]
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]


def test_of_a_batch_only_the_culprit_is_answered_with_an_error(
    endpoint: Endpoint, url: str, sinks: list[EventSink]
) -> None:
    sink = open_batch_sink(url, sinks)
    endpoint.refuse_if = b"poison"
    events = [stored(number, message="poison" if number == 11 else "fine") for number in range(20)]
    answers = sink.write(batch_of(*events))
    assert [place for place, answer in enumerate(answers) if not isinstance(answer, Event)] == [11]
    assert isinstance(answers[11], EventRejected)
    taken = [
        one["id"]
        for delivery in endpoint.deliveries
        if b"poison" not in delivery.body
        for one in msgspec.json.decode(delivery.body)
    ]
    assert taken == [f"producer:{number}/1" for number in range(20) if number != 11]


def test_batches_are_bounded_in_number_and_in_bytes(endpoint: Endpoint, url: str, sinks: list[EventSink]) -> None:
    sink = open_batch_sink(url, sinks)
    sink.write(batch_of(*(stored(number, message="x" * 10_000) for number in range(150))))
    assert all(len(delivery.body) <= 512 * 1024 for delivery in endpoint.deliveries)
    assert sum(len(msgspec.json.decode(delivery.body)) for delivery in endpoint.deliveries) == 150


def test_a_batch_to_an_endpoint_that_is_away_is_one_request_and_the_rest_is_not_sent(
    endpoint: Endpoint, url: str, sinks: list[EventSink]
) -> None:
    sink = open_batch_sink(url, sinks)
    endpoint.answers.append(Answer(503))
    answers = sink.write(batch_of(*[stored(number) for number in range(250)]))
    assert [type(answer) for answer in answers] == [SinkUnreachable] * 100 + [NotSent] * 150
    assert len(endpoint.deliveries) == 1


def test_tls_connects_to_the_address_that_was_checked_and_asks_for_the_name(
    endpoint: Endpoint, sinks: list[EventSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, tls = make_certificate(tmp_path, "DNS:hooks.example")
    asked = answer_names(monkeypatch, {"hooks.example": ["127.0.0.1"]})
    with receiving(endpoint, tls=tls) as port:
        environ = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "hooks.example", "EVENTBUS_WEBHOOK_CA_FILE": str(trusted)}
        sinks.append(make_sink(f"https://hooks.example:{port}/x", environ))
        asked.clear()  # the look-up at the start
        sinks[-1].create(stored())
        sinks[-1].create(stored())
    assert endpoint.server_names == ["hooks.example"]
    assert endpoint.deliveries[0].headers["host"] == f"hooks.example:{port}"
    assert asked == ["hooks.example"]  # once a connection: there is no second look-up to be deceived by


def test_a_certificate_nobody_vouches_for_or_of_another_name_is_unreachable(
    endpoint: Endpoint, sinks: list[EventSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, tls = make_certificate(tmp_path, "DNS:hooks.example")
    answer_names(monkeypatch, {"hooks.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]})
    allowed = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "hooks.example,other.example"}
    with receiving(endpoint, tls=tls) as port:
        sinks.append(make_sink(f"https://hooks.example:{port}/", allowed))
        sinks.append(make_sink(f"https://other.example:{port}/", allowed | {"EVENTBUS_WEBHOOK_CA_FILE": str(trusted)}))
        for sink in sinks:
            with pytest.raises(SinkUnreachable, match="certificate"):
                sink.create(stored())
    assert endpoint.deliveries == []


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "fd00::1", "::ffff:127.0.0.1"])
def test_a_name_with_one_address_inside_is_refused_though_the_first_is_outside(
    sinks: list[EventSink], monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    answer_names(monkeypatch, {"hooks.example": ["192.88.99.1", inside]})
    connected = refuse_to_connect(monkeypatch)
    sinks.append(make_sink("https://hooks.example/x", {}))
    with pytest.raises(SinkUnreachable, match="no request may go"):
        sinks[-1].create(stored())
    assert connected == []


@pytest.mark.parametrize("inside", [["127.0.0.1"], ["10.0.0.5", "fd00::1"]])
def test_a_name_with_no_address_but_inside_ones_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, inside: list[str], sinks: list[EventSink]
) -> None:
    answer_names(monkeypatch, {"hooks.example": inside, "metadata.example": ["169.254.169.254"]})
    with pytest.raises(
        ConfigError, match=r"no request may go; EVENTBUS_WEBHOOK_ALLOW_HOSTS=hooks\.example permits it$"
    ):
        make_sink("https://hooks.example/x", {})
    sinks.append(make_sink("https://hooks.example/x", {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "hooks.example"}))
    with pytest.raises(ConfigError, match=r"no request may go$"):
        make_sink("https://metadata.example/x", {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "metadata.example"})


def test_a_name_that_cannot_be_resolved_at_the_start_may_be_later(
    monkeypatch: pytest.MonkeyPatch, sinks: list[EventSink]
) -> None:
    answer_names(monkeypatch, {"hooks.example": ["no address"]})
    sinks.append(make_sink("https://hooks.example/x", {}))
    with pytest.raises(SinkUnreachable, match="cannot be resolved"):
        sinks[-1].create(stored())


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("http://hooks.example/", {}),
        ("https://hooks.example:9000/", {}),
        ("https://127.0.0.1/", {}),
        ("https://me:hunter2@hooks.example/", {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "hooks.example"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_MODE": "sideways"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_CA_FILE": "/no/such/file"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_SECRET_FILE": "/no/such/file"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_TOKEN": "hunter2ö"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_TOKEN": "hunter2\nhunter2"}),
        ("https://hooks.example/", {"EVENTBUS_WEBHOOK_SECRET": "hunter2ö"}),
    ],
)
def test_settings_that_will_not_do_are_a_config_error(url: str, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_sink(url, environ)
    assert "hunter2" not in str(caught.value)


def test_a_token_file_that_goes_wrong_is_an_outage_that_does_not_tell_it(
    url: str, sinks: list[EventSink], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("hunter2")
    sinks.append(make_sink(url, ALLOWED | {"EVENTBUS_WEBHOOK_TOKEN_FILE": str(file)}))
    file.write_bytes("hunter2ö".encode())
    with pytest.raises(SinkUnreachable) as caught:
        sinks[-1].create(stored())
    assert "hunter2" not in str(caught.value)


def test_a_header_that_http_forbids_is_not_quoted(url: str) -> None:
    client = GuardedClient(Guard(frozenset({"127.0.0.1"})), tls=ssl.create_default_context(), timeout_s=60)
    with pytest.raises(SinkUnreachable) as caught:
        client.post(url, {"authorization": "Bearer hunter2\n"}, b"")
    assert "hunter2" not in str(caught.value)
    client.close()


def answer_names(patch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> list[str]:
    """The resolver answers *names*, and addresses as ever. Returns: the names it was asked for, growing."""
    real, asked = socket.getaddrinfo, list[str]()

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in names:
            return real(host, port, *args, **kwargs)
        asked.append(host)
        return [found for address in names[host] for found in real(address, port, *args, **kwargs)]

    patch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def refuse_to_connect(patch: pytest.MonkeyPatch) -> list[Any]:
    connected: list[Any] = []

    def create_connection(address: Any, *_args: Any, **_kwargs: Any) -> Any:
        connected.append(address)
        raise OSError("no connection was expected")

    patch.setattr(socket, "create_connection", create_connection)
    return connected
