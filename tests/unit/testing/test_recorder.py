"""The shipped fake: client-go's lines, the real recorder's rules."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from eventbus import ObjectReference
from eventbus.testing import recorder as recorder_module
from eventbus.testing.clock import FakeClock
from eventbus.testing.recorder import FakeRecorder
from tests.builders import NOW, make_reference
from tests.waiting import PATIENCE_S

POD = make_reference()


def test_a_line_is_type_reason_and_message() -> None:
    recorder = FakeRecorder()
    recorder.event(POD, "Warning", "BackOff", "100% of %s")
    recorder.eventf(POD, "Normal", "Pulled", "in %.1f s", 1.25)
    recorder.past_eventf(POD, NOW, "Normal", "Seen", "%d days ago", 3)
    assert recorder.lines() == ["Warning BackOff 100% of %s", "Normal Pulled in 1.2 s", "Normal Seen 3 days ago"]


def test_the_object_is_part_of_the_line_when_asked_for() -> None:
    recorder = FakeRecorder(include_object=True)
    recorder.event(POD, "Normal", "Pulled", "x")
    recorder.event(ObjectReference("Node", "", "n"), "Normal", "Ready", "y")
    assert recorder.lines() == [
        "Normal Pulled x involvedObject{kind=Pod,apiVersion=v1}",
        "Normal Ready y involvedObject{kind=Node,apiVersion=}",
    ]


def test_annotations_are_shown_as_go_shows_a_map_sorted_and_behind_the_object() -> None:
    recorder = FakeRecorder(include_object=True)
    recorder.annotated_eventf(POD, {"b": "2", "a": "1"}, "Normal", "Pulled", "x")
    recorder.annotated_eventf(POD, {}, "Normal", "Pulled", "y")
    assert recorder.lines() == [
        "Normal Pulled x involvedObject{kind=Pod,apiVersion=v1} map[a:1 b:2]",
        "Normal Pulled y involvedObject{kind=Pod,apiVersion=v1}",
    ]


def test_lines_are_taken_once_and_oldest_first() -> None:
    recorder = FakeRecorder()
    for reason in ("A", "B", "C"):
        recorder.event(POD, "Normal", reason, "")
    assert recorder.events.get_nowait() == "Normal A "
    assert recorder.lines() == ["Normal B ", "Normal C "]
    assert recorder.lines() == []


def test_the_whole_events_can_be_looked_at() -> None:
    clock = FakeClock()
    recorder = FakeRecorder(component="kubelet", host="node-1", clock=clock)
    recorder.past_eventf(POD, NOW - timedelta(hours=1), "Normal", "Seen", "x")
    (event,) = recorder.recorded
    assert event.involved_object == POD
    assert event.first_timestamp == NOW - timedelta(hours=1)
    assert (event.source.component, event.source.host) == ("kubelet", "node-1")
    assert event.metadata.name == f"web-0.{clock.time_ns():x}"


def test_what_the_real_recorder_refuses_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    recorder = FakeRecorder()
    recorder.event(None, "Normal", "R", "m")
    recorder.event(POD, "Error", "R", "m")
    recorder.eventf(POD, "Normal", "R", "%d", "x")
    recorder.event(ObjectReference("Pod", "default", ""), "Normal", "R", "m")
    recorder.event(POD, "Normal", "R" * 129, "m")
    assert recorder.lines() == []
    assert recorder.recorded == []
    assert recorder.refused == 5
    assert "can't reference a nil object" in caplog.text


def test_a_full_one_makes_the_caller_wait_for_a_reader() -> None:
    recorder = FakeRecorder(1)
    recorder.event(POD, "Normal", "A", "")
    caller = threading.Thread(target=recorder.event, args=(POD, "Normal", "B", ""))
    caller.start()
    caller.join(0.05)
    assert caller.is_alive()
    assert recorder.events.get(timeout=PATIENCE_S) == "Normal A "
    assert recorder.events.get(timeout=PATIENCE_S) == "Normal B "
    caller.join(PATIENCE_S)
    assert not caller.is_alive()


def test_a_full_one_that_nobody_reads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "PATIENCE_S", 0.01)
    recorder = FakeRecorder(1)
    recorder.event(POD, "Normal", "A", "")
    with pytest.raises(AssertionError, match="full with 1 lines"):
        recorder.event(POD, "Normal", "B", "")
    assert recorder.lines() == ["Normal A "]


def test_one_without_a_buffer_discards_everything() -> None:
    recorder = FakeRecorder(0)
    for _ in range(10):
        recorder.event(POD, "Normal", "A", "")
    assert recorder.lines() == []
    assert recorder.recorded == []
