"""Exporting against a real server: leases, positions, what the sink returned, beginning, catching up, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eventbus.broker.health.export_status import (
    describe_missing,
    export_status,
    forget_sink,
    notifier_lag,
    partitions_without_worker,
)
from eventbus.broker.health.status import Beats, read_beats
from eventbus.broker.keys import version_in
from eventbus.broker.notifications import NotifierStatus
from eventbus.consume.dead_letter import DeadLetter
from eventbus.errors import (
    BusUnavailable,
    EventBusError,
    EventRejected,
    NotFound,
    PasswordRefused,
    SinkGone,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.exporter import PartitionExporter
from eventbus.export.lease import LONGEST_CALL_S, LeaseLost
from eventbus.export.rules import NOW
from eventbus.export.sink_writer import ExportStopped
from eventbus.model.event import Event
from eventbus.model.matchers import event_matchers
from tests.functions.partition import Partition
from tests.support.exporting import (
    MakeExporter,
    MemoryBatchSink,
    MemorySink,
    OwnTime,
    about,
    close,
    exporters,
    forget_the_newest_version,
    make_exporter,
    run_until_idle,
    status_of,
)
from tests.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture
def partition(any_server_url: str, prefix: str) -> Iterator[Partition]:
    """Nothing is folded, and nothing suppressed as spam."""
    made = Partition(any_server_url, prefix, burst=1_000, max_events=1_000)
    yield made
    made.close()


@pytest.fixture
def time() -> OwnTime:
    return OwnTime()


@pytest.fixture
def exporter_of(partition: Partition, time: OwnTime) -> Iterator[MakeExporter]:
    """Makes an exporter that has the lease, unless told not to wait for it."""
    with exporters(partition.bus, time) as make_one:

        def make(sink: MemorySink, *, acquire: bool = True, **options: Any) -> PartitionExporter:
            exporter = make_one(sink, **options)
            if acquire:
                assert exporter.acquire()
            return exporter

        yield make


def fail_with(error: Exception, *, times: int = 10**9, message: str = "") -> Callable[[Event], None]:
    left = [times]

    def fail(event: Event) -> None:
        if message in event.message and left[0] > 0:
            left[0] -= 1
            raise error

    return fail


class RedisAway:
    """Lets the next *times* calls of one method of the exporter's store find no Redis, or get *error* from it."""

    def __init__(
        self,
        exporter: PartitionExporter,
        method: str,
        *,
        times: int,
        before: Callable[[], None] = lambda: None,
        error: type[EventBusError] = BusUnavailable,
    ) -> None:
        self.left = times
        self._error = error
        self._before = before
        self._real = getattr(exporter._store, method)
        setattr(exporter._store, method, self)

    def __call__(self, *args: Any) -> Any:
        if self.left:
            self._before()
            self.left -= 1
            raise self._error("Connection refused")
        return self._real(*args)


# -- following the changes -----------------------------------------------------------------------------------------


def test_every_event_ends_in_the_sink_with_its_count(partition: Partition, exporter_of: MakeExporter) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    for round_number in range(3):
        partition.record(*[about(number) for number in range(20)])
        if round_number:
            run_until_idle(exporter)
    assert sink.counts() == {f"message {number}": 3 for number in range(20)}
    assert {e.metadata.name: e for e in partition.stored()} == sink.rows


