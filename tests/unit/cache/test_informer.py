"""Informers: client-go's shared_informer_test and processor_listener_test, case by case."""

from __future__ import annotations

import itertools
import random
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from eventbus.cache.informer import SharedInformer
from eventbus.errors import BusUnavailable, ConfigError, EventBusError
from eventbus.model.event import Event
from eventbus.model.list_watch import WatchEvent
from eventbus.testing.clock import FakeClock
from eventbus.testing.watch_source import FakeWatchSource
from tests.unit.cache.things import (
    Notes,
    ScriptedSource,
    SleeplessStop,
    deleted,
    listed,
    make_thing,
    modified,
    watch_of,
)
from tests.waiting import PATIENCE_S, eventually


class Bench:
    """A source, and informers on it that are stopped in the end."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.source: FakeWatchSource[Event] = FakeWatchSource()
        self.informers: list[SharedInformer[Event]] = []
        self.notes = Notes()

    def informer(self, **options: object) -> SharedInformer[Event]:
        informer = SharedInformer(self.source, **({"clock": self.clock, "resource": "things"} | options))  # type: ignore[arg-type]
        self.informers.append(informer)
        return informer

    def add(self, *names: str, value: str = "1") -> None:
        for name in names:
            self.source.add(make_thing(name, value))

    def reconnect(self) -> None:
        """Let the reflector past its pause until there is a watch again."""
        n = len(self.source.watches)
        eventually(lambda: self.clock.advance(1) or len(self.source.watches) > n)  # type: ignore[func-returns-value]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for informer in bench.informers:
        informer.stop(30)


def watch_with(notes: Notes, informer: SharedInformer[Event], **options: object) -> object:
    return informer.add_event_handler(notes.on_add, notes.on_update, notes.on_delete, **options)  # type: ignore[arg-type]


def started(informer: SharedInformer[Event]) -> SharedInformer[Event]:
    informer.start()
    assert informer.wait_for_cache_sync(PATIENCE_S)
    return informer


def test_a_handler_is_told_of_what_is_there_and_of_what_happens(bench: Bench) -> None:
    bench.add("a", "b")
    informer = bench.informer()
    registration = informer.add_event_handler(bench.notes.on_add, bench.notes.on_update, bench.notes.on_delete)
    started(informer)
    assert registration.wait_for_sync(10)
    assert sorted(bench.notes.initial) == ["a", "b"]
    bench.source.modify(make_thing("a", "2"))
    bench.source.delete(make_thing("b"))
    bench.add("c")
    bench.notes.wait_for("add a=1", "add b=1", "update a=1 a=2", "delete b=1", "add c=1")
    assert sorted(bench.notes.initial) == ["a", "b"]
    assert informer.last_sync_resource_version == bench.source.version


def test_indexes_from_before_and_after_the_start_are_usable_at_once(bench: Bench) -> None:
    informer = bench.informer()
    informer.indexer.add_indexers({"value": lambda found: [found.message]})
    bench.add("a", "b", value="x")
    started(informer)
    informer.indexer.add_indexers({"initial": lambda found: [found.metadata.name[0]]})
    bench.add("c", value="x")
    eventually(lambda: len(informer.indexer) == 3)
    assert sorted(informer.indexer.index_keys("value", "x")) == ["a", "b", "c"]
    assert informer.indexer.index_keys("initial", "c") == ["c"]


def test_each_handler_is_shown_everything_again_when_it_is_due(bench: Bench) -> None:
    bench.add("a", "b")
    informer = bench.informer(resync_s=1)
    handlers = {0: Notes(), 2: Notes(), 3: Notes()}
    for resync_s, notes in handlers.items():
        watch_with(notes, informer, resync_s=resync_s)
    started(informer)
    first = ["add a=1", "add b=1"]
    again = ["update a=1 a=1", "update b=1 b=1"]
    for notes in handlers.values():
        notes.wait_for(*first)
    bench.clock.advance(2)
    handlers[2].wait_for(*first, *again)
    bench.clock.advance(1)
    handlers[3].wait_for(*first, *again)
    handlers[2].wait_for(*first, *again)
    handlers[0].wait_for(*first)


def test_before_the_start_the_informer_looks_as_often_as_the_most_eager_handler(bench: Bench) -> None:
    informer = bench.informer(resync_s=12 * 3600)
    registrations = [informer.add_event_handler(resync_s=resync_s) for resync_s in (0, 60, 55, 5)]
    assert [registration.resync_s for registration in registrations] == [0, 60, 55, 5]
    started(informer)
    late = informer.add_event_handler(resync_s=2)
    assert late.resync_s == 5, "after the start it looks no more often"


def test_a_handler_resyncs_as_its_informer_if_it_asks_for_nothing(bench: Bench) -> None:
    assert bench.informer(resync_s=30).add_event_handler().resync_s == 30
    assert bench.informer().add_event_handler().resync_s == 0


def test_a_resync_is_at_least_a_second_away(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert bench.informer().add_event_handler(resync_s=0.1).resync_s == 1
    assert "too often" in caplog.text


def test_a_late_handler_gets_no_resync_from_an_informer_that_runs_without(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    informer = started(bench.informer())
    assert informer.add_event_handler(resync_s=5).resync_s == 0
    assert "runs without resync" in caplog.text


def test_after_a_disruption_a_handler_without_resync_learns_only_what_has_changed(bench: Bench) -> None:
    bench.add("same", "changed", "gone")
    informer = bench.informer(resync_s=1000)
    plain, resyncing = Notes(), Notes()
    watch_with(plain, informer, resync_s=0)
    watch_with(resyncing, informer)
    started(informer)
    first = ["add same=1", "add changed=1", "add gone=1"]
    plain.wait_for(*first)
    bench.source.wait_for_watches(1)
    bench.source.hold_watches()
    bench.source.modify(make_thing("changed", "2"))
    bench.source.delete(make_thing("gone"))
    bench.add("new")
    bench.source.expire()
    bench.source.release_watches()
    bench.reconnect()
    news = ["update changed=1 changed=2", "delete gone=1 unseen", "add new=1"]
    plain.wait_for(*first, *news)
    resyncing.wait_for(*first, *news, "update same=1 same=1")


def test_the_watch_error_handler_is_told_why_a_list_failed(bench: Bench) -> None:
    errors: list[Exception] = []
    bench.source.fail_next_list(BusUnavailable("no list today"))
    bench.informer(on_error=errors.append).start()
    eventually(lambda: errors)
    assert str(errors[0]) == "no list today"


def test_handlers_and_the_cache_see_transformed_objects(bench: Bench) -> None:
    def shout(found: Event) -> Event:
        return msgspec.structs.replace(found, message=found.message.upper())

    bench.add("a", value="x")
    informer = bench.informer(transform=shout)
    watch_with(bench.notes, informer)
    started(informer)
    bench.add("b", value="y")
    bench.notes.wait_for("add a=X", "add b=Y")
    assert {found.message for found in informer.lister().list()} == {"X", "Y"}


def test_handlers_are_removed_in_any_order_each_once_and_strangers_not_at_all(bench: Bench) -> None:
    informer, other = bench.informer(), bench.informer()
    handlers = [Notes(), Notes(), Notes()]
    registrations = [informer.add_event_handler(notes.on_add) for notes in handlers]
    stranger = other.add_event_handler(bench.notes.on_add)
    informer.remove_event_handler(registrations[1])
    informer.remove_event_handler(registrations[1])
    informer.remove_event_handler(stranger)
    bench.add("a")
    started(informer)
    started(other)
    for notes in (handlers[0], handlers[2], bench.notes):
        notes.wait_for("add a=1")
    assert handlers[1].notes == []


def test_one_handler_added_twice_is_told_twice_until_one_is_removed(bench: Bench) -> None:
    informer = bench.informer()
    first = informer.add_event_handler(bench.notes.on_add)
    informer.add_event_handler(bench.notes.on_add)
    bench.add("a")
    started(informer)
    bench.notes.wait_for("add a=1", "add a=1")
    informer.remove_event_handler(first)
    bench.add("b")
    bench.notes.wait_for("add a=1", "add a=1", "add b=1")


@pytest.mark.parametrize("name", ["on_add", "on_update", "on_delete", "filter"])
def test_a_handler_that_a_thread_cannot_call_is_refused(bench: Bench, name: str) -> None:
    informer = bench.informer()

    async def never_awaited(*_: object) -> None: ...

    given: tuple[tuple[Any, str], ...] = (
        (never_awaited, f"{name} is `async def`"),
        (5, f"{name} must be callable; a int is not"),
    )
    for function, said in given:
        with pytest.raises(ConfigError, match=said):
            informer.add_event_handler(**{name: function})


def test_a_removed_handler_is_told_nothing_more(bench: Bench) -> None:
    informer = started(bench.informer())
    other = Notes()
    registration = informer.add_event_handler(bench.notes.on_add)
    watch_with(other, informer)
    bench.add("a")
    bench.notes.wait_for("add a=1")
    informer.remove_event_handler(registration)
    bench.add("b")
    other.wait_for("add a=1", "add b=1")
    assert bench.notes.notes == ["add a=1"]


def test_a_late_handler_gets_what_is_there_as_initial_and_is_synced_when_it_has_handled_it(bench: Bench) -> None:
    bench.add("a", "b")
    informer = started(bench.informer())
    may_go_on = threading.Event()

    def on_add(found: Event, initial: bool) -> None:
        may_go_on.wait(30)
        bench.notes.on_add(found, initial)

    registration = informer.add_event_handler(on_add)
    assert not registration.has_synced
    assert not registration.wait_for_sync(0.01)
    may_go_on.set()
    assert registration.wait_for_sync(10)
    assert sorted(bench.notes.initial) == ["a", "b"]
    bench.add("c")
    bench.notes.wait_for("add a=1", "add b=1", "add c=1")
    assert sorted(bench.notes.initial) == ["a", "b"]


def test_a_slow_handler_delays_no_other(bench: Bench) -> None:
    may_go_on = threading.Event()
    informer = bench.informer()
    slow = informer.add_event_handler(lambda found, initial: may_go_on.wait(30))
    watch_with(bench.notes, informer)
    started(informer)
    names = [f"n{i}" for i in range(50)]
    bench.add(*names)
    bench.notes.wait_for(*(f"add {name}=1" for name in names))
    eventually(lambda: slow.pending == 49)  # its thread has taken the first
    may_go_on.set()
    eventually(lambda: slow.pending == 0)


def test_a_handler_that_cannot_follow_sees_fewer_steps_but_every_addition_and_deletion(bench: Bench) -> None:
    may_go_on = threading.Event()
    informer = bench.informer()

    def on_add(found: Event, initial: bool) -> None:
        may_go_on.wait(30)
        bench.notes.on_add(found, initial)

    registration = informer.add_event_handler(on_add, bench.notes.on_update, bench.notes.on_delete)
    started(informer)
    bench.add("a", value="0")
    for i in range(1, 3001):
        bench.source.modify(make_thing("a", str(i)))
    bench.source.delete(make_thing("a"))
    bench.add("a", value="again")
    eventually(lambda: informer.last_sync_resource_version == bench.source.version)
    eventually(lambda: informer.lister().get("a").message == "again")
    assert registration.pending < 1_030
    may_go_on.set()
    eventually(lambda: bench.notes.notes[-1:] == ["add a=again"])
    steps = bench.notes.notes
    assert (steps[0], steps[-2]) == ("add a=0", "delete a=3000")
    ends = [step.split() for step in steps[1:-2]]
    assert ends[-1][2] == "a=3000"
    assert all(before[2] == after[1] for before, after in itertools.pairwise(ends)), "each step begins where one ended"
    assert registration.folded == 3000 - len(ends) > 1_900


def test_a_handler_that_raises_loses_one_notification_and_leaves_a_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def on_add(found: Event, initial: bool) -> None:
        bench.notes.on_add(found, initial)
        if found.metadata.name == "bad":
            raise ValueError("bad thing")
        if found.metadata.name == "worse":
            raise CancelledError

    bench.add("bad", "good", "worse")
    informer = bench.informer()
    registration = informer.add_event_handler(on_add)
    started(informer)
    assert registration.wait_for_sync(10), "it has had its chance at each"
    bench.add("later")
    bench.notes.wait_for("add bad=1", "add good=1", "add worse=1", "add later=1")
    assert registration.failed == 2
    lines = [record.getMessage() for record in caplog.records]
    assert [line.startswith("A handler failed (eventbus-handler-things-1)") for line in lines] == [True, True]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_ends_its_thread_gets_no_more_and_says_so_while_others_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture, end: type[BaseException]
) -> None:
    def on_add(_obj: Event, _initial: bool) -> None:
        raise end

    bench.add("a", "b")
    informer = bench.informer()
    registration = informer.add_event_handler(on_add)
    informer.add_event_handler(bench.notes.on_add)
    started(informer)
    bench.add("later")
    bench.notes.wait_for("add a=1", "add b=1", "add later=1")
    assert not registration.wait_for_sync(10), "it has not got the whole list"
    eventually(lambda: not registration.is_running)
    assert (registration.failed, registration.pending) == (1, 0)
    assert [f"raised {end()!r}" in message for message in caplog.messages] == [True]


def test_a_filter_that_raises_loses_one_notification(bench: Bench) -> None:
    def only_good(found: Event) -> bool:
        if found.metadata.name == "bad":
            raise ValueError("cannot say")
        return True

    informer = bench.informer()
    registration = informer.add_event_handler(bench.notes.on_add, filter=only_good)
    started(informer)
    bench.add("bad", "good")
    bench.notes.wait_for("add good=1")
    assert registration.failed == 1


def test_removing_a_handler_that_is_at_work_does_not_wait_for_it(bench: Bench) -> None:
    at_work, may_go_on, done = threading.Event(), threading.Event(), threading.Event()

    def on_add(found: Event, initial: bool) -> None:
        at_work.set()
        may_go_on.wait(30)
        done.set()

    informer = bench.informer()
    registration = informer.add_event_handler(on_add)
    started(informer)
    bench.add("a")
    assert at_work.wait(30)
    informer.remove_event_handler(registration)
    assert not done.is_set()
    assert not informer.stop(0.01), "its thread lives"
    may_go_on.set()
    assert informer.stop(30)
    assert done.is_set()


def test_shutting_a_handler_down_waits_until_it_has_finished(bench: Bench) -> None:
    at_work, may_go_on, done = threading.Event(), threading.Event(), threading.Event()

    def on_add(found: Event, initial: bool) -> None:
        at_work.set()
        may_go_on.wait(30)
        done.set()

    informer = bench.informer()
    registration = informer.add_event_handler(on_add)
    started(informer)
    bench.add("a")
    assert at_work.wait(30)
    assert not informer.shut_down_event_handler(registration, 0.01)
    may_go_on.set()
    assert informer.shut_down_event_handler(registration, 10)
    assert done.is_set()


def test_shutting_down_a_handler_that_never_ran_returns_at_once(bench: Bench) -> None:
    informer = bench.informer()
    assert informer.shut_down_event_handler(informer.add_event_handler(bench.notes.on_add))
    started(informer)
    assert informer.shut_down_event_handler(informer.add_event_handler(bench.notes.on_add))


def test_it_is_started_once_and_never_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    informer = bench.informer()
    assert (informer.has_started, informer.is_stopped) == (False, False)
    informer.start()
    assert (informer.has_started, informer.is_stopped) == (True, False)
    informer.start()
    bench.source.wait_for_watches(1)
    informer.stop(30)
    assert (informer.has_started, informer.is_stopped) == (True, True)
    informer.start()
    assert [record.getMessage() for record in caplog.records] == ["The informer of things was started already"] * 2
    assert len(bench.source.lists) == 1


def test_a_stopped_informer_takes_no_handler_but_gives_one_back(bench: Bench) -> None:
    informer = bench.informer()
    registration = informer.add_event_handler(bench.notes.on_add)
    started(informer)
    informer.stop(30)
    with pytest.raises(EventBusError, match="was not added to shared informer because it has stopped already"):
        informer.add_event_handler(bench.notes.on_add)
    informer.remove_event_handler(registration)


def test_stopping_what_never_started_ends_it(bench: Bench) -> None:
    before = set(threading.enumerate())
    informer = bench.informer()
    informer.add_event_handler(bench.notes.on_add)
    assert set(threading.enumerate()) == before, "a handler's thread starts with the informer"
    assert informer.stop(30)
    assert informer.is_stopped
    assert not informer.wait_for_cache_sync(10), "nobody waits for what never comes"


def test_stopping_joins_every_thread_and_ends_the_watch(bench: Bench) -> None:
    before = set(threading.enumerate())
    informer = bench.informer(resync_s=5)
    for _ in range(5):
        informer.add_event_handler(bench.notes.on_add)
    started(informer)
    bench.source.wait_for_watches(1)
    mine = set(threading.enumerate()) - before
    assert sorted(thread.name for thread in mine) == [
        *(f"eventbus-handler-things-{n}" for n in range(1, 6)),
        "eventbus-informer-things",
        "eventbus-reflector-things",
        "eventbus-resync-things",
    ]
    assert informer.stop(30)
    assert set(threading.enumerate()) == before
    bench.source.wait_for_watches(0)
    assert informer.stop(30), "again: nothing to do"


def test_stopping_comes_through_a_source_that_is_away(bench: Bench) -> None:
    bench.source.fail_next_list(*[BusUnavailable("away")] * 100)
    informer = bench.informer(on_error=lambda error: None)
    informer.start()
    eventually(lambda: bench.source.lists)
    assert informer.stop(30)
    assert not informer.has_synced


def test_a_handler_may_stop_its_informer(bench: Bench) -> None:
    informer = bench.informer()
    stopped: list[bool] = []
    informer.add_event_handler(lambda found, initial: stopped.append(informer.stop(30)))
    bench.add("a")
    started(informer)
    eventually(lambda: stopped == [True])


def test_what_waits_for_a_slow_handler_is_forgotten_at_the_stop(bench: Bench) -> None:
    at_work, may_go_on = threading.Event(), threading.Event()

    def on_add(found: Event, initial: bool) -> None:
        bench.notes.on_add(found, initial)
        at_work.set()
        may_go_on.wait(30)

    bench.add("a", "b")
    informer = bench.informer()
    registration = informer.add_event_handler(on_add)
    started(informer)
    assert at_work.wait(30)
    assert not informer.stop(0.01)
    may_go_on.set()
    assert informer.stop(30)
    assert len(bench.notes.notes) == 1
    assert not registration.wait_for_sync(10), "nobody waits for what never comes"


def test_handlers_may_be_added_while_it_starts(bench: Bench) -> None:
    bench.add("a")
    for _ in range(20):
        informer, notes = bench.informer(), Notes()
        threads = [threading.Thread(target=informer.start), threading.Thread(target=watch_with, args=(notes, informer))]
        for thread in threads:
            thread.start()
        notes.wait_for("add a=1")
        for thread in threads:
            thread.join(30)
        informer.stop(30)


def test_handlers_come_and_go_during_changes_and_the_stop_without_harm(bench: Bench) -> None:
    informer = started(bench.informer())
    done = threading.Event()
    problems: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except EventBusError:
                pass
            except BaseException as error:
                problems.append(error)

        return threading.Thread(target=run)

    def come_and_go() -> None:
        registration = informer.add_event_handler(Notes().on_add)
        if random.random() < 0.5:
            informer.remove_event_handler(registration)
        else:
            informer.shut_down_event_handler(registration, 10)

    threads = [guarded(come_and_go) for _ in range(10)]
    threads.append(guarded(lambda: bench.add(f"n{random.randrange(20)}", value=str(random.random()))))
    for thread in threads:
        thread.start()
    threading.Event().wait(0.5)
    assert informer.stop(30)
    done.set()
    for thread in threads:
        thread.join(30)
    assert problems == []


def test_a_change_that_the_cache_is_ahead_of_is_dropped_and_counted() -> None:
    clock = FakeClock()
    stale = watch_of(
        modified(make_thing("a", "4", version="4")),
        modified(make_thing("a", "7", version="7")),
        deleted(make_thing("a", "5", version="5")),
        modified(make_thing("a", "8", version="8")),
        deleted(make_thing("never", version="9")),
    )
    source = ScriptedSource(SleeplessStop(clock), [listed("3", make_thing("a", "7", version="7"))], [stale])
    informer, notes = SharedInformer(source, clock=clock, on_error=lambda error: None), Notes()
    watch_with(notes, informer)
    informer.start()
    notes.wait_for("add a=7", "update a=7 a=8")
    eventually(lambda: len(source.watched) > 1)
    assert informer.stop(30)
    assert informer.stale == 3


def test_an_addition_of_what_is_held_is_an_update_and_an_update_of_what_is_not_an_addition() -> None:
    clock = FakeClock()
    watch = watch_of(
        WatchEvent(watch_type := modified(make_thing("x")).type, make_thing("new", "1", version="5")),
        WatchEvent(watch_type, make_thing("old", "2", version="6")),
    )
    source = ScriptedSource(SleeplessStop(clock), [listed("3", make_thing("old", "1", version="3"))], [watch])
    informer, notes = SharedInformer(source, clock=clock, on_error=lambda error: None), Notes()
    watch_with(notes, informer)
    informer.start()
    notes.wait_for("add old=1", "add new=1", "update old=1 old=2")
    assert notes.initial == ["old"]
    assert informer.stop(30)
