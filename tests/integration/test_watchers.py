"""Watchers of the whole bus: nameless ones with a place of their own, and named groups that share."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.keys import Keys
from eventbus.consume import consumer as consumer_module
from eventbus.consume import watchers as watcher_module
from eventbus.consume.group_runner import GroupRunner
from eventbus.errors import ConfigError
from eventbus.model.encoding.wire import pack_batch, pack_event, unpack_batch
from eventbus.model.event import Event
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from tests.builders import make_event, make_reference
from tests.support.both_ways import either_way, over_both
from tests.support.harness import (
    EXITS,
    UNUSUAL,
    kill_server,
    messages,
    own_server,
    read_incoming,
    settings_of,
    uids,
)
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def url(request: pytest.FixtureRequest, embedded_url: str, settings: Settings) -> Iterator[str]:
    """Over Redis; with `over_both` through an API worker, too."""
    with either_way(request, embedded_url, settings) as url:
        yield url


@pytest.fixture
def broadcaster(url: str, settings: Settings) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(url, settings=settings) as broadcaster:
        yield broadcaster


@pytest.fixture
def other(url: str, settings: Settings) -> Iterator[EventBroadcaster]:
    """Yield a broadcaster in place of another process."""
    with EventBroadcaster(url, settings=settings) as broadcaster:
        yield broadcaster


def say(broadcaster: EventBroadcaster, *texts: str, name: str = "web-0") -> None:
    recorder = broadcaster.new_recorder("c")
    for text in texts:
        recorder.event(make_reference(name=name), "Normal", "Said", text)


def texts(n: int, start: int = 0) -> list[str]:
    return [str(i) for i in range(start, start + n)]


# -- nameless ------------------------------------------------------------------------------------------------------


def test_a_watcher_sees_nothing_from_before_the_call_and_everything_after_in_order(
    any_server_url: str, settings: Settings
) -> None:
    with EventBroadcaster(any_server_url, settings=settings) as broadcaster:
        seen: list[Event] = []
        say(broadcaster, *texts(500))
        broadcaster.start_event_watcher(seen.append)
        say(broadcaster, *texts(500, 500))
        eventually(lambda: len(seen) == 500)
    assert messages(seen) == texts(500, 500)
    assert uids(seen) == uids(read_incoming(any_server_url, settings))[500:]


def test_sixty_four_partitions_are_watched_by_one_thread_and_each_object_keeps_its_order(
    embedded_url: str, prefix: str
) -> None:
    with EventBroadcaster(embedded_url, settings=settings_of(prefix, partitions=64)) as broadcaster:
        seen: list[Event] = []
        callers: set[threading.Thread] = set()

        def handle(event: Event) -> None:
            seen.append(event)
            callers.add(threading.current_thread())

        watcher = broadcaster.start_event_watcher(handle)
        for text in texts(20):
            for n in range(40):
                say(broadcaster, text, name=f"web-{n}")
        eventually(lambda: len(seen) == 800)
        for n in range(40):
            assert messages([event for event in seen if event.involved_object.name == f"web-{n}"]) == texts(20)
        assert [thread.name for thread in callers] == ["eventbus-watch"]
        watcher.stop()


def test_a_partition_that_is_gone_for_a_while_keeps_no_other_of_its_thread_waiting(
    embedded_url: str, prefix: str
) -> None:
    settings = settings_of(prefix, partitions=8)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        seen: list[Event] = []
        watcher = broadcaster.start_event_watcher(seen.append)
        broken, *others = (Keys(prefix, partition).incoming for partition in range(8))
        with make_client(embedded_url) as client:
            client.rename(broken, broken + b":aside")
            client.rpush(broken, "not yours")
            for n in range(40):
                say(broadcaster, str(n), name=f"web-{n}")
            eventually(lambda: len(seen) == sum(_events_in(client, key) for key in others) > 20)
            client.rename(broken + b":aside", broken)
            eventually(lambda: sorted(messages(seen), key=int) == texts(40))
        watcher.stop()


def _events_in(client: Any, stream: bytes) -> int:
    return sum(int(fields[b"n"]) for _, fields in client.xrange(stream))


@over_both
def test_since_begins_with_what_was_recorded_then(broadcaster: EventBroadcaster) -> None:
    say(broadcaster, "long ago")
    assert broadcaster.flush(60)
    time.sleep(0.02)
    then = datetime.now(UTC)
    time.sleep(0.02)
    say(broadcaster, "before the call")
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append, since=then)
    say(broadcaster, "after the call")
    eventually(lambda: len(seen) == 2)
    assert messages(seen) == ["before the call", "after the call"]


@over_both
def test_since_without_a_zone_is_an_error(broadcaster: EventBroadcaster) -> None:
    with pytest.raises(ConfigError, match="aware"):
        broadcaster.start_event_watcher(print, since=datetime(2024, 1, 1))


@over_both
def test_since_may_be_older_than_the_stream(broadcaster: EventBroadcaster) -> None:
    say(broadcaster, *texts(200))
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append, since=datetime.now(UTC) - timedelta(days=400))
    eventually(lambda: len(seen) == 200)
    assert messages(seen) == texts(200)


def test_a_nameless_watcher_leaves_nothing_in_redis(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster
) -> None:
    say(broadcaster, "x")
    assert broadcaster.flush(60)
    with make_client(embedded_url) as client:

        def state() -> dict[bytes, bytes]:
            return {key: client.dump(key) for key in client.keys(f"{settings.prefix}:*")}

        before = state()
        seen: list[Event] = []
        watcher = broadcaster.start_event_watcher(seen.append, since=datetime.now(UTC) - timedelta(hours=1))
        eventually(lambda: seen)
        assert state() == before
        watcher.stop()
        assert state() == before


@over_both
def test_a_stopped_watcher_ends_and_its_connection_too(embedded_url: str, broadcaster: EventBroadcaster) -> None:
    watcher: Any = broadcaster.start_event_watcher(print)
    watcher.stop(PATIENCE_S)
    watcher.stop(PATIENCE_S)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("eventbus-watch")]


def test_watchers_that_were_stopped_are_not_kept(broadcaster: EventBroadcaster) -> None:
    for _ in range(3):
        broadcaster.start_event_watcher(print).stop()
        broadcaster.start_event_watcher(print, group="audit").stop()
        broadcaster.start_event_watcher(print, scope="local").stop()
    last = broadcaster.start_event_watcher(print)
    assert broadcaster._watchers == [last]


@over_both
def test_a_broadcaster_with_a_watcher_is_kept_until_it_is_shut_down(url: str, settings: Settings) -> None:
    """A program need not keep it: the end of the process stops the watcher."""
    seen: list[Event] = []
    reference = weakref.ref(EventBroadcaster(url, settings=settings))
    watching = EventBroadcaster(url, settings=settings)
    watching.start_event_watcher(seen.append)
    kept = weakref.ref(watching)
    del watching
    gc.collect()
    assert reference() is None
    found = kept()
    assert found is not None
    found.shutdown()
    del found
    gc.collect()
    eventually(lambda: kept() is None)


@over_both
def test_a_watcher_may_stop_itself_in_its_handler(broadcaster: EventBroadcaster) -> None:
    seen: list[Event] = []

    def handle(event: Event) -> None:
        seen.append(event)
        watcher.stop()

    watcher = broadcaster.start_event_watcher(handle)
    say(broadcaster, *texts(100))
    eventually(lambda: seen)
    broadcaster.shutdown()
    assert messages(seen) == ["0"]


@over_both
@pytest.mark.parametrize("error", [RuntimeError, UNUSUAL[0]])
def test_an_event_whose_handler_raises_is_tried_three_times_logged_with_its_uid_and_skipped(
    broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    calls: list[Event] = []

    def handle(event: Event) -> None:
        calls.append(event)
        if event.message == "1":
            raise error

    watcher: Any = broadcaster.start_event_watcher(handle)
    say(broadcaster, *texts(3))
    eventually(lambda: len(calls) == 5)
    assert messages(calls) == ["0", "1", "1", "1", "2"]
    (logged,) = [record for record in caplog.records if "handler failed" in record.getMessage()]
    assert logged.getMessage() == f"handler failed 3 times for event {calls[1].metadata.uid}"
    assert logged.exc_info
    assert watcher.skipped == 1


@over_both
@pytest.mark.parametrize("error", EXITS)
def test_a_handler_that_exits_stops_its_watcher(
    broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    calls: list[Event] = []

    def handle(event: Event) -> None:
        calls.append(event)
        if event.message == "1":
            raise error

    watcher: Any = broadcaster.start_event_watcher(handle)
    say(broadcaster, *texts(3))
    eventually(lambda: watcher.ended)
    assert messages(calls) == ["0", "1"]
    assert f"handler raised {error()!r} for event {calls[1].metadata.uid}: its watcher stops" in caplog.text


def test_what_cannot_be_read_is_skipped_and_counted(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster
) -> None:
    seen: list[Event] = []
    watcher: Any = broadcaster.start_event_watcher(seen.append)
    incoming = Keys(settings.prefix, 0).incoming
    mixed = pack_batch("p", 1, [pack_event(make_event(message="good")), b"\xc1", pack_event(make_event(message="too"))])
    with make_client(embedded_url) as client:
        client.xadd(incoming, {"n": 2, "to": 2, "at": 0, "b": b"junk"})
        client.xadd(incoming, {"x": "y"})
        client.xadd(incoming, {"n": "\xff", "to": "-", "b": mixed})
        client.xadd(incoming, {"n": 1, "to": 6, "b": pack_batch("p", 1, [])})
    say(broadcaster, "after")
    eventually(lambda: len(seen) == 3)
    assert messages(seen) == ["good", "too", "after"]
    assert watcher.skipped == 4  # two of the junk, one for the entry without a number, one event


def test_what_was_trimmed_before_it_could_be_read_is_counted(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster
) -> None:
    seen: list[Event] = []
    go = threading.Event()

    def handle(event: Event) -> None:
        seen.append(event)
        go.wait(PATIENCE_S)

    watcher: Any = broadcaster.start_event_watcher(handle)
    say(broadcaster, "first")
    eventually(lambda: seen)
    for text in texts(50):
        say(broadcaster, text)
        assert broadcaster.flush(60)
    with make_client(embedded_url) as client:
        client.xtrim(Keys(settings.prefix, 0).incoming, maxlen=10, approximate=False)
    go.set()
    eventually(lambda: len(seen) == 11)
    assert messages(seen)[1:] == texts(10, 40)
    assert watcher.missed == 40


@over_both
def test_a_slow_watcher_holds_nobody_back(broadcaster: EventBroadcaster) -> None:
    go = threading.Event()
    broadcaster.start_event_watcher(lambda _event: go.wait(PATIENCE_S))
    quick: list[Event] = []
    broadcaster.start_event_watcher(quick.append)
    say(broadcaster, *texts(1_000))
    eventually(lambda: len(quick) == 1_000)
    go.set()


def test_a_watcher_goes_on_where_it_was_after_redis_was_away(short_path: Path, settings: Settings) -> None:
    with own_server(short_path, appendfsync="always") as server:
        with EventBroadcaster(server.url, settings=settings) as broadcaster:
            seen: list[Event] = []
            broadcaster.start_event_watcher(seen.append)
            say(broadcaster, *texts(10))
            eventually(lambda: len(seen) == 10)
            kill_server(server)
            say(broadcaster, *texts(10, 10))
            server.start()
            say(broadcaster, *texts(10, 20))
            eventually(lambda: len(seen) >= 30)
        assert messages(seen) == texts(30)


@pytest.mark.parametrize("destroy", ["the stream", "everything"])
def test_a_watcher_lives_on_when_its_stream_is_destroyed(short_path: Path, settings: Settings, destroy: str) -> None:
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        seen: list[Event] = []
        broadcaster.start_event_watcher(seen.append)
        say(broadcaster, "before")
        eventually(lambda: seen)
        with make_client(server.url or "") as client:
            client.flushall() if destroy == "everything" else client.delete(Keys(settings.prefix, 0).incoming)
        say(broadcaster, "after")
        eventually(lambda: "after" in messages(seen))


def test_a_watcher_and_its_writer_never_miss_each_other_at_the_start(embedded_url: str, prefix: str) -> None:
    """Another thread records all the while; what the watcher sees is an unbroken run to the end."""
    with EventBroadcaster(embedded_url, settings=settings_of(prefix)) as broadcaster:
        done = threading.Event()
        said: list[str] = []

        def go_on() -> None:
            while not done.is_set():
                say(broadcaster, str(len(said)))
                said.append("")
                time.sleep(0.0005)

        thread = threading.Thread(target=go_on)
        thread.start()
        runs: list[tuple[int, list[Event], int]] = []
        try:
            for _ in range(5):
                time.sleep(0.02)
                seen: list[Event] = []
                before = len(said)
                broadcaster.start_event_watcher(seen.append)
                runs.append((before, seen, len(said)))
        finally:
            done.set()
            thread.join()
        say(broadcaster, "end")
        for before, seen, after in runs:
            eventually(lambda seen=seen: seen and seen[-1].message == "end")  # type: ignore[misc]
            first = int(seen[0].message) if len(seen) > 1 else len(said)
            assert messages(seen) == [*texts(len(said) - first, first), "end"]
            assert before <= first <= after + 1


# -- named groups --------------------------------------------------------------------------------------------------


def test_a_new_group_may_begin_in_the_past(broadcaster: EventBroadcaster) -> None:
    seen: list[Event] = []
    say(broadcaster, "before")
    broadcaster.start_event_watcher(seen.append, group="audit", since=datetime.now(UTC) - timedelta(hours=1))
    say(broadcaster, "after")
    eventually(lambda: len(seen) == 2)
    assert messages(seen) == ["before", "after"]


def test_a_group_goes_on_where_it_was_left(broadcaster: EventBroadcaster, other: EventBroadcaster) -> None:
    seen: list[Event] = []
    watcher = broadcaster.start_event_watcher(seen.append, group="audit")
    say(broadcaster, "1")
    eventually(lambda: seen)
    watcher.stop()
    say(broadcaster, "2")
    assert broadcaster.flush(60)
    other.start_event_watcher(seen.append, group="audit")
    say(broadcaster, "3")
    eventually(lambda: len(seen) == 3)
    assert messages(seen) == ["1", "2", "3"]


@pytest.mark.parametrize("error", [RuntimeError, *UNUSUAL])
def test_an_event_whose_handler_raises_is_buried_alone_and_its_neighbours_are_handled(
    embedded_url: str,
    settings: Settings,
    broadcaster: EventBroadcaster,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
) -> None:
    calls: list[Event] = []

    def handle(event: Event) -> None:
        calls.append(event)
        if event.message == "1":
            raise error

    watcher: Any = broadcaster.start_event_watcher(handle, group="audit")
    say(broadcaster, *texts(3))
    eventually(lambda: len(calls) == 5)
    assert messages(calls) == ["0", "1", "1", "1", "2"]
    assert f"handler failed 3 times for event {calls[1].metadata.uid}" in caplog.text
    keys = Keys(settings.prefix, 0)
    with make_client(embedded_url) as client:
        eventually(lambda: client.xpending(keys.incoming, "audit")["pending"] == 0)
        ((_, fields),) = client.xrange(keys.dead)
    assert (fields[b"group"], fields[b"cause"]) == (b"audit", b"handler-failed")
    assert unpack_batch(fields[b"b"]).uid(0) == calls[1].metadata.uid
    assert watcher.buried == 1


@pytest.mark.parametrize(("error", "partitions"), [(EXITS[0], 1), (EXITS[1], 3)])
def test_a_handler_that_exits_stops_its_worker_and_the_batch_stays_with_the_group(
    embedded_url: str, settings: Settings, error: type[BaseException], partitions: int
) -> None:
    calls: list[str] = []

    def handle(event: Event) -> None:
        calls.append(event.message)
        raise error

    settings = msgspec.structs.replace(settings, partitions=partitions)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        watcher: Any = broadcaster.start_event_watcher(handle, group="audit")
        say(broadcaster, "1")
        eventually(lambda: watcher.ended)
    keys = [Keys(settings.prefix, partition) for partition in range(partitions)]
    with make_client(embedded_url) as client:
        assert sum(client.xpending(each.incoming, "audit")["pending"] for each in keys) == 1
        assert not any(client.xlen(each.dead) for each in keys)
    assert (calls, watcher.buried) == (["1"], 0)


def test_an_entry_that_cannot_be_read_is_buried_whole(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster
) -> None:
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append, group="audit")
    keys = Keys(settings.prefix, 0)
    with make_client(embedded_url) as client:
        client.xadd(keys.incoming, {"n": 1, "to": 1, "at": 0, "b": b"junk"})
        say(broadcaster, "after")
        eventually(lambda: seen)
        eventually(lambda: client.xpending(keys.incoming, "audit")["pending"] == 0)
        ((_, fields),) = client.xrange(keys.dead)
    assert (fields[b"cause"], fields[b"b"]) == (b"unreadable", b"junk")


@pytest.fixture
def _dead_after_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    make: Any = GroupRunner.__init__
    monkeypatch.setitem(make.__kwdefaults__, "take_over_s", 0.5)
    monkeypatch.setattr(consumer_module, "CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(consumer_module, "BEAT_EVERY_S", 0.1)
    monkeypatch.setattr(watcher_module, "BEAT_EVERY_S", 0.1)


@pytest.mark.usefixtures("_dead_after_half_a_second")
def test_what_a_stopped_worker_had_read_but_not_handled_goes_to_another_once(
    broadcaster: EventBroadcaster, other: EventBroadcaster
) -> None:
    """Stopping waits for the batch that is being handled, not for the hundreds of events read with it."""
    seen: list[str] = []
    read_on, go_on = threading.Event(), threading.Event()
    gates = {1: read_on, 2: go_on}

    def slow(event: Event) -> None:
        seen.append(event.message)
        if gate := gates.get(len(seen)):
            gate.wait(PATIENCE_S)

    watcher: Any = broadcaster.start_event_watcher(slow, group="audit")
    say(broadcaster, "0")
    eventually(lambda: seen)
    say(broadcaster, *texts(999, 1))
    assert broadcaster.flush(60)
    read_on.set()
    eventually(lambda: len(seen) == 2)
    stopping = threading.Thread(target=watcher.stop, args=(PATIENCE_S,))
    stopping.start()
    eventually(watcher._stop.is_set)
    go_on.set()
    stopping.join(PATIENCE_S)
    assert len(seen) <= 1 + 64
    other.start_event_watcher(lambda event: seen.append(event.message), group="audit")
    eventually(lambda: len(seen) >= 1_000)
    assert sorted(map(int, seen)) == list(range(1_000))
