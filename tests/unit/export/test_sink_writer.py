"""The rules of writing to a sink: what is waited for, tried again, settled and given up. Time is the test's own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from eventbus.broker.exports import UpdateState
from eventbus.errors import (
    AlreadyExists,
    DeadCause,
    EventBusError,
    EventRejected,
    EventUnbuildable,
    NotFound,
    NotSent,
    SinkGone,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.deliveries import Outcome, SinkDelivery
from eventbus.export.lease import Waits, finish, pause
from eventbus.export.progress import ExportProgress
from eventbus.export.rules import Outage, RateLimit
from eventbus.export.sink_writer import MAX_TRIES, SinkWriter
from eventbus.export.sinks import EventPatch, SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.contract import object_of
from eventbus.model.event import Event, ObjectMeta
from tests.builders import make_event, make_reference

OK = "ok"
#: An answer: "ok", or what is raised; a callable decides by the clock.
Answer = str | Exception | Callable[[float], "Answer"]


class Time:
    """Seconds that only sleeping moves; whoever sleeps past *stop_at* is told to stop."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._stop_at = stop_at

    def wait(self, seconds: float) -> bool:
        self.slept.append(seconds)
        self.now = min(self.now + seconds, self._stop_at)
        return self.now >= self._stop_at


class ScriptedSink:
    """Answers as told, then "ok"; notes every call with its time."""

    name, mode = "scripted", SinkMode.UPSERT

    def __init__(self, time: Time, *answers: Answer, always: dict[str, Answer] | None = None) -> None:
        self._time = time
        self._answers = list(answers)
        self._always = always or {}
        self.calls: list[tuple[str, str]] = []
        self.times: list[float] = []
        self.patches: list[EventPatch] = []

    def create(self, event: Event) -> Event:
        return self._call("create", event)

    def update(self, event: Event) -> Event:
        return self._call("update", event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        self.patches.append(patch)
        return self._call("patch", event)

    def close(self) -> None:
        pass

    def _call(self, verb: str, event: Event) -> Event:
        name = event.metadata.name
        self.calls.append((verb, name))
        self.times.append(self._time.now)
        answer = self._always[name] if name in self._always else self._answers.pop(0) if self._answers else OK
        if not isinstance(answer, str | Exception):
            answer = answer(self._time.now)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.structs.replace(event, metadata=ObjectMeta(name=name, resource_version="theirs"))


class ScriptedBatchSink(ScriptedSink):
    """The same, many at once. *whole*: what the next calls of write raise, or answer instead."""

    def __init__(self, time: Time, *answers: Answer, whole: Sequence[Any] = (), **more: Any) -> None:
        super().__init__(time, *answers, **more)
        self._whole = list(whole)
        self.writes: list[list[str]] = []

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        self.writes.append([write.delivery_id for write in writes])
        if self._whole:
            whole = self._whole.pop(0)
            if isinstance(whole, Exception):
                raise whole
            answers: Sequence[SinkAnswer] = whole
            return answers
        return [self._answer(write) for write in writes]

    def _answer(self, write: SinkWrite) -> SinkAnswer:
        try:
            if write.patch is not None:
                return self.patch(write.event, write.patch)
            return self._call(str(write.verb), write.event)
        except EventBusError as error:
            return error


class Told(ExportProgress):
    """Collects what the writer says of itself."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def paused(self, error: EventBusError, retry_after_s: float | None) -> None:
        self.said.append(f"paused {retry_after_s}")

    def resumed(self) -> None:
        self.said.append("resumed")

    def retrying(self, error: EventBusError, events: int) -> None:
        self.said.append(f"retrying {events}")


def delivery(name: str = "a", count: int = 1, *, known: bool = False, added: bool = True) -> SinkDelivery:
    metadata = ObjectMeta(name=name, namespace="default", uid=f"p:{name}", resource_version="7")
    returned = UpdateState("theirs", "41", 6, 1, 0) if known else None
    return SinkDelivery(key=name, event=make_event(metadata=metadata, count=count), added=added, known=returned)


def write(
    sink: ScriptedSink,
    time: Time,
    *deliveries: SinkDelivery,
    outage: Outage = Outage.PAUSE,
    told: Told | None = None,
    uniform: Callable[[float, float], float] = lambda low, high: (low + high) / 2,
) -> list[Outcome]:
    writer = SinkWriter(sink, outage=outage, progress=told or Told(), uniform=uniform)
    return written(writer, time, *(deliveries or (delivery(),)))


def written(writer: SinkWriter, time: Time, *deliveries: SinkDelivery) -> list[Outcome]:
    outcomes: list[Outcome] = []

    def settle(outcome: Outcome) -> Waits[None]:
        outcomes.append(outcome)
        yield from ()

    finish(writer.write(deliveries, settle), time.wait)
    return outcomes


class TimeAsClock:
    """`Time` as a Clock."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def sleep(self, seconds: float) -> None:
        self._time.wait(seconds)

    def monotonic(self) -> float:
        return self._time.now

    def time_ns(self) -> int:
        return int(self._time.now * 1e9)


def write_at(rate_per_s: float, sink: ScriptedSink, time: Time, *deliveries: SinkDelivery) -> list[Outcome]:
    limit = RateLimit(rate_per_s, TimeAsClock(time))
    writer = SinkWriter(
        sink,
        outage=Outage.PAUSE,
        progress=Told(),
        before=lambda events: pause(limit.take(events)),
        rate_per_s=rate_per_s,
    )
    return written(writer, time, *deliveries)


@pytest.mark.parametrize(("rate_per_s", "at_once"), [(5, 5), (2.5, 2), (0.5, 1), (500, 74)])
def test_a_rate_is_kept_by_a_sink_that_takes_many_at_once(rate_per_s: float, at_once: int) -> None:
    time = Time()
    sink = ScriptedBatchSink(time)

    outcomes = write_at(rate_per_s, sink, time, *[delivery(f"e{number}") for number in range(74)])

    assert len(outcomes) == 74
    assert max(len(write) for write in sink.writes) == at_once
    for number, when in enumerate(sink.times, 1):
        assert number <= rate_per_s * (when + 1) + 1, "never more than a second ahead"
    assert time.now <= 74 / rate_per_s


def test_a_worker_that_waits_for_its_rate_can_be_stopped() -> None:
    time = Time(stop_at=3.5)
    sink = ScriptedBatchSink(time)

    outcomes = write_at(5, sink, time, *[delivery(f"e{number}") for number in range(74)])

    assert len(outcomes) == 20, "what is left is for the next one"
    assert time.now == 3.5


def up_after(seconds: float, error: Exception) -> Callable[[float], Answer]:
    return lambda now: OK if now >= seconds else error


DOWN = SinkUnreachable("refused")


@pytest.mark.parametrize("error", [DOWN, ConnectionResetError("reset"), TimeoutError("slow"), OSError(28, "disk full")])
def test_ten_minutes_of_outage_bury_nothing_and_the_event_is_written_then(error: Exception) -> None:
    time, told = Time(), Told()
    sink = ScriptedSink(time, always={"a": up_after(600, error)})

    outcomes = write(sink, time, told=told, uniform=random.Random(1).uniform)

    assert [(o.cause, o.returned is not None) for o in outcomes] == [(None, True)]
    assert told.said == [*["paused None"] * (len(sink.calls) - 1), "resumed"]
    assert max(time.slept) <= 60
    assert 600 <= time.now < 660


def test_probes_have_full_jitter_that_doubles_from_one_second_to_a_minute() -> None:
    time = Time()
    write(ScriptedSink(time, *[DOWN] * 9), time, uniform=lambda low, high: high if low == 0 else -1)
    assert time.slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_event_that_fails_has_twelve_tries_ten_seconds_apart_the_first_sleep_random() -> None:
    time, told = Time(), Told()
    sink = ScriptedSink(time, *[UnexpectedReply("what?")] * 12)

    (outcome,) = write(sink, time, told=told, uniform=lambda low, high: 0.25 * high)

    assert sink.times == [0, *(2.5 + 10 * n for n in range(11))]
    assert (outcome.cause, outcome.why, outcome.returned) == ("retries", "what?", None)
    assert told.said == ["retrying 1"] * 11


def test_an_outage_between_two_tries_is_no_try() -> None:
    time, wrong = Time(), UnexpectedReply("what?")
    sink = ScriptedSink(time, *[wrong] * 6, *[DOWN] * 20, *[wrong] * 5)

    (outcome,) = write(sink, time)

    assert outcome.returned is not None
    assert len(sink.calls) == 6 + 20 + 5 + 1


@pytest.mark.parametrize(
    ("error", "cause"), [(EventRejected("no"), "rejected"), (EventUnbuildable("no"), "unbuildable")]
)
def test_what_never_will_do_is_given_up_at_once(error: Exception, cause: str) -> None:
    time = Time()
    (outcome,) = write(ScriptedSink(time, error), time)
    assert (outcome.cause, time.slept) == (cause, [])


def test_a_fault_of_the_sink_counts_against_the_event_not_the_system(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    sink = ScriptedSink(time, *[ValueError("bug")] * 12)

    (outcome,) = write(sink, time)

    assert (outcome.cause, outcome.why) == ("retries", "ValueError: bug")
    assert sum(record.exc_info is not None for record in caplog.records) == 1, "its traceback is shown once"


def test_throttled_waits_as_long_as_it_says_and_counts_no_try() -> None:
    time = Time()
    sink = ScriptedSink(time, *[Throttled(retry_after_s=17)] * 30)

    (outcome,) = write(sink, time)

    assert outcome.returned is not None
    assert time.slept == [17] * 30


@pytest.mark.parametrize(
    ("given", "answers", "calls"),
    [
        (delivery(), [], ["create"]),
        (delivery(count=5), [], ["create"]),
        (delivery(added=False), [], ["patch"]),
        (delivery(known=True), [], ["patch"]),
        (delivery(added=False), [NotFound("gone")], ["patch", "create"]),
        (delivery(count=1), [AlreadyExists("there")], ["create"]),
        (delivery(count=5), [AlreadyExists("there")], ["create", "patch"]),
        (delivery(count=5, added=False), [NotFound("gone"), AlreadyExists("there")], ["patch", "create", "patch"]),
    ],
)
def test_which_calls_an_event_takes(given: SinkDelivery, answers: list[Answer], calls: list[str]) -> None:
    time = Time()
    sink = ScriptedSink(time, *answers)

    (outcome,) = write(sink, time, given)

    assert [verb for verb, _ in sink.calls] == calls
    assert outcome.cause is None
    assert time.slept == []


def test_an_event_that_is_neither_there_nor_can_be_created_is_a_failed_try() -> None:
    time = Time()
    sink = ScriptedSink(time, NotFound("gone"), AlreadyExists("there"), NotFound("gone"))

    write(sink, time, delivery(count=5, added=False))

    assert [verb for verb, _ in sink.calls] == ["patch", "create", "patch", "patch"]
    assert time.slept == [5]


def test_a_patch_carries_what_the_sink_returned_last() -> None:
    time = Time()
    sink = ScriptedSink(time)
    write(sink, time, delivery(count=3, known=True))
    (patch,) = sink.patches
    assert (patch.name, patch.version, patch.count) == ("theirs", "41", 3)
    assert patch.body() == {"count": 3, "lastTimestamp": "2024-01-01T12:00:00Z", "message": "Started container web"}


def test_a_failing_event_holds_up_none_of_its_batch() -> None:
    time = Time()
    sink = ScriptedBatchSink(time, always={"b": UnexpectedReply("what?")})

    outcomes = write(sink, time, delivery("a"), delivery("b"), delivery("c"))

    assert [(outcome.delivery.key, outcome.cause) for outcome in outcomes] == [
        ("a", None),
        ("c", None),
        ("b", "retries"),
    ]
    assert sink.writes == [["p:a/1", "p:b/1", "p:c/1"], *[["p:b/1"]] * 11]


def test_a_batch_that_fails_as_a_whole_is_written_one_by_one_so_that_the_culprit_is_found() -> None:
    time = Time()
    sink = ScriptedBatchSink(time, whole=[ValueError("bug")], always={"b": EventRejected("no")})

    outcomes = write(sink, time, delivery("a"), delivery("b"), delivery("c"))

    assert {outcome.delivery.key: outcome.cause for outcome in outcomes} == {"a": None, "b": "rejected", "c": None}


def test_answers_that_do_not_match_the_writes_are_not_believed() -> None:
    time = Time()
    sink = ScriptedBatchSink(time, whole=[[make_event()]])

    outcomes = write(sink, time, delivery("a"), delivery("b"))

    assert len(sink.writes) == 2
    assert [outcome.cause for outcome in outcomes] == [None, None]


def test_of_a_batch_only_what_was_not_answered_waits_for_the_sink() -> None:
    time = Time()
    sink = ScriptedBatchSink(time, OK, DOWN)

    outcomes = write(sink, time, delivery("a"), delivery("b"), delivery("c"))

    assert [outcome.delivery.key for outcome in outcomes] == ["a", "c", "b"]
    assert sink.writes == [["p:a/1", "p:b/1", "p:c/1"], ["p:b/1"]]


@pytest.mark.parametrize("error", [DOWN, UnexpectedReply("what?"), Throttled(retry_after_s=3600)])
def test_stopping_interrupts_any_sleep_and_what_is_not_settled_stays_so(error: Exception) -> None:
    time = Time(stop_at=3)
    assert write(ScriptedSink(time, OK, *[error] * 100), time, delivery("a"), delivery("b"))[1:] == []
    assert time.now == 3


def test_under_count_an_outage_counts_and_the_event_is_given_up_after_twelve_tries() -> None:
    time = Time()
    sink = ScriptedSink(time, *[DOWN] * 12)

    (outcome,) = write(sink, time, outage=Outage.COUNT, uniform=lambda low, high: high)

    assert (outcome.cause, sink.times[-1]) == ("retries", 110)


@pytest.mark.parametrize(
    "answer", [SinkUnreachable("403", status=403), UnexpectedReply("500", status=500), Throttled(retry_after_s=1)]
)
def test_under_count_what_was_answered_is_never_tried_again(answer: Exception) -> None:
    time = Time()
    sink = ScriptedSink(time, answer)

    (outcome,) = write(sink, time, outage=Outage.COUNT)

    assert (outcome.cause, len(sink.calls), time.now) == ("rejected", 1, 0)


@pytest.mark.parametrize(("count", "verb"), [(1, "create"), (2, "patch")])
def test_under_count_the_count_says_whether_it_is_a_patch(count: int, verb: str) -> None:
    time = Time()
    sink = ScriptedSink(time)
    write(sink, time, delivery(count=count, known=count == 1), outage=Outage.COUNT)
    assert [verb for verb, _ in sink.calls] == [verb]


class OpeningScriptedSink(ScriptedSink):
    """Wants to connect first; that is answered as a call is."""

    def open(self) -> None:
        self._call("open", delivery().event)


def test_a_sink_that_wants_to_connect_is_waited_for_before_there_is_anything_to_write() -> None:
    time, told = Time(), Told()
    sink = OpeningScriptedSink(time, DOWN, Throttled(retry_after_s=5), OSError("refused"))
    assert not finish(SinkWriter(sink, outage=Outage.PAUSE, progress=told).open(), time.wait)
    assert [verb for verb, _ in sink.calls] == ["open"] * 4
    assert told.said == ["paused None", "paused 5", "paused None", "resumed"]


def test_stopping_interrupts_connecting() -> None:
    time = Time(stop_at=30)
    sink = OpeningScriptedSink(time, *[DOWN] * 1_000)
    assert finish(SinkWriter(sink, outage=Outage.PAUSE, progress=Told()).open(), time.wait)


def test_a_sink_that_is_gone_for_good_ends_it() -> None:
    time = Time()
    with pytest.raises(SinkGone):
        write(ScriptedSink(time, SinkGone("closed")), time)


class OrderedBatchSink(ScriptedBatchSink):
    """Holds back what is about an object of which one has failed."""

    ordered = True

    def _answer(self, write: SinkWrite) -> SinkAnswer:
        about = object_of(write.event)
        if about in self._failed:
            return NotSent()
        answer = super()._answer(write)
        if not isinstance(answer, Event | EventRejected):
            self._failed.add(about)
        return answer

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        self._failed: set[tuple[str, str, str]] = set()
        return super().write(writes)


def of_object(name: str, about: str) -> SinkDelivery:
    made = delivery(name)
    event = msgspec.structs.replace(made.event, involved_object=make_reference(name=about))
    return msgspec.structs.replace(made, event=event)


@pytest.mark.parametrize("error", [UnexpectedReply("500"), SinkUnreachable("503")])
@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("fails", [1, 3])
def test_no_write_passes_a_failed_one_of_its_object_however_many_are_taken_at_once(
    at_once: int, fails: int, error: EventBusError
) -> None:
    time = Time()
    left = [fails]

    def fail(_now: float) -> Answer:
        left[0] -= 1
        return error if left[0] >= 0 else OK

    sink = OrderedBatchSink(time, always={"a1": fail})
    names = ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    outcomes = write_at(at_once, sink, time, *(of_object(name, name[0]) for name in names))
    assert sorted(outcome.delivery.key for outcome in outcomes) == sorted(names)
    sent = [name for _, name in sink.calls]
    assert [name for name in sent if name[0] == "a"] == ["a0", *["a1"] * (fails + 1), "a2", "a3"]
    assert [name for name in sent if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


def test_a_write_that_was_held_back_is_tried_before_it_is_given_up() -> None:
    time = Time()
    sink = OrderedBatchSink(time, always={"a1": UnexpectedReply("500")})
    outcomes = write(sink, time, of_object("a1", "a"), of_object("a2", "a"), of_object("b1", "b"))
    assert {outcome.delivery.key: outcome.cause for outcome in outcomes} == {
        "a1": DeadCause.RETRIES,
        "a2": None,
        "b1": None,
    }
    assert Counter(name for _, name in sink.calls) == {"a1": MAX_TRIES, "a2": 1, "b1": 1}
    assert len(time.slept) == MAX_TRIES - 1


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_an_object_of_which_all_fails_takes_no_longer_than_one_event_that_fails(at_once: int) -> None:
    time = Time()
    names = [f"a{number}" for number in range(20)]
    sink = OrderedBatchSink(time, always=dict.fromkeys(names, UnexpectedReply("500")))
    outcomes = write_at(at_once, sink, time, *(of_object(name, "a") for name in names), of_object("b", "b"))
    causes = {outcome.delivery.key: outcome.cause for outcome in outcomes}
    assert causes == dict.fromkeys(names, DeadCause.RETRIES) | {"b": None}
    sent = [name for _, name in sink.calls if name != "b"]
    assert sent == ["a0"] * MAX_TRIES + names[1:]
