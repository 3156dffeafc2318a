"""The recorder: whatever a caller says, nothing is raised; what is right becomes an event, what is wrong is told."""

from __future__ import annotations

import itertools
import logging
import math
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NoReturn

import pytest

from eventbus.contrib.functions import recorded
from eventbus.contrib.logging import EventHandler
from eventbus.errors import InvalidEvent
from eventbus.model.encoding.wire import MAX_EVENT_BYTES
from eventbus.model.event import Event, ObjectReference
from eventbus.model.validation import validate
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, build, pack
from eventbus.record.recorder import EventRecorder
from eventbus.util.text import byte_length, repair
from tests.builders import NOW, make_reference

POD = make_reference()


class StandingClock:
    """Half past a nanosecond of NOW, for ever."""

    def time_ns(self) -> int:
        return int(NOW.timestamp()) * 10**9 + 123_456_789

    def monotonic(self) -> float:
        return 1000.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Desk:
    """A recorder whose events pile up, and what was refused."""

    def __init__(self) -> None:
        clock = StandingClock()
        self.losses = Losses(clock)
        self.pending: list[Pending] = []
        self.recorder = EventRecorder("kubelet", "node-1", put=self._put, losses=self.losses, clock=clock)

    def _put(self, pending: Pending) -> None:
        self.pending.append(pending)

    @property
    def events(self) -> list[Event]:
        return [build(pending) for pending in self.pending]

    @property
    def event(self) -> Event:
        (event,) = self.events
        validate(event)
        return event


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- what is right -----------------------------------------------------------------------------------------------


def test_an_event_is_what_client_go_makes_of_the_call(desk: Desk) -> None:
    """client-go makeEvent: every field it sets, and the ones it leaves unset."""
    desk.recorder.event(make_reference(resource_version="7", field_path="spec.x"), "Warning", "BackOff", "again")
    event, now = desk.event, NOW + timedelta(microseconds=123_456)
    assert repr(desk.recorder) == "<EventRecorder of 'kubelet' on 'node-1'>"
    assert event.metadata.name == f"web-0.{StandingClock().time_ns():x}"
    assert event.metadata.namespace == "default"
    assert event.involved_object == make_reference(resource_version="7", field_path="spec.x")
    assert (event.type, event.reason, event.message, event.count) == ("Warning", "BackOff", "again", 1)
    assert (event.source.component, event.source.host) == ("kubelet", "node-1")
    assert (event.reporting_component, event.reporting_instance) == ("kubelet", "node-1")
    assert (event.first_timestamp, event.last_timestamp) == (now, now)
    assert (event.event_time, event.series, event.action, event.related) == (None, None, "", None)


def test_an_object_without_a_namespace_has_its_events_in_default(desk: Desk) -> None:
    desk.recorder.event(ObjectReference("Node", "", "node-1"), "Normal", "Ready", "is ready")
    assert desk.event.metadata.namespace == "default"
    assert desk.event.involved_object.namespace == ""


def test_a_name_that_is_no_dns_subdomain_gives_the_event_a_uuid(desk: Desk) -> None:
    desk.recorder.event(ObjectReference("Address", "default", "fe80::1"), "Normal", "Up", "")
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", desk.event.metadata.name)


@pytest.mark.parametrize("message", ["100% full", "%s", "%d %(name)s", "", "héllo ☃ 🎉", "a\nb\tc"])
def test_event_takes_the_message_as_it_is(desk: Desk, message: str) -> None:
    desk.recorder.event(POD, "Normal", "Note", message)
    assert desk.event.message == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("pulled %s in %.1f s", "nginx", 1.25), "pulled nginx in 1.2 s"),
        (("100% done",), "100% done"),
        (("100%% of %d", 3), "100% of 3"),
        (("%r", "x"), "'x'"),
        (("%(who)s", {"who": "web"}), "web"),
        (("%s", {"who": "web"}), "{'who': 'web'}"),
    ],
)
def test_eventf_formats_as_logging_does(desk: Desk, call: tuple[Any, ...], message: str) -> None:
    desk.recorder.eventf(POD, "Normal", "Pulled", *call)
    assert desk.event.message == message


def test_a_past_event_has_the_given_times_and_the_name_of_now(desk: Desk) -> None:
    then = NOW - timedelta(days=3, microseconds=7)
    desk.recorder.past_eventf(POD, then, "Normal", "Seen", "%d days ago", 3)
    assert (desk.event.first_timestamp, desk.event.last_timestamp) == (then, then)
    assert desk.event.message == "3 days ago"
    assert desk.event.metadata.name == f"web-0.{StandingClock().time_ns():x}"


