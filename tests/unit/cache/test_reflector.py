"""Listing and watching: client-go's reflector_test, case by case. Time is a fake clock; no sleep takes any."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from eventbus.cache.reflector import Reflector, ReflectorBackoff, StopSignal
from eventbus.errors import BusUnavailable, EventBusError, Expired
from eventbus.model.event import Event, ObjectMeta
from eventbus.model.list_watch import ListOptions, ObjectList, WatchEvent
from eventbus.testing.clock import FakeClock
from eventbus.testing.watch_source import FakeWatch, FakeWatchSource
from tests.unit.cache.things import (
    Answer,
    ScriptedSource,
    SleeplessStop,
    Store,
    added,
    deleted,
    listed,
    make_thing,
    modified,
    watch_of,
)
from tests.waiting import eventually

REFUSED = BusUnavailable("connection refused")
EXPIRED = Expired("too old resource version: 1 (900)")


@dataclass
class Bench:
    """A reflector into a store, and what it met."""

    clock: FakeClock
    stop: SleeplessStop
    store: Store
    errors: list[Exception]

    def reflector(self, source: Any, **options: Any) -> Reflector[Event]:
        defaults: dict[str, Any] = {"store": self.store, "on_error": self.errors.append, "chance": lambda: 0.0}
        return Reflector(source=source, clock=self.clock, **(defaults | options))

    @property
    def held(self) -> dict[str, str]:
        return {found.metadata.name: found.message for found in self.store.held.list()}


@pytest.fixture
def bench() -> Bench:
    clock = FakeClock()
    return Bench(clock, SleeplessStop(clock), Store(), [])


def test_it_lists_any_version_in_pages_and_watches_from_the_lists_version(bench: Bench) -> None:
    source = ScriptedSource(bench.stop, [listed("1")])
    bench.reflector(source).list_and_watch(bench.stop)
    (asked,) = source.listed
    assert (asked.resource_version, asked.limit) == ("0", 500)
    (watched,) = source.watched
    assert (watched.resource_version, watched.allow_bookmarks) == ("1", True)


def test_the_store_follows_the_watch(bench: Bench) -> None:
    watch = watch_of(
        added(make_thing("new", "1", version="11")),
        modified(make_thing("changed", "2", version="12")),
        deleted(make_thing("gone", version="32")),
    )
    source = ScriptedSource(bench.stop, [listed("10", make_thing("gone"), make_thing("changed", "1"))], [watch])
    reflector = bench.reflector(source)
    reflector.list_and_watch(bench.stop)
    assert bench.held == {"new": "1", "changed": "2"}
    assert reflector.last_sync_resource_version == "32"


def test_what_is_of_another_type_is_logged_and_skipped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Stranger(msgspec.Struct, frozen=True):
        metadata: ObjectMeta = ObjectMeta(name="stranger", resource_version="12")

    watch = watch_of(cast("WatchEvent[Event]", WatchEvent(added(make_thing("x")).type, Stranger())))
    source = ScriptedSource(bench.stop, [listed("10")], [watch])
    reflector = bench.reflector(source, expected_type=Event, resource="events")
    with caplog.at_level(logging.ERROR):
        reflector.list_and_watch(bench.stop)
    assert bench.held == {}
    assert "A watch of events returned a Stranger; skipped" in caplog.text


def test_what_cannot_be_stored_is_logged_and_skipped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Store):
        def add(self, found: Event) -> None:
            if found.metadata.name == "bad":
                raise ValueError("no")
            super().add(found)

    store = Picky()
    watch = watch_of(added(make_thing("bad", version="11")), added(make_thing("good", version="12")))
    source = ScriptedSource(bench.stop, [listed("10")], [watch])
    with caplog.at_level(logging.ERROR):
        bench.reflector(source, store=store).list_and_watch(bench.stop)
    assert store.held.list_keys() == ["good"]
    assert "Cannot store ADDED bad; skipped" in caplog.text


def test_a_bookmark_moves_the_version_and_nothing_else(bench: Bench) -> None:
    source = ScriptedSource(bench.stop, [listed("10", make_thing("a"))], [watch_of(WatchEvent.bookmark("40"))])
    reflector = bench.reflector(source)
    reflector.list_and_watch(bench.stop)
    assert (reflector.last_sync_resource_version, bench.held) == ("40", {"a": ""})
    assert source.watched[-1].resource_version == "40"


def test_the_position_of_an_event_goes_before_its_objects_version(bench: Bench) -> None:
    event = WatchEvent(added(make_thing("a")).type, make_thing("a", version="7"), position="7-3")
    source = ScriptedSource(bench.stop, [listed("6-3")], [watch_of(event)])
    bench.reflector(source).list_and_watch(bench.stop)
    assert [options.resource_version for options in source.watched] == ["6-3", "7-3"]


def test_a_watch_from_no_version_moves_only_after_its_first_objects(bench: Bench) -> None:
    watch = watch_of(added(make_thing("a", version="9")), added(make_thing("b", version="3")))
    later = watch_of(added(make_thing("a", version="9")), modified(make_thing("b", version="12")))
    source = ScriptedSource(bench.stop, [listed("0")], [watch, later])
    bench.reflector(source).list_and_watch(bench.stop)
    assert [options.resource_version for options in source.watched] == ["0", "0", "12"]


def test_an_error_in_the_watch_stops_it_and_leads_to_a_new_list(bench: Bench) -> None:
    watch = watch_of(WatchEvent.failed(EventBusError("storage is corrupt")))
    source = ScriptedSource(bench.stop, [listed("10"), listed("11")], [watch])
    bench.reflector(source).run(bench.stop)
    assert watch.stops >= 1
    assert source.versions == ["0", "10"]
    assert [options.resource_version for options in source.watched] == ["10", "11"]
    assert str(bench.errors[0]) == "storage is corrupt"


def test_an_error_event_without_an_error_is_one(bench: Bench) -> None:
    empty = msgspec.structs.replace(WatchEvent[Event].failed(EXPIRED), error=None)
    source = ScriptedSource(bench.stop, [listed("10")], [watch_of(empty)])
    with pytest.raises(EventBusError, match="a watch of objects failed"):
        bench.reflector(source).list_and_watch(bench.stop)


def test_nothing_is_asked_after_the_stop(bench: Bench) -> None:
    source = ScriptedSource(bench.stop, [listed("10")])
    bench.stop.set()
    reflector = bench.reflector(source)
    reflector.run(bench.stop)
    reflector.list_and_watch(bench.stop)
    assert (source.listed, source.watched) == ([], [])


def test_a_list_that_comes_after_the_stop_is_not_stored_and_not_watched(bench: Bench) -> None:
    class Slow(ScriptedSource):
        def list(self, options: ListOptions) -> ObjectList[Event]:
            bench.stop.set()
            return super().list(options)

    source = Slow(bench.stop, [listed("10", make_thing("a"))])
    bench.reflector(source).list_and_watch(bench.stop)
    assert (bench.held, source.watched) == ({}, [])


def test_a_watch_that_opens_during_the_stop_is_stopped(bench: Bench) -> None:
    watch = FakeWatch[Event]()

    class Slow(ScriptedSource):
        def watch(self, options: ListOptions) -> FakeWatch[Event]:
            bench.stop.set()
            return super().watch(options)

    bench.reflector(Slow(bench.stop, [listed("10")], [watch])).list_and_watch(bench.stop)
    assert watch.stops >= 1
    assert bench.errors == []


def test_the_stop_ends_a_watch_that_blocks() -> None:
    clock = FakeClock()
    stop, source = StopSignal(clock), FakeWatchSource[Event]()
    reflector = Reflector(source=source, store=Store(), clock=clock)
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    source.wait_for_watches(1)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    source.wait_for_watches(0)


def test_nothing_of_a_watch_is_applied_after_the_stop(bench: Bench) -> None:
    class StopAtFirst(Store):
        def add(self, found: Event) -> None:
            super().add(found)
            bench.stop.set()

    store = StopAtFirst()
    watch = watch_of(added(make_thing("a", version="11")), added(make_thing("b", version="12")))
    bench.reflector(ScriptedSource(bench.stop, [listed("10")], [watch]), store=store).list_and_watch(bench.stop)
    assert store.held.list_keys() == ["a"]


def test_a_watch_that_ends_at_once_and_tells_nothing_has_failed(bench: Bench) -> None:
    watch = watch_of()
    source = ScriptedSource(bench.stop, [listed("10"), listed("10")], [watch])
    bench.reflector(source, resource="events").run(bench.stop)
    assert "very short watch: events" in str(bench.errors[0])
    assert watch.stops >= 1
    assert source.versions == ["0", "10"], "a list follows"
    assert len(bench.stop.slept) >= 1, "after a pause"


def test_a_watch_that_tells_nothing_for_a_while_has_not_failed(bench: Bench) -> None:
    class Quiet(FakeWatch[Event]):
        def __iter__(self) -> Any:
            bench.clock.advance(1.0)
            return iter(())

    source = ScriptedSource(bench.stop, [listed("10")], [Quiet()])
    bench.reflector(source).list_and_watch(bench.stop)
    assert len(source.watched) == 2
    assert len(source.listed) == 1


def test_lists_and_watches_may_fail_and_the_store_converges(bench: Bench) -> None:
    source = ScriptedSource(
        bench.stop,
        [
            BusUnavailable("list failed"),
            listed("10", make_thing("a"), make_thing("b")),
            listed("20", make_thing("b", "2")),
            RuntimeError("a bug of the source"),
            listed("30", make_thing("c")),
        ],
        [EventBusError("watch failed"), watch_of(added(make_thing("x", version="21")), WatchEvent.failed(EXPIRED))],
    )
    bench.reflector(source).run(bench.stop)
    assert bench.held == {"c": ""}
    told = [str(error) for error in bench.errors[:4]]
    assert told == ["list failed", "watch failed", str(EXPIRED), "a bug of the source"]


def test_a_refused_connection_is_tried_again_without_a_list_and_with_longer_and_longer_pauses(bench: Bench) -> None:
    source = ScriptedSource(bench.stop, [listed("10")], [REFUSED] * 6)
    bench.reflector(source).list_and_watch(bench.stop)
    assert len(source.listed) == 1
    assert len(source.watched) == 7
    assert bench.stop.slept == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6])
    assert {options.resource_version for options in source.watched} == {"10"}


def test_a_connection_lost_inside_a_watch_is_opened_again_without_a_list(bench: Bench) -> None:
    watches = [watch_of(added(make_thing(f"n{i}", version=f"1{i}")), WatchEvent.failed(REFUSED)) for i in range(1, 5)]
    source = ScriptedSource(bench.stop, [listed("10")], watches)
    bench.reflector(source).list_and_watch(bench.stop)
    assert len(source.listed) == 1
    assert [options.resource_version for options in source.watched] == ["10", "11", "12", "13", "14"]


def test_pauses_are_jittered_up_to_twice_as_long() -> None:
    clock = FakeClock()
    for chance, factor in ((0.0, 1.0), (0.5, 1.5), (1.0, 2.0)):
        backoff = ReflectorBackoff(clock=clock, chance=lambda chance=chance: chance)  # type: ignore[misc]
        pauses = [backoff.next_s() for _ in range(8)]
        assert pauses == pytest.approx([factor * d for d in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30)])


def test_two_minutes_after_the_last_reset_the_pauses_begin_anew() -> None:
    clock = FakeClock()
    backoff = ReflectorBackoff(clock=clock, chance=lambda: 0.0)
    assert [backoff.next_s() for _ in range(3)] == pytest.approx([0.8, 1.6, 3.2])
    clock.advance(120)
    assert backoff.next_s() == pytest.approx(6.4), "not more than two minutes"
    clock.advance(0.1)
    assert [backoff.next_s() for _ in range(2)] == pytest.approx([0.8, 1.6])
    clock.advance(119)
    assert backoff.next_s() == pytest.approx(3.2)


def test_an_expired_list_is_followed_at_once_by_one_of_the_newest(bench: Bench) -> None:
    failing = watch_of(WatchEvent.failed(EXPIRED))
    source = ScriptedSource(bench.stop, [listed("10"), EXPIRED, listed("11", make_thing("a"))], [failing])
    bench.reflector(source).run(bench.stop)
    assert source.versions == ["0", "10", ""]
    assert bench.held == {"a": ""}
    assert bench.stop.slept == pytest.approx([0.8]), "no pause between the two lists"


def test_the_newest_is_asked_for_until_a_list_succeeds_and_then_not_older_again(bench: Bench) -> None:
    def fail() -> FakeWatch[Event]:
        return watch_of(WatchEvent.failed(EXPIRED))

    lists: list[Answer] = [listed("10"), EXPIRED, REFUSED, listed("12"), listed("13")]
    source = ScriptedSource(bench.stop, lists, [fail(), fail(), fail()])
    bench.reflector(source).run(bench.stop)
    assert source.versions[:5] == ["0", "10", "", "", "12"]


def test_each_too_large_version_costs_one_more_list(bench: Bench) -> None:
    too_large = Expired("too large resource version")
    lists: list[Answer] = [listed("20"), too_large, listed("30"), too_large, listed("40"), too_large, listed("50")]
    source = ScriptedSource(bench.stop, lists, [watch_of(WatchEvent.failed(EXPIRED)) for _ in range(3)])
    bench.reflector(source).run(bench.stop)
    assert source.versions == ["0", "20", "", "30", "", "40", ""]


def test_a_new_list_comes_whole_so_that_a_cache_may_serve_it(bench: Bench) -> None:
    source = ScriptedSource(bench.stop, [listed("10"), listed("20")], [watch_of(WatchEvent.failed(EXPIRED))])
    bench.reflector(source).run(bench.stop)
    assert [options.limit for options in source.listed] == [500, 0]


def test_where_the_first_list_came_in_pages_every_list_does(bench: Bench) -> None:
    pages = [listed("10", make_thing("a"), more="next"), listed("12", make_thing("b"))]
    source = ScriptedSource(bench.stop, [*pages, listed("20")], [watch_of(WatchEvent.failed(EXPIRED))])
    bench.reflector(source).run(bench.stop)
    assert source.watched[0].resource_version == "10", "the version of the first page"
    assert [options.limit for options in source.listed] == [500, 500, 500]
    assert source.versions == ["0", "(next)", "10"]


def test_a_second_page_that_expired_is_followed_by_one_whole_list(bench: Bench) -> None:
    lists: list[Answer] = [
        listed("10", more="first"),
        listed("10"),
        listed("20", make_thing("a"), more="next"),
        Expired("the continuation"),
        listed("21", make_thing("a"), make_thing("b")),
    ]
    source = ScriptedSource(bench.stop, lists, [watch_of(WatchEvent.failed(EXPIRED))])
    bench.reflector(source).run(bench.stop)
    assert source.versions == ["0", "(first)", "10", "(next)", "10"]
    assert [options.limit for options in source.listed] == [500, 500, 500, 500, 0]
    assert bench.held == {"a": "", "b": ""}


def test_a_watch_is_asked_to_end_at_a_random_time(bench: Bench) -> None:
    for chance, expected_s in ((0.0, 300), (1.0, 600)):
        stop = SleeplessStop(bench.clock)
        source = ScriptedSource(stop, [listed("10")])
        bench.reflector(source, chance=lambda chance=chance: chance).list_and_watch(stop)
        assert source.watched[0].timeout_s == expected_s


def test_an_error_handler_that_fails_stops_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_error: Exception) -> None:
        raise ValueError("handler")

    source = ScriptedSource(bench.stop, [EventBusError("no"), listed("10", make_thing("a"))])
    with caplog.at_level(logging.ERROR):
        bench.reflector(source, on_error=fail).run(bench.stop)
    assert bench.held == {"a": ""}
    assert "watch error handler of objects failed" in caplog.text


@pytest.mark.parametrize(
    ("error", "level"),
    [(EXPIRED, logging.INFO), (REFUSED, logging.WARNING), (RuntimeError("a bug"), logging.ERROR)],
)
def test_errors_are_logged_by_how_unusual_they_are(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    stop = SleeplessStop(bench.clock, most=1)
    source = ScriptedSource(stop, [error, error])
    with caplog.at_level(logging.INFO):
        bench.reflector(source, on_error=None).run(stop)
    assert [record.levelno for record in caplog.records] == [level]


class CountingStore(Store):
    """Counts resyncs; from *fails_at* on they fail."""

    def __init__(self, fails_at: int = 1_000) -> None:
        super().__init__()
        self.resyncs = 0
        self.replaces = 0
        self._fails_at = fails_at

    def replace(self, items: Iterable[Event]) -> None:
        super().replace(items)
        self.replaces += 1

    def resync(self) -> None:
        self.resyncs += 1
        if self.resyncs >= self._fails_at:
            raise ValueError("resync")


def test_a_resync_comes_each_time_it_is_due_and_wanted() -> None:
    clock, store, source = FakeClock(), CountingStore(), FakeWatchSource[Event]()
    stop, wanted = StopSignal(clock), itertools.chain([True, False], itertools.repeat(True))
    asked: list[bool] = []

    def should_resync() -> bool:
        asked.append(next(wanted))
        return asked[-1]

    reflector = Reflector(source=source, store=store, clock=clock, resync_s=10, should_resync=should_resync)
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    source.wait_for_watches(1)
    clock.advance(9.9)
    assert store.resyncs == 0
    for n in (1, 2, 3):
        clock.advance(10)
        eventually(lambda n=n: len(asked) == n)  # type: ignore[misc]
    eventually(lambda: store.resyncs == 2)
    stop.set()
    thread.join(30)
    assert asked == [True, False, True]
    assert store.replaces == 1


def test_a_resync_that_fails_ends_the_watch_and_leads_to_a_new_list(caplog: pytest.LogCaptureFixture) -> None:
    clock, store, source = FakeClock(), CountingStore(fails_at=1), FakeWatchSource[Event]()
    stop, errors = StopSignal(clock), list[Exception]()
    reflector = Reflector(
        source=source, store=store, clock=clock, resync_s=10, on_error=errors.append, chance=lambda: 0.0
    )
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    source.wait_for_watches(1)
    with caplog.at_level(logging.ERROR):
        clock.advance(10)
        eventually(lambda: "Resync of objects failed" in caplog.text)
        source.wait_for_watches(0)
    while store.replaces < 2:
        clock.advance(0.4)  # the pause
        threading.Event().wait(0.005)
    stop.set()
    thread.join(30)
    assert errors == []
