"""The recorder: whatever a caller says, nothing is raised; what is right becomes an event, what is wrong is told."""

from __future__ import annotations

import itertools
import logging
import math
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NoReturn

import pytest

from eventbus.errors import InvalidEvent
from eventbus.event import Event, ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.packing import Pending, build
from eventbus.record.recorder import EventRecorder
from eventbus.settings import FullBuffer, Settings
from eventbus.validation import validate
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


def test_a_recorder_says_who_it_is(desk: Desk) -> None:
    assert repr(desk.recorder) == "<EventRecorder of 'kubelet' on 'node-1'>"


# -- what is right -----------------------------------------------------------------------------------------------


def test_an_event_is_what_client_go_makes_of_the_call(desk: Desk) -> None:
    """client-go makeEvent: every field it sets, and the ones it leaves unset."""
    desk.recorder.event(make_reference(resource_version="7", field_path="spec.x"), "Warning", "BackOff", "again")
    event, now = desk.event, NOW + timedelta(microseconds=123_456)
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


@pytest.mark.parametrize("wrong", ["text", 5, [1]])
def test_annotations_that_are_no_mapping_are_told_as_such(
    desk: Desk, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk.recorder.annotated_eventf(POD, wrong, "Normal", "Traced", "step")
    assert not desk.pending
    assert desk.losses.counts == {"refused": 1}
    assert "metadata.annotations: must be a mapping" in caplog.text


def test_no_annotations_are_no_annotations(desk: Desk) -> None:
    desk.recorder.annotated_eventf(POD, {}, "Normal", "Traced", "x")
    assert desk.event.metadata.annotations == {}


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


def test_a_pair_of_surrogates_is_the_character_it_means(desk: Desk) -> None:
    desk.recorder.event(POD, "Normal", "Smile", "\ud83d\ude00")
    assert desk.event.message == "😀"


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
    "a message that is too long": (POD, "Normal", "R", "x" * 16_384),
    "a message that is too long in UTF-8 only": (POD, "Normal", "R", "é" * 8_192),
    "a message of a hundred megabytes": (POD, "Normal", "R", "x" * 100_000_000),
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
    """Through the real outbox, whose flusher builds the events; packing is what a flusher without a bus would do."""
    clock = StandingClock()
    losses = Losses(clock)
    waiting: list[Pending] = []

    class Unsent(Outbox):
        def put(self, pending: Pending) -> None:
            super().put(pending)
            waiting.extend(item for item in self._items if isinstance(item, Pending))

        def _start(self) -> None:
            """Nothing is sent here."""

    outbox = Unsent(connect=_no_bus, settings=Settings(buffer_full=FullBuffer.WAIT), clock=clock, losses=losses)
    recorder = EventRecorder("kubelet", "node-1", put=outbox.put, losses=losses, clock=clock)
    with caplog.at_level(logging.INFO, logger="eventbus"):
        getattr(recorder, method)(*call)
        for pending in waiting:
            with pytest.raises(InvalidEvent) as caught:
                build(pending)
            losses.count("refused", 1, str(caught.value))
    assert losses.counts == {"refused": 1}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    line = record.getMessage()
    assert line.startswith("1 event refused: ")
    assert "\n" not in line
    assert len(line) < 500


def test_what_was_refused_says_which_field_and_what_is_wrong(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.recorder.event(POD, "Error", "R", "m")
    assert "1 event refused: type: Unsupported event type 'Error'; use Normal or Warning" in caplog.text


def test_a_program_that_is_being_ended_is_not_held_up() -> None:
    """SystemExit and KeyboardInterrupt are no faults of the event: they go on."""

    class Exits:
        def __getattr__(self, name: str) -> NoReturn:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        Desk().recorder.event(Exits(), "Normal", "R", "m")


def test_a_refused_event_does_not_stop_the_next(desk: Desk) -> None:
    desk.recorder.event(None, "Normal", "R", "m")
    desk.recorder.event(POD, "Normal", "R", "m")
    assert len(desk.pending) == 1


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


def _no_bus() -> NoReturn:
    raise AssertionError("nothing is sent here")


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


def test_an_event_without_a_reason_is_refused_and_told(desk: Desk) -> None:
    desk.recorder.event(POD, "Normal", "", "something happened")
    with pytest.raises(InvalidEvent, match="reason: is empty; say why in one CamelCase word"):
        build(desk.pending[0])


def test_a_string_names_the_object(desk: Desk) -> None:
    desk.recorder.event("shop/Pod/web-0", "Normal", "Started", "it runs")
    assert desk.event.involved_object == ObjectReference("Pod", "shop", "web-0")


def test_two_mistakes_in_one_field_are_both_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for about in (None, object(), None, {}, object()):
        desk.recorder.event(about, "Normal", "Seen", "m")
    told = [record.getMessage().partition(";")[0] for record in caplog.records]
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