def test_a_batch_sink_is_given_no_event_twice_even_if_it_went_and_came_back(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    exporter = exporter_of(sink)
    partition.record(about(1))
    partition.expire(in_ms=2 * HOUR_MS)
    partition.record(about(1), about(2))
    run_until_idle(exporter)
    assert sink.counts() == {"message 1": 2, "message 2": 1}


def test_what_the_sink_returned_is_used_by_the_next_worker(partition: Partition, exporter_of: MakeExporter) -> None:
    system: dict[str, Event] = {}
    first, second = MemorySink(system=system), MemorySink(system=system)
    partition.record(about(1))
    exporter = exporter_of(first)
    close(exporter)
    partition.record(about(1))
    run_until_idle(exporter_of(second, consumer="two"))
    (patch,) = second.patches
    assert (patch.version, patch.count) == ("theirs-1", 2)
    assert first.closed


def test_what_is_known_lives_as_long_as_the_event(partition: Partition, exporter_of: MakeExporter) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    partition.record(about(1))
    run_until_idle(exporter)
    (key,) = [key for key in partition.state() if key.startswith("exported:memory:")]
    assert HOUR_MS < partition.state()[key][1] <= 2 * HOUR_MS
    partition.expire(in_ms=2 * HOUR_MS)
    run_until_idle(exporter)
    assert key not in partition.state()
    assert sink.counts() == {"message 1": 1}, "a sink keeps its history"


# -- one live worker -----------------------------------------------------------------------------------------------


def test_a_second_worker_stands_by_until_the_first_gives_back(partition: Partition, exporter_of: MakeExporter) -> None:
    first = exporter_of(MemorySink())
    second = exporter_of(MemorySink(), consumer="two", acquire=False)
    assert not second.acquire()
    assert status_of(partition.bus).holders == ("one",)
    close(first)
    assert second.acquire()
    assert status_of(partition.bus).holders == ("two",)


def test_changes_collect_after_a_read_without_any_if_the_sink_prefers_large_batches(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemoryBatchSink()
    sink.collect_s = 60.0  # type: ignore[attr-defined]
    exporter = exporter_of(sink)
    partition.record(about(1))
    run_until_idle(exporter)
    assert (len(sink.calls), time.now_s) == (1, 0)
    partition.record(about(2))
    partition.record(about(3))
    exporter.step()
    assert (len(sink.calls), time.now_s) == (3, 60)


def test_a_dead_worker_is_taken_over_from_by_the_observers_own_clock_and_learns_of_it(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    first = exporter_of(sink, take_over_s=25.0)
    second = exporter_of(MemorySink(), consumer="two", acquire=False, take_over_s=25.0)
    assert looks_until_taken_over(second, time) == 1 + 9, "25 s in looks of 3 s"
    partition.record(about(1))
    with pytest.raises(LeaseLost):
        run_until_idle(first)
    assert sink.calls == []
    workers = partition.state()["workers"][0]
    assert [field for field in workers if field.startswith("export:")] == ["export:memory/two"]


def looks_until_taken_over(worker: PartitionExporter, time: OwnTime) -> int:
    for looks in range(1, 100):
        if worker.acquire():
            return looks
        time.sleep(3)
    raise AssertionError("it never takes over")


def test_a_worker_that_was_robbed_in_the_middle_keeps_nothing(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    system: dict[str, Event] = {}
    slow, sink = MemorySink(system=system), MemorySink(system=system)
    first = exporter_of(slow)
    second = exporter_of(sink, consumer="two", acquire=False)
    assert not second.acquire()
    partition.record(about(1))

    def freeze(_event: Event) -> None:
        time.sleep(LONGEST_CALL_S + 30)
        looks_until_taken_over(second, time)
        run_until_idle(second)

    slow.fail = freeze
    with pytest.raises(LeaseLost):
        run_until_idle(first)
    assert sink.counts() == {"message 1": 1}
    partition.record(about(1))
    run_until_idle(second)
    assert sink.counts() == {"message 1": 2}


def test_a_worker_in_a_long_call_of_its_sink_lives(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    slow = MemorySink()
    first = exporter_of(slow, take_over_s=25.0)
    second = exporter_of(MemorySink(), consumer="two", acquire=False, take_over_s=25.0)
    partition.record(about(1))

    def take_long(_event: Event) -> None:
        for _ in range(2):
            for _ in range(8):
                assert not second.acquire()
                time.sleep(3)
            before = partition.state()["workers"]
            eventually(lambda before=before: partition.state()["workers"] != before, within_s=60)  # type: ignore[misc]
        assert time.monotonic() - first.loop_health().last_progress < 30, "and /livez says so too"

    slow.fail = take_long
    run_until_idle(first)
    assert slow.counts() == {"message 1": 1}
    assert not second.acquire()


def test_the_lag_is_the_number_of_changes_in_the_stream_though_versions_jump(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    exporter = exporter_of(MemorySink())
    partition.record(about(0))
    run_until_idle(exporter)
    before = version_in(partition.admin.get(partition.keys.version_of("events")))
    notifier = NotifierStatus("", {0: before}, ())
    partition.record(*[about(number, f"large {number}") for number in range(40)])
    for jump in range(3):
        forget_the_newest_version(partition)
        for number in range(30):  # a call each
            partition.record(about(number, f"{jump} {number}"))
    assert len(partition.raw_changes()) == 1 + 40 + 3 * 30
    assert status_of(partition.bus).lag == 40 + 3 * 30
    assert notifier_lag(partition.bus, partition.admin, notifier) == 40 + 3 * 30
    partition.admin.xtrim(partition.keys.changes_of("events"), maxlen=70, approximate=False)
    assert status_of(partition.bus).lag == 70, "those that were trimmed away are listed, not read"
    partition.admin.xtrim(partition.keys.changes_of("events"), maxlen=0, approximate=False)
    assert status_of(partition.bus).lag == 0


# -- outages -------------------------------------------------------------------------------------------------------


def test_ten_minutes_of_outage_read_nothing_bury_nothing_and_are_told(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    partition.record(*[about(number) for number in range(10)])
    began = time.time_ns()
    seen = []

    def down(_event: Event) -> None:
        if time.now_s < 600:
            seen.append(status_of(partition.bus))
            raise SinkUnreachable("refused")

    sink.fail = down
    run_until_idle(exporter)

    assert seen[0].paused_since_ms == 0
    assert {status.paused_since_ms // 1000 for status in seen[1:]} == {began // 10**9}
    assert {(status.error, status.pending, status.lag) for status in seen[1:]} == {("refused", 10, 10)}
    assert sink.counts() == {f"message {number}": 1 for number in range(10)}
    after = status_of(partition.bus)
    assert (after.paused_since_ms, after.lag, after.written, after.dead) == (0, 0, 10, 0)
    assert list(DeadLetter(partition.bus, partition.admin).list()) == []


@pytest.mark.parametrize("answer", [None, EventRejected("no")])
def test_a_pause_goes_on_under_the_next_worker_until_the_sink_answers(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, answer: Exception | None
) -> None:
    sink = MemorySink()
    sink.fail = fail_with(SinkUnreachable("refused"))
    partition.record(about(1))
    time.end_s = 100.0
    first = make_exporter(partition.bus, sink, time)
    with pytest.raises(ExportStopped):
        first.acquire()
    close(first)
    since = status_of(partition.bus).paused_since_ms
    assert since > 0
    time.end_s = float("inf")
    time.sleep(100)
    second = MemorySink()
    if answer is not None:
        second.fail = fail_with(answer)
    exporter_of(second, consumer="two")
    after = status_of(partition.bus)
    assert (after.paused_since_ms, after.written, after.dead) == (0, 1 - bool(answer), bool(answer))


@pytest.mark.parametrize(
    ("error", "reason"),
    [(SinkUnreachable("refused"), "SinkUnreachable"), (Throttled(retry_after_s=1), "SinkThrottled")],
)
def test_what_a_pause_is_for_is_told(
    partition: Partition, exporter_of: MakeExporter, error: Exception, reason: str
) -> None:
    told: list[str] = []
    sink = MemorySink()
    sink.fail = fail_with(error, times=1)
    partition.record(about(1))
    exporter = exporter_of(sink, acquire=False, on_change=lambda reason, _message: told.append(reason))
    assert exporter.acquire()
    assert told == [reason, "SinkReachable"]


@pytest.mark.parametrize("redis_was_away", [False, True])
def test_a_worker_that_starts_while_its_sink_is_down_is_ready(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, redis_was_away: bool
) -> None:
    sink = MemorySink()
    partition.record(about(1))
    exporter = exporter_of(sink, acquire=False)
    assert not exporter.loop_health().ready, "it has not asked Redis yet"
    ready: list[bool] = []

    def down(_event: Event) -> None:
        ready.append(exporter.loop_health().ready)
        if time.now_s < 60:
            raise SinkUnreachable("refused")
        exporter.stop()

    sink.fail = down
    store = RedisAway(exporter, "acquire", times=3 if redis_was_away else 0)
    exporter.run()
    assert store.left == 0
    assert len(ready) > 1
    assert all(ready)


@pytest.mark.parametrize("error", [BusUnavailable, PasswordRefused])
def test_a_worker_that_loses_redis_with_a_batch_in_hand_lives_and_says_that_it_waits(
    partition: Partition,
    exporter_of: MakeExporter,
    time: OwnTime,
    caplog: pytest.LogCaptureFixture,
    error: type[EventBusError],
) -> None:
    told: list[str] = []
    exporter = exporter_of(sink := MemorySink(), on_change=lambda reason, _message: told.append(reason))
    partition.record(about(1))
    silent_s: list[float] = []
    ready: list[bool] = []

    def look() -> None:
        silent_s.append(time.monotonic() - exporter.loop_health().last_progress)
        ready.append(exporter.loop_health().ready)

    RedisAway(exporter, "settle", times=60, before=look, error=error)
    run_until_idle(exporter)
    assert time.monotonic() > 300
    assert max(silent_s) <= 10, "/livez"
    assert (ready[0], set(ready[1:])) == (True, {False}), "/readyz"
    assert exporter.loop_health().ready
    assert [record.message for record in caplog.records if record.name == "eventbus"] == [
        "export:memory, partition 0 waits: Connection refused",
        "export:memory, partition 0 goes on",
    ]
    assert told == ["LostRedis", "Reconnected"]
    assert sink.calls == [("create", "message 1", 1)], "what it has taken is kept then, and not written again"


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "cause"),
    [(EventRejected("namespace is terminating"), "rejected"), (UnexpectedReply("teapot"), "retries")],
)
def test_what_a_sink_will_not_take_is_buried_alone_and_can_be_written_again(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, error: Exception, cause: str
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    sink.fail = fail_with(error, message="message 3")
    partition.record(*[about(number) for number in range(5)])
    run_until_idle(exporter)

    dead = DeadLetter(partition.bus, partition.admin)
    (entry,) = dead.list()
    assert (entry.group, entry.cause, entry.why) == ("export:memory", cause, str(error))
    (event,) = entry.events()
    (stored,) = [each for each in partition.stored() if each.message == "message 3"]
    assert (event.metadata.uid, event.metadata.name, event.count) == (stored.metadata.uid, stored.metadata.name, 1)
    assert sorted(sink.counts()) == ["message 0", "message 1", "message 2", "message 4"]
    assert status_of(partition.bus).dead == 1

    partition.record(about(3))  # it repeats, and fails again
    run_until_idle(exporter)
    assert len(list(dead.list())) == 2

    sink.fail = lambda _event: None
    for each in list(dead.list()):
        dead.replay(each.id)
    time.sleep(1)
    run_until_idle(exporter)
    assert sink.counts()["message 3"] == 2, "its newest state"
    assert list(dead.list()) == []
    with pytest.raises(NotFound):
        dead.replay(entry.id)


@pytest.mark.parametrize(
    ("every_ms", "tried"),
    [
        (3_000, [1, 4, 7]),
        (0, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_an_event_that_a_sink_refuses_is_tried_as_often_as_the_rule_for_repeats_says(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, every_ms: int, tried: list[int]
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=every_ms)
    sink.fail = fail_with(EventRejected("no"))
    for _ in range(8):
        partition.record(about(1))
        run_until_idle(exporter)
        time.sleep(1)
    assert sink.calls == [("create", "message 1", count) for count in tried]
    assert status_of(partition.bus).dead == len(tried)


def test_a_refused_repeat_of_what_the_sink_has_is_followed_by_a_patch_and_else_by_a_create(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    for fails in ("message 2", "message", "nothing"):
        sink.fail = fail_with(EventRejected("no"), message=fails)
        partition.record(about(1), about(2))
        run_until_idle(exporter)
    assert [call for call in sink.calls if call[1] == "message 1"] == [
        ("create", "message 1", 1),
        ("patch", "message 1", 2),
        ("patch", "message 1", 3),
    ]
    assert [call for call in sink.calls if call[1] == "message 2"] == [
        ("create", "message 2", 1),
        ("create", "message 2", 2),
        ("create", "message 2", 3),
    ]
    assert {patch.version for patch in sink.patches} == {"theirs-1"}
    assert sink.counts() == {"message 1": 3, "message 2": 3}


@pytest.mark.parametrize("every_ms", [HOUR_MS, 0])
def test_what_was_buried_and_written_again_is_patched_from_then_on(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, every_ms: int
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=every_ms)
    sink.fail = fail_with(EventRejected("no"), times=1)
    partition.record(about(1))
    run_until_idle(exporter)
    dead = DeadLetter(partition.bus, partition.admin)
    dead.replay(next(dead.list()).id)
    time.sleep(1)
    run_until_idle(exporter)
    partition.record(about(1))
    run_until_idle(exporter)
    assert sink.verbs() == ["create", "update", *([] if every_ms else ["patch"])]


@pytest.mark.parametrize("expired", [False, True])
def test_an_event_that_was_buried_several_times_is_written_again_once_in_its_newest_state(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, expired: bool
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    sink.fail = fail_with(EventRejected("no"))
    for _ in range(4):
        partition.record(about(1), about(2))
        run_until_idle(exporter)
    if expired:
        partition.expire(in_ms=2 * HOUR_MS)
        run_until_idle(exporter)
    sink.fail = lambda _event: None
    sink.calls.clear()
    dead = DeadLetter(partition.bus, partition.admin)
    ids = [entry.id for entry in dead.list()]
    assert len(ids) == 8
    for entry_id in reversed(ids):
        dead.replay(entry_id)
    dead.discard(ids[0])
    time.sleep(1)
    run_until_idle(exporter)
    assert sorted(sink.calls) == [("update", "message 1", 4), ("update", "message 2", 4)]
    assert list(dead.list()) == []
    assert status_of(partition.bus).waiting == 0


@pytest.mark.parametrize("refused_again", [False, True])
def test_what_was_written_again_after_it_had_expired_is_a_first_one_when_it_comes_back(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime, refused_again: bool
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=HOUR_MS)
    sink.fail = fail_with(EventRejected("no"))
    partition.record(about(1))
    run_until_idle(exporter)
    partition.expire(in_ms=2 * HOUR_MS)
    run_until_idle(exporter)
    if not refused_again:
        sink.fail = lambda _event: None
    dead = DeadLetter(partition.bus, partition.admin)
    dead.replay(next(dead.list()).id)
    time.sleep(1)
    run_until_idle(exporter)
    partition.record(about(1))
    run_until_idle(exporter)
    assert sink.verbs() == ["create", "update", "create", *([] if refused_again else ["patch"])]


# -- beginning and catching up -------------------------------------------------------------------------------------


def test_a_new_sink_begins_with_what_the_store_holds_or_from_now(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    partition.record(about(1))
    partition.record(about(1))
    listed, followed = MemorySink("listed"), MemorySink("followed")
    exporters = [exporter_of(listed), exporter_of(followed, start=NOW)]
    partition.record(about(2))
    for exporter in exporters:
        run_until_idle(exporter)
    assert listed.calls == [("update", "message 1", 2), ("create", "message 2", 1)]
    assert followed.calls == [("create", "message 2", 1)]


def test_a_sink_goes_on_where_it_was_whatever_it_is_told_to_begin_with(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    close(exporter_of(MemorySink()))
    partition.record(about(1))
    sink = MemorySink()
    run_until_idle(exporter_of(sink, consumer="two", start=NOW))
    assert sink.verbs() == ["create"]


def test_a_sink_that_was_away_for_too_long_lists_the_store_without_loss_and_without_doubles(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    partition.record(*[about(number) for number in range(10)])
    run_until_idle(exporter)
    for number in range(5, 15):  # a call each
        partition.record(about(number))
    partition.admin.xtrim(partition.keys.changes_of("events"), maxlen=3, approximate=False)
    run_until_idle(exporter)
    wanted = {f"message {number}": 2 if 5 <= number < 10 else 1 for number in range(15)}
    assert sink.counts() == wanted
    assert set(sink.deliveries.values()) == {1}
    assert status_of(partition.bus).parts[0].lists == 2
    partition.record(about(0))
    run_until_idle(exporter)
    assert sink.counts() == wanted | {"message 0": 2}


def test_after_a_flush_the_sink_has_everything_that_is_recorded_then(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    partition.record(about(1))
    run_until_idle(exporter)
    for key in partition.admin.scan_iter(match=f"{partition.bus.prefix}:*", count=10_000):
        partition.admin.delete(key)
    partition.bus.open_partition(partition.admin, 0)
    partition.forget_producers()
    partition.record(about(2))
    time.sleep(1)
    run_until_idle(exporter)
    partition.record(about(3))
    run_until_idle(exporter)
    assert sink.counts() == {"message 1": 1, "message 2": 1, "message 3": 1}


# -- matchers ------------------------------------------------------------------------------------------------------


def test_events_that_do_not_match_are_counted_and_never_written(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    sink.fail = fail_with(EventRejected("no"), message="message 1")
    exporter = exporter_of(sink)
    partition.record(about(1))  # for the dead letter
    run_until_idle(exporter)
    close(exporter)
    exporter = exporter_of(sink, matchers=event_matchers('message="message 2"'))
    dead = DeadLetter(partition.bus, partition.admin)
    dead.replay(next(dead.list()).id)
    time.sleep(1)
    partition.record(about(1), about(2), about(3))
    run_until_idle(exporter)
    assert sink.calls == [("create", "message 1", 1), ("create", "message 2", 1)]
    status = status_of(partition.bus)
    assert (status.unmatched, status.written, status.lag, status.waiting) == (3, 1, 0, 0)
    close(exporter)
    run_until_idle(exporter_of(sink))  # the position is after them
    assert sink.counts() == {"message 2": 1}


# -- repeats -------------------------------------------------------------------------------------------------------


def test_repeats_held_back_for_a_time_are_told_at_its_end_with_the_final_count(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=300_000)
    for _ in range(4):
        partition.record(about(1))
        run_until_idle(exporter)
        time.sleep(10)
    assert sink.calls == [("create", "message 1", 1)]
    assert (status_of(partition.bus).waiting, status_of(partition.bus).held_back) == (1, 3)
    time.sleep(300)
    run_until_idle(exporter)
    assert sink.calls[1:] == [("patch", "message 1", 4)]
    assert status_of(partition.bus).waiting == 0
    time.sleep(3000)
    run_until_idle(exporter)
    assert len(sink.calls) == 2


def test_a_clock_that_is_set_back_holds_back_no_repeat(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=300_000)
    for _ in range(2):
        partition.record(about(1))
        run_until_idle(exporter)
        time.sleep(-3600)
    assert sink.calls == [("create", "message 1", 1), ("patch", "message 1", 2)]


def test_what_was_held_back_is_told_when_the_event_expires(partition: Partition, exporter_of: MakeExporter) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=300_000)
    for _ in range(2):
        partition.record(about(1))
        run_until_idle(exporter)
    partition.expire(in_ms=2 * HOUR_MS)
    run_until_idle(exporter)
    assert sink.calls == [("create", "message 1", 1), ("patch", "message 1", 2)]
    assert not [key for key in partition.state() if key.startswith(("later:", "exported:"))]


# -- rounds: each is stored before the next is chosen, also if the sink or Redis fails in between ----------------------


def test_an_event_that_is_in_two_rounds_is_chosen_by_what_came_of_the_first(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    exporter = exporter_of(sink, start=NOW, batch_events=1, outage="count")
    for _ in range(3):
        partition.record(about(1, "a"))
    run_until_idle(exporter)
    assert sink.verbs() == ["create", "patch", "patch"]
    assert [patch.version for patch in sink.patches] == ["theirs-1", "theirs-2"]


def test_what_the_sink_has_is_kept_before_it_is_waited_for(
    partition: Partition, exporter_of: MakeExporter, time: OwnTime
) -> None:
    sink = MemoryBatchSink()
    sink.fail = fail_with(SinkUnreachable("refused"), message="b")
    exporter = exporter_of(sink, start=NOW, batch_events=1)
    partition.record(about(1, "a"), about(2, "b"))
    time.end_s = 100.0
    with pytest.raises(ExportStopped):
        run_until_idle(exporter)
    assert status_of(partition.bus).written == 1
    assert list(sink.counts()) == ["a"]


def test_a_sink_that_is_gone_in_the_second_round_leaves_the_first_kept(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    sink.fail = fail_with(SinkGone("gone"), message="b")
    exporter = exporter_of(sink, start=NOW, batch_events=1)
    partition.record(about(1, "a"), about(2, "b"))
    with pytest.raises(SinkGone):
        run_until_idle(exporter)
    assert status_of(partition.bus).written == 1


def test_redis_that_is_away_between_two_rounds_loses_and_doubles_nothing(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemoryBatchSink()
    exporter = exporter_of(sink, start=NOW, batch_events=1)
    partition.record(*[about(number, "abcd"[number]) for number in range(4)])
    real, left = exporter._store.returned, [2]

    def returned(keys: Sequence[str]) -> Any:
        if sink.rows and left[0]:
            left[0] -= 1
            raise BusUnavailable("Connection refused")
        return real(keys)

    exporter._store.returned = returned  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(BusUnavailable):
            run_until_idle(exporter)
        exporter._let_go()
        assert exporter.acquire()
    run_until_idle(exporter)
    assert sink.counts() == dict.fromkeys("abcd", 1)
    assert set(sink.deliveries.values()) == {1}


# -- full memory, status -------------------------------------------------------------------------------------------


# others share the servers in the containers
@pytest.mark.parametrize("any_server_url", ["embedded"], indirect=True)
def test_what_a_sink_was_told_is_known_as_long_as_the_event_repeats(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=60_000)
    partition.record(about(1))
    run_until_idle(exporter)
    (known,) = partition.admin.keys(f"{partition.keys.root.decode()}exported:*")
    partition.admin.pexpire(known, 60_000)  # most of its life is over
    partition.record(about(1))
    run_until_idle(exporter)
    assert sink.calls == [("create", "message 1", 1)]
    assert partition.admin.pttl(known) > HOUR_MS


def test_after_an_outage_of_two_lives_what_still_repeats_is_told_once_more_under_its_own_name(
    partition: Partition, exporter_of: MakeExporter
) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink, every_ms=60_000)
    partition.record(about(1))
    run_until_idle(exporter)
    for known in partition.admin.keys(f"{partition.keys.root.decode()}exported:*"):
        partition.admin.delete(known)  # as its time to live does
    for _ in range(2):
        partition.record(about(1))
        run_until_idle(exporter)
    assert sink.calls == [("create", "message 1", 1), ("patch", "message 1", 2)]
    (event,), (patch,) = partition.stored(), sink.patches
    assert (patch.name, patch.version) == (event.metadata.name, "")


def test_a_full_server_holds_up_no_export(partition: Partition, exporter_of: MakeExporter) -> None:
    sink = MemorySink()
    exporter = exporter_of(sink)
    partition.record(about(1), about(2))
    with partition.memory_full():
        run_until_idle(exporter)
    assert sink.counts() == {"message 1": 1, "message 2": 1}
    assert status_of(partition.bus).lag == 0


def test_a_forgotten_sink_is_written_everything_anew(partition: Partition, exporter_of: MakeExporter) -> None:
    partition.record(*[about(number) for number in range(5)])
    others = MemorySink(name="memory-2")
    for sink in (MemorySink(), others):
        exporter = exporter_of(sink)
        run_until_idle(exporter)
        close(exporter)
    assert [status.name for status in export_status(partition.bus, partition.admin)] == ["memory", "memory-2"]
    assert forget_sink(partition.bus, partition.admin, "memory")
    assert not forget_sink(partition.bus, partition.admin, "memory")
    assert [status.name for status in export_status(partition.bus, partition.admin)] == ["memory-2"]
    anew = MemorySink()
    run_until_idle(exporter_of(anew))
    assert sorted(anew.verbs()) == ["update"] * 5, "and nothing is patched that it never had"
    again = MemorySink(name="memory-2", system=others.rows)
    run_until_idle(exporter_of(again))
    assert again.calls == [], "the other sink is as it was"


def test_whether_anybody_correlates_can_be_seen(partition: Partition) -> None:
    def look() -> list[Beats]:
        return read_beats(partition.admin, partition.bus.keys)

    partition.reader("elsewhere", group="log").beat()
    before = look()
    partition.reader("elsewhere", group="log").beat()
    assert partitions_without_worker(before, look()) == [0]
    before = look()
    partition.reader("worker").read(0, beat=True)
    assert partitions_without_worker(before, look()) == []
    assert partitions_without_worker(look(), look()) == [0]


def test_where_nobody_correlates_is_said() -> None:
    living = [{"sink/a": b"1", "log/a": b"1"}, {"sink/a": b"2", "log/a": b"2"}]
    dead = [{"log/a": b"1"}, {"log/a": b"2"}]
    before, after = zip(living, dead, living, dead, strict=True)
    assert partitions_without_worker(before, after) == [1, 3]
    assert describe_missing([1, 3], 4).startswith(
        "no sink worker is alive on partition 1, 3: nothing is correlated there"
    )
    assert describe_missing([0, 1], 2).startswith("no sink worker is alive: nothing is correlated, ")
    assert describe_missing([], 2) == ""
