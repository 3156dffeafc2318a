"""The sink for syslog, with a server that takes nothing but RFC 5424."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from eventbus.errors import ConfigError, SinkUnreachable
from eventbus.export.sinks import SinkAnswer, SinkWrite, Verb, make_sink
from eventbus.export.sinks.syslog import MOST_VALUE_BYTES, SyslogSink
from eventbus.model.event import Event, EventSource, ObjectReference
from tests.integration.test_sink_otlp import stored
from tests.support.certificates import make_certificate
from tests.support.syslog_server import Record, SyslogServer


@pytest.fixture
def server() -> Iterator[SyslogServer]:
    running = SyslogServer()
    yield running
    running.close()
    assert running.mistakes == []


def sink_for(server: SyslogServer, end: str = "", *, timeout_s: float = 30) -> SyslogSink:
    sink = make_sink(f"syslog://127.0.0.1:{server.port}{end}", {}, timeout_s=timeout_s)
    assert isinstance(sink, SyslogSink)
    return sink


def write(sink: SyslogSink, *events: Event) -> Sequence[SinkAnswer]:
    return sink.write([SinkWrite.of(Verb.CREATE, event) for event in events])


def test_each_change_of_an_event_is_a_message(server: SyslogServer) -> None:
    events = [stored(1), stored(2, type="Warning"), stored(1, count=2, type="Odd")]
    assert write(sink_for(server), *events) == events
    first, *_ = server.records
    assert first == Record(
        priority=16 * 8 + 6,
        host="node-1",
        app="kubelet",
        id="Started",
        time="2024-01-01T12:00:00.000000Z",
        data_name="eventbus@32473",
        values={
            "deliveryId": "producer:1/1",
            "uid": "producer:1",
            "namespace": "default",
            "kind": "Pod",
            "name": "web-0",
            "type": "Normal",
            "reason": "Started",
            "count": "1",
            "eventName": "web-0.1",
        },
        text="Started container web",
    )
    assert [record.priority % 8 for record in server.records] == [6, 4, 5]
    assert server.counts == {"web-0.1": 2, "web-0.2": 1}


def test_the_facility_and_the_name_of_the_data_are_options(server: SyslogServer) -> None:
    write(sink_for(server, "?facility=daemon&sd-id=shop@12345"), stored())
    (record,) = server.records
    assert (record.priority // 8, record.data_name) == (3, "shop@12345")


@pytest.mark.parametrize(
    "change",
    [
        lambda event: msgspec.structs.replace(event, message='] "\\ evil\n<0>1 - - - - - - forged'),
        lambda event: msgspec.structs.replace(event, message="größer\0\ud800" * 500),
        lambda event: msgspec.structs.replace(event, message="", source=EventSource(), reporting_component=""),
        lambda event: msgspec.structs.replace(event, reason="Zu groß, " * 50, type='"]\\'),
        lambda event: msgspec.structs.replace(event, source=EventSource("a b\n", "é" * 300)),
        lambda event: msgspec.structs.replace(event, involved_object=ObjectReference("Pod", "é]", 'a\\"' * 300)),
        lambda event: msgspec.structs.replace(event, last_timestamp=datetime(1, 1, 1, tzinfo=UTC)),
    ],
    ids=["brackets", "surrogates", "empty", "reason", "source", "object", "year 1"],
)
def test_texts_stay_inside_their_field(server: SyslogServer, change: Callable[[Event], Event]) -> None:
    event = change(stored())
    assert write(sink_for(server), event, stored(2)) == [event, stored(2)]
    first, second = server.records
    assert second.values["deliveryId"] == "producer:2/1"
    assert max(len(value.encode()) for value in first.values.values()) <= MOST_VALUE_BYTES
    assert first.text.isprintable()


def test_a_batch_that_the_server_may_not_have_read_is_unreachable() -> None:
    with closing(SyslogServer(reset_every=1)) as server, pytest.raises(SinkUnreachable, match="reset"):
        write(sink_for(server), stored())


def test_a_server_that_does_not_close_is_found_before_the_first_event() -> None:
    with closing(SyslogServer(closes=False)) as server:
        with pytest.raises(SinkUnreachable, match="does not close the connection"):
            sink_for(server, timeout_s=0.3).open()
        assert server.records == []


def test_a_server_that_is_away_is_found_again(server: SyslogServer) -> None:
    sink = sink_for(server)
    server.stop()
    with pytest.raises(SinkUnreachable, match="refused"):
        write(sink, stored())
    server.start()
    assert write(sink, stored()) == [stored()]


@pytest.mark.parametrize("close_notify", [True, False])
def test_a_certificate_is_verified(tmp_path: Path, close_notify: bool) -> None:
    certificate, context = make_certificate(tmp_path, "IP:127.0.0.1")
    with closing(SyslogServer(context, close_notify=close_notify)) as server:
        url = f"syslog+tls://127.0.0.1:{server.port}"
        trusting = make_sink(url, {"EVENTBUS_SYSLOG_CA_FILE": str(certificate)})
        assert isinstance(trusting, SyslogSink)
        trusting.open()
        events = [stored(number) for number in range(300)]
        assert write(trusting, *events) == events
        assert (len(server.records), server.mistakes) == (300, [])
        stranger = make_sink(url, {})
        assert isinstance(stranger, SyslogSink)
        with pytest.raises(SinkUnreachable, match="certificate verify failed"):
            write(stranger, stored(400))
        assert len(server.records) == 300


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("syslog://", "must be syslog://host:port"),
        ("syslog://a:b", "must be syslog://host:port"),
        ("syslog+tls://a/path", r"must be syslog\+tls://host:port"),
        ("syslog://user@a", "without a path or user"),
        ("syslog://a?facility=local8", "facility='local8'"),
        ("syslog://a?sd-id=eventbus", "enterprise number"),
        ("syslog://a?protocol=udp", "no option 'protocol'"),
    ],
)
def test_a_url_that_names_no_server_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, {})