@pytest.mark.parametrize("days", [-3640, -1, 0, 1, 3640])
def test_a_past_event_may_be_up_to_ten_years_off_either_way(desk: Desk, days: int) -> None:
    then = (NOW + timedelta(days=days)).astimezone(timezone(timedelta(hours=5)))
    desk.recorder.past_eventf(POD, then, "Normal", "Seen", "x")
    assert desk.event.first_timestamp == then


def test_annotations_travel_and_later_changes_of_the_callers_do_not(desk: Desk) -> None:
    annotations = {"example.com/trace": "abc"}
    desk.recorder.annotated_eventf(POD, annotations, "Normal", "Traced", "step %d", 1)
    annotations["example.com/trace"] = "changed"
    assert desk.event.metadata.annotations == {"example.com/trace": "abc"}
    assert desk.event.message == "step 1"


class Thing:
    """An object of a program's own."""

    kind = "Thing"
    api_version = "example.com/v1"

    class metadata:
        name = "one"
        namespace = "default"
        uid = "u-1"


@pytest.mark.parametrize(
    "obj",
    [
        ObjectReference("Thing", "default", "one", "u-1", "example.com/v1"),
        {"kind": "Thing", "namespace": "default", "name": "one", "uid": "u-1", "apiVersion": "example.com/v1"},
        {
            "kind": "Thing",
            "apiVersion": "example.com/v1",
            "metadata": {"name": "one", "namespace": "default", "uid": "u-1"},
        },
        Thing(),
    ],
    ids=["reference", "mapping", "manifest", "object"],
)
def test_an_object_may_be_given_in_any_of_four_ways(desk: Desk, obj: object) -> None:
    desk.recorder.event(obj, "Normal", "Seen", "x")
    assert desk.event.involved_object == ObjectReference("Thing", "default", "one", "u-1", "example.com/v1")


# -- what is repaired --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [chr(0xD800), chr(0xDCFF), "\0"], ids=["high surrogate", "low surrogate", "NUL"])
def test_what_cannot_be_stored_as_text_becomes_the_replacement_character(desk: Desk, bad: str) -> None:
    reference = make_reference(uid=f"u{bad}", field_path=f"f{bad}")
    desk.recorder.annotated_eventf(reference, {f"k{bad}": f"v{bad}"}, "Normal", f"R{bad}", f"a{bad}b")
    event = desk.event
    assert event.message == "a�b"
    assert event.reason == "R�"
    assert (event.involved_object.uid, event.involved_object.field_path) == ("u�", "f�")
    assert event.metadata.annotations == {"k�": "v�"}
    assert not desk.losses.counts


# -- what is refused ---------------------------------------------------------------------------------------------


class Raises:
    """Properties are the caller's: anything may come out of them."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ZeroDivisionError("no\nluck")


class RaisesSpeechless:
    """An error that cannot even be printed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Speechless


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class NoStr:
    def __str__(self) -> str:
        raise ZeroDivisionError("no str")


