"""The recorder of events.k8s.io: what becomes an event, and what is refused by the rules of the API server."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from eventbus.errors import ConfigError
from eventbus.model.encoding.event_json import to_events_v1
from eventbus.model.encoding.wire import unpack_event, unpack_wire
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, build, pack, pack_counted
from eventbus.record.recorder import EventsRecorder
from eventbus.settings import Settings
from tests.builders import NOW, make_reference
from tests.unit.record.test_recorder import StandingClock

POD = make_reference()


class Recording:
    """An `EventsRecorder`, what it has recorded, and what was refused."""

    def __init__(self) -> None:
        clock = StandingClock()
        self.losses = Losses(clock)
        self.pending: list[Pending] = []
        self.recorder = EventsRecorder("example.com/c", "one", put=self.pending.append, losses=self.losses, clock=clock)

    def eventf(self, regarding: Any = POD, related: Any = None, **fields: Any) -> None:
        given = {"event_type": "Normal", "reason": "Bound", "action": "Binding", "note": "to node-1"} | fields
        self.recorder.eventf(regarding, related, **given)


@pytest.fixture
def recording() -> Recording:
    return Recording()


def test_an_event_is_that_of_client_go(recording: Recording) -> None:
    recording.recorder.eventf(POD, "Node/n1", "Warning", "Bound", "Binding", "to %s in %d ms", "n1", 7)
    (pending,) = recording.pending
    assert to_events_v1(build(pending)) == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": f"web-0.{StandingClock().time_ns():x}", "namespace": "default"},
        "eventTime": "2024-01-01T12:00:00.123456Z",
        "reportingController": "example.com/c",
        "reportingInstance": "one",
        "action": "Binding",
        "reason": "Bound",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "uid-1", "apiVersion": "v1"},
        "related": {"kind": "Node", "name": "n1"},
        "note": "to n1 in 7 ms",
        "type": "Warning",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }
    assert unpack_wire(pack(pending)).in_series == 1


def test_a_bus_that_does_not_allow_series_gets_an_event_that_is_counted(recording: Recording) -> None:
    recording.eventf()
    event = unpack_event(pack_counted(recording.pending[0]))
    assert (event.source.component, event.source.host, event.count) == ("example.com/c", "one", 1)
    assert event.first_timestamp == event.last_timestamp == NOW.replace(microsecond=123456)
    assert (event.event_time, event.series) == (None, None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"regarding": None}, "involvedObject"),
        ({"regarding": {"kind": "Pod"}}, "involvedObject.name: is empty"),
        ({"event_type": "Error"}, "Unsupported event type 'Error'"),
        ({"event_type": ""}, "Unsupported event type ''"),
        ({"event_type": None}, "Unsupported event type None"),
        ({"reason": ""}, "reason: is empty"),
        ({"reason": "r" * 129}, "reason: has 129 bytes"),
        ({"reason": 5}, "reason: must be a string"),
        ({"reason": ["unhashable"]}, "reason: must be a string"),
        ({"action": ""}, "action: is empty"),
        ({"action": None}, "action: is empty"),
        ({"action": "ä" * 65}, "action: has 130 bytes"),
        ({"action": 5}, "action: must be a string"),
        ({"note": "ä" * 513}, "note: has 1026 bytes"),
        ({"note": b"bytes"}, "message: must be a string, is bytes"),
        ({"regarding": make_reference(uid="u" * 7_000)}, "regarding: has"),
        ({"related": make_reference(uid="u" * 7_000)}, "related: has"),
        ({"related": make_reference(namespace="NOT A LABEL")}, "related.namespace"),
    ],
)
def test_a_mistake_is_refused_and_logged_and_never_raised(
    recording: Recording, caplog: pytest.LogCaptureFixture, fields: dict[str, Any], said: str
) -> None:
    recording.eventf(**fields)
    assert recording.pending == []
    assert recording.losses.counts == {"refused": 1}
    assert said in caplog.text


@pytest.mark.parametrize(
    "fields",
    [{"reason": "r" * 128}, {"action": "a" * 128}, {"note": "n" * 1024}, {"note": ""}, {"note": "100 %"}],
    ids=lambda fields: next(iter(fields)),
)
def test_the_longest_texts_are_taken(recording: Recording, fields: dict[str, str]) -> None:
    recording.eventf(**fields)
    assert recording.losses.counts == {}
    event = build(recording.pending[0])
    assert {"reason": event.reason, "action": event.action, "note": event.message}.items() >= fields.items()


def test_a_note_that_cannot_be_formatted_is_refused(recording: Recording) -> None:
    recording.recorder.eventf(POD, None, "Normal", "Bound", "Binding", "%d", "seven")
    assert recording.losses.counts == {"refused": 1}


def test_a_related_object_that_cannot_be_read_is_left_out(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        recording.eventf(related=object())
    assert build(recording.pending[0]).related is None
    assert "a related object is left out" in caplog.text


def test_texts_are_repaired(recording: Recording) -> None:
    recording.eventf(note="a\0b\ud800", related=make_reference(name="n\ud800"))
    event = build(recording.pending[0])
    assert event.message == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert event.related is not None
    assert event.related.name == "n\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("controller", "instance", "said"),
    [
        ("", "one", "like 'example.com/controller'"),
        ("no such name", "one", "not 'no such name'"),
        ("EXAMPLE.com/c", "one", "not 'EXAMPLE.com/c'"),
        (f"{'a' * 63}.{'b' * 63}/c23", "one", "at most 128"),
        ("c", "", "1 to 128 bytes"),
        ("c", "i" * 129, "1 to 128 bytes"),
        (None, "one", "not None"),
        ("c", 5, "not 5"),
    ],
)
def test_a_name_that_the_api_server_refuses_is_refused_at_once(controller: Any, instance: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EventBroadcaster("none", settings=Settings()).new_events_recorder(controller, instance=instance)


def test_the_usual_instance_is_controller_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    broadcaster = EventBroadcaster("none", settings=Settings())
    recorder = broadcaster.new_events_recorder("example.com/c")
    assert repr(recorder) == "<EventsRecorder of 'example.com/c', instance 'example.com/c-node-1'>"
    broadcaster.shutdown()