class Nowhere(tzinfo):
    """A zone that does not know where it is."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> str:
        return "nowhere"


EVENT: dict[str, tuple[Any, ...]] = {
    "nil object": (None, "Normal", "R", "m"),
    "no object": (5, "Normal", "R", "m"),
    "an object without a name": (ObjectReference("Pod", "default", ""), "Normal", "R", "m"),
    "an object without a kind": (ObjectReference("", "default", "web"), "Normal", "R", "m"),
    "a mapping without a name": ({"kind": "Pod", "metadata": {"namespace": "default"}}, "Normal", "R", "m"),
    "a name that is a number": (ObjectReference("Pod", "default", 5), "Normal", "R", "m"),  # type: ignore[arg-type]
    "a name that is a list": (ObjectReference("Pod", "default", []), "Normal", "R", "m"),  # type: ignore[arg-type]
    "a namespace with a slash": (ObjectReference("Pod", "a/b", "web"), "Normal", "R", "m"),
    "a kind that is too long": (ObjectReference("K" * 64, "default", "web"), "Normal", "R", "m"),
    "a name that is too long": (ObjectReference("Pod", "default", "n" * 254), "Normal", "R", "m"),
    "a property that raises": (Raises(), "Normal", "R", "m"),
    "a property that raises what cannot be printed": (RaisesSpeechless(), "Normal", "R", "m"),
    "an unknown type": (POD, "Error", "R", "m"),
    "a type in lower case": (POD, "normal", "R", "m"),
    "no type": (POD, None, "R", "m"),
    "a type that is a list": (POD, [], "R", "m"),
    "a type that is a list, of a mapping": ({"kind": "Pod", "name": "web"}, [], "R", "m"),
    "a reason that is too long": (POD, "Normal", "R" * 129, "m"),
    "a reason that is None": (POD, "Normal", None, "m"),
    "a reason that is a list": (POD, "Normal", ["R"], "m"),
    "a message of bytes": (POD, "Normal", "R", b"m"),
    "a message that is None": (POD, "Normal", "R", None),
    "a message that is a number": (POD, "Normal", "R", 5),
    "a reference without room for a message": (ObjectReference("Pod", "", "web", "u" * 6_144), "Normal", "R", "m"),
}

EVENTF: dict[str, tuple[Any, ...]] = {
    "too few arguments": (POD, "Normal", "R", "%s %s", 1),
    "too many arguments": (POD, "Normal", "R", "%s", 1, 2),
    "a format that does not fit": (POD, "Normal", "R", "%d", "x"),
    "a broken format": (POD, "Normal", "R", "100% %", 1),
    "a format of None": (POD, "Normal", "R", None),
    "a format of None with arguments": (POD, "Normal", "R", None, 1),
    "a format of bytes": (POD, "Normal", "R", b"%d", 1),
    "an argument that raises": (POD, "Normal", "R", "%s", NoStr()),
}

PAST: dict[str, Any] = {
    "a time without a zone": datetime(2023, 1, 1),
    "a time in a zone that is nowhere": datetime(2023, 1, 1, tzinfo=Nowhere()),
    "more than ten years ago": NOW - timedelta(days=3660),
    "more than ten years ahead": NOW + timedelta(days=3660),
    "the end of time": datetime.max.replace(tzinfo=UTC),
    "milliseconds": NOW.timestamp() * 1000,
    "no time": None,
    "not a time": math.nan,
}

ANNOTATIONS: dict[str, Any] = {
    "seventeen": {f"k{i}": "v" for i in range(17)},
    "a value that is no string": {"k": 1},
    "a key that is no string": {1: "v"},
    "an empty key": {"": "v"},
    "a value that is too long": {"k": "v" * 1025},
    "too long together": {f"k{i}": "v" * 1000 for i in range(5)},
    "a list": ["k"],
    "a number": 5,
}


def refused() -> list[Any]:
    return list(_refused())


def _refused() -> Iterator[Any]:
    for name, call in EVENT.items():
        yield pytest.param("event", call, id=f"event: {name}")
    for name, call in EVENTF.items():
        yield pytest.param("eventf", call, id=f"eventf: {name}")
    for name, when in PAST.items():
        yield pytest.param("past_eventf", (POD, when, "Normal", "R", "m"), id=f"past_eventf: {name}")
    for name, given in ANNOTATIONS.items():
        yield pytest.param("annotated_eventf", (POD, given, "Normal", "R", "m"), id=f"annotated_eventf: {name}")


@pytest.mark.parametrize(("method", "call"), refused())
def test_bad_input_is_counted_and_told_in_one_line_and_raises_nothing(
    method: str, call: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    with caplog.at_level(logging.INFO, logger="eventbus"):
        getattr(desk.recorder, method)(*call)
    assert (desk.losses.counts, desk.pending) == ({"refused": 1}, [])
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    line = record.getMessage()
    assert line.startswith("1 event refused: ")
    assert "\n" not in line
    assert len(line) < 800
    assert re.search(rf" \([^()]+, component 'kubelet', reason .+, at {re.escape(__file__)}:\d+\)$", line)


def test_what_was_refused_says_which_call_it_was(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.recorder.event("shop/Order/7", "Error", "Paid", "m")
    line = sys._getframe().f_lineno - 1
    assert caplog.messages == [
        "1 event refused: type: Unsupported event type 'Error'; use Normal or Warning "
        f"('shop/Order/7', component 'kubelet', reason 'Paid', at {__file__}:{line})"
    ]


def test_a_mistake_is_told_at_once_for_each_line_that_makes_it(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        desk.recorder.event(POD, "Normal", "", "m")
    desk.recorder.eventf(POD, "Normal", "", "%d", 1)
    desk.losses.close()
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "1 event refused",
        "3 events refused, the last",
    ]


@pytest.mark.parametrize("by", ["logging", "the decorator"])
def test_the_line_is_that_of_the_program_and_not_of_what_records_for_it(
    desk: Desk, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    line = sys._getframe().f_lineno + 1
    where = f"at {__file__}:"
    if by == "logging":
        logger = logging.Logger("shop")
        logger.addHandler(EventHandler(desk.recorder, ObjectReference("Order", "", "")))
        logger.error("no card")
    else:
        recorded(ObjectReference("Order", "", ""), "Billed", recorder=desk.recorder)(lambda: None)()
    (message,) = caplog.messages
    found = re.search(rf"{re.escape(where)}(\d+)\)", message)
    assert found is not None, message
    assert int(found[1]) > line


# -- what is cut ---------------------------------------------------------------------------------------------------

LONG = {"ascii": "x", "two bytes": "é", "three bytes": "☃", "four bytes": "🎉", "a pair": "\ud83d\ude00", "NUL": "\0"}


@pytest.mark.parametrize("character", LONG.values(), ids=LONG)
@pytest.mark.parametrize("method", ["event", "eventf", "annotated_eventf", "past_eventf"])
def test_a_message_that_is_too_long_is_cut_between_characters_and_counted(
    desk: Desk, method: str, character: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = {"annotated_eventf": ({"k": "v"},), "past_eventf": (NOW,)}.get(method, ())
    message = character * 20_000
    getattr(desk.recorder, method)(POD, *before, "Normal", "Told", message)
    (pending,) = desk.pending
    assert MAX_EVENT_BYTES - 4 < len(pack(pending)) <= MAX_EVENT_BYTES
    kept = desk.event.message
    assert kept.endswith("…")
    assert repair(message).startswith(kept[:-1])
    assert desk.losses.counts == {"truncated": 1}
    assert desk.losses.take_unreported() == ()  # nothing is lost
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("1 event truncated: message: has ")
    assert "(default/Pod/web-0, component 'kubelet', reason 'Told', at " in record.getMessage()


def test_a_message_that_just_fits_is_left_alone(desk: Desk) -> None:
    desk.recorder.event(POD, "Normal", "Told", "x" * 20_000)
    room = byte_length(desk.event.message)
    desk.recorder.event(POD, "Normal", "Told", "x" * room)
    desk.recorder.event(POD, "Normal", "Told", "x" * (room + 1))
    assert [event.message[-2:] for event in desk.events] == ["x…", "xx", "x…"]
    assert desk.losses.counts == {"truncated": 2}


def test_a_program_that_is_being_ended_is_not_held_up() -> None:
    """SystemExit and KeyboardInterrupt are no faults of the event: they go on."""

    class Exits:
        def __getattr__(self, name: str) -> NoReturn:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        Desk().recorder.event(Exits(), "Normal", "R", "m")


def test_threads_share_a_recorder_and_each_keeps_its_order(desk: Desk) -> None:
    def record(thread: int) -> None:
        for i in range(200):
            desk.recorder.eventf(POD, "Normal", f"Thread{thread}", "%d", i)

    threads = [threading.Thread(target=record, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    of_each = itertools.groupby(sorted(desk.pending, key=lambda pending: pending.reason), lambda p: p.reason)
    assert {reason: [int(p.message) for p in found] for reason, found in of_each} == {
        f"Thread{n}": list(range(200)) for n in range(8)
    }


class Markup(str):
    """A string subclass as template libraries make them."""

    __slots__ = ()


def test_strings_of_template_libraries_are_the_plain_strings_they_say(desk: Desk) -> None:
    pod = ObjectReference(Markup("Pod"), "default", Markup("web-0"))
    desk.recorder.annotated_eventf(pod, {Markup("a"): Markup("b")}, Markup("Normal"), Markup("Started"), Markup("up"))
    event = desk.event
    assert (event.involved_object.name, event.reason, event.message, event.type) == ("web-0", "Started", "up", "Normal")
    assert event.metadata.annotations == {"a": "b"}
    assert desk.losses.counts == {}


def test_an_event_without_a_reason_is_refused_and_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.recorder.event(POD, "Normal", "", "something happened")
    assert "1 event refused: reason: is empty; say why in one CamelCase word" in caplog.text


def test_two_mistakes_in_one_field_are_both_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for about in (None, object(), None, {}, object()):
        desk.recorder.event(about, "Normal", "Seen", "m")
    told = [re.split("[;(]", message)[0].rstrip() for message in caplog.messages]
    assert told == [
        "1 event refused: involvedObject: can't reference a nil object",
        "1 event refused: involvedObject: can't reference a object",
        "2 events refused, the last: involvedObject: is an empty mapping",
    ]


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("is empty; say why", "reason is say why"),
        ("has 200 bytes, at most 128 are allowed", "reason has at most"),
        ("has 333 bytes, at most 128 are allowed", "reason has at most"),
        ("'a b c' is not of the form", "reason is not of"),
        ("can't reference a nil object", "reason reference a nil"),
    ],
)
def test_the_kind_of_a_mistake_has_nothing_of_the_callers_values(problem: str, kind: str) -> None:
    assert InvalidEvent("reason", problem).kind == kind
