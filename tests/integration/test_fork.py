"""Forks: a child records as a producer of its own, sends nothing of its parent's, and flushes at its end."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.redis_transport import RedisTransport
from eventbus.model.event import Event
from eventbus.record import default as wiring
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings
from tests.builders import make_reference
from tests.integration.process_ends import tcp_server
from tests.support.harness import frozen, messages, own_server, read_incoming
from tests.thin import one
from tests.waiting import PATIENCE_S, eventually

POD = make_reference()

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")  # 3.12 says so, rightly


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        yield broadcaster


@pytest.fixture
def recorder(broadcaster: EventBroadcaster) -> EventRecorder:
    return broadcaster.new_recorder("c")


def say(recorder: EventRecorder, *texts: str) -> None:
    for text in texts:
        recorder.event(POD, "Normal", "Said", text)


def in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> None:
    """Run *work* in a fork that ends without any cleaning up; fail if it fails or hangs."""
    pid = fork()
    if pid == 0:
        _end_by_itself()
        try:
            assert work() is not False
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def _end_by_itself() -> None:
    """A child that hangs is ended by the kernel: Python's handlers, pytest-timeout's too, need a thread that runs."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(PATIENCE_S))
    # pytest's log file has a lock inside that no child can renew (python/cpython#50970); a program's own may have too.
    logging.disable(logging.CRITICAL)


def producers_of(events: list[Event]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in events:
        found.setdefault(event.metadata.uid.split(":")[0], []).append(event.message)
    return found


def test_a_child_is_another_producer_and_the_parent_goes_on_with_its_own(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster, recorder: EventRecorder
) -> None:
    say(recorder, "parent 1")
    assert broadcaster.flush(60)

    def child() -> bool:
        say(recorder, "child 1", "child 2")
        return broadcaster.flush(60)

    in_child(child)
    say(recorder, "parent 2")
    assert broadcaster.flush(60)
    events = read_incoming(embedded_url, settings)
    assert list(producers_of(events).values()) == [["parent 1", "parent 2"], ["child 1", "child 2"]]
    with make_client(embedded_url) as admin:
        states = [key.rpartition(b":")[2].decode() for key in admin.keys(f"{settings.prefix}:{{0}}:producer:*")]
    assert len(states) == 2  # a secret each
    assert not {*states} & {*producers_of(events)}
    assert events[-1].metadata.uid.endswith(":2")


def test_what_the_parent_had_buffered_is_sent_once_by_the_parent(short_path: Path, settings: Settings) -> None:
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        say(recorder, "parent 0")
        assert broadcaster.flush(60)
        go, told = os.pipe()
        with frozen(server.pid):
            say(recorder, *(f"parent {i}" for i in range(1, 1_000)))
            child = os.fork()
            if child == 0:
                _end_by_itself()
                os.read(go, 1)
                say(recorder, "child")
                os._exit(0 if broadcaster.shutdown(60) else 1)
        os.write(told, b"x")
        assert os.waitpid(child, 0)[1] == 0
        os.close(go)
        os.close(told)
        assert broadcaster.flush(60)
        said = producers_of(read_incoming(server.url or "", settings))
        assert sorted(said.values(), key=len) == [["child"], [f"parent {i}" for i in range(1_000)]]


def test_a_child_uses_no_socket_of_its_parents(broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
    """Sockets are told apart by their inodes; the child's flusher must have made one."""
    say(recorder, "parent")
    assert broadcaster.flush(60)
    before = _sockets()

    def child() -> None:
        say(recorder, "child")
        assert broadcaster.flush(60)
        transport = broadcaster._outbox._sender._transport
        assert isinstance(transport, RedisTransport)
        client: Any = transport._client
        (connection,) = client.connection_pool._available_connections
        assert os.readlink(f"/proc/self/fd/{connection._sock.fileno()}") not in before

    in_child(child)
    say(recorder, "parent")
    assert broadcaster.flush(60)  # its own socket is in order
    assert _sockets() == before


def _sockets() -> set[str]:
    if not sys.platform.startswith("linux"):
        pytest.skip("sockets are found by /proc")
    links = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return {link for link in links if link.startswith("socket:")}


# -- forks in C, of which Python is not told ------------------------------------------------------------------------

#: With the GIL held, as an extension module forks.
fork_in_c: Callable[[], int] = ctypes.PyDLL(None).fork


@contextmanager
def a_round_under_way(server: EmbeddedServer, *broadcasters: EventBroadcaster) -> Iterator[None]:
    """The flushers wait for the server, so that in a child `put` has nobody to wake."""
    for broadcaster in broadcasters:
        say(broadcaster.new_recorder("c"), "parent 0")
        assert broadcaster.flush(60)
    with frozen(server.pid):
        for broadcaster in broadcasters:
            say(broadcaster.new_recorder("c"), "parent 1")
        eventually(lambda: all(_is_sending(broadcaster) for broadcaster in broadcasters))
        yield


def _is_sending(broadcaster: EventBroadcaster) -> bool:
    outbox = broadcaster._outbox
    return not outbox._items and outbox._sender.pending == 1


def test_a_flush_in_a_child_forked_in_c_says_once_that_events_are_lost(short_path: Path, settings: Settings) -> None:
    with own_server(short_path) as server, EventBroadcaster(server.url, settings=settings) as broadcaster:

        def child() -> bool:
            recorder = broadcaster.new_recorder("c")
            say(recorder, *"12345")
            assert not broadcaster.flush(60)
            assert broadcaster.losses.counts == {"lost": 5}
            os.kill(server.pid or 0, signal.SIGCONT)
            say(recorder, "child")
            return broadcaster.flush(60)

        with a_round_under_way(server, broadcaster):
            in_child(child, fork_in_c)
        assert broadcaster.flush(60)
        assert sorted(messages(read_incoming(server.url or "", settings))) == ["child", "parent 0", "parent 1"]


def test_each_broadcaster_of_a_child_forked_in_c_counts_its_own_events_as_lost(
    short_path: Path, settings: Settings
) -> None:
    with (
        own_server(short_path) as server,
        EventBroadcaster(server.url, settings=settings) as one,
        EventBroadcaster(server.url, settings=settings) as two,
    ):

        def child() -> None:
            say(one.new_recorder("c"), *"12345")
            say(two.new_recorder("c"), *"123")
            assert not one.shutdown(60)
            assert not two.shutdown(60)
            assert (one.losses.counts, two.losses.counts) == ({"lost": 5}, {"lost": 3})

        with a_round_under_way(server, one, two):
            in_child(child, fork_in_c)


@pytest.mark.parametrize("forks", one([5, 50]))
def test_a_fork_in_the_middle_of_anything_leaves_the_child_able_to_record(
    embedded_url: str, settings: Settings, broadcaster: EventBroadcaster, recorder: EventRecorder, forks: int
) -> None:
    """Threads record, refuse, log and flush meanwhile, so that every lock is held at some fork."""
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append, scope="local")
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            say(recorder, "parent")
            recorder.event(None, "Normal", "R", "m")
            broadcaster.flush(0.001)

    def child() -> bool:
        recorder.event(None, "Normal", "R", "m")
        assert broadcaster.losses.counts == {"refused": 1}
        say(recorder, "child")
        return broadcaster.shutdown(60)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(forks):
            in_child(child)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert messages(read_incoming(embedded_url, settings)).count("child") == forks


def test_a_bus_wide_watcher_is_the_parents_alone(broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
    seen: list[Event] = []
    broadcaster.start_event_watcher(seen.append)

    def child() -> bool:
        say(recorder, "child")
        assert broadcaster.shutdown(60)
        return not seen

    in_child(child)
    say(recorder, "parent")
    eventually(lambda: messages(seen) == ["child", "parent"])


def test_a_recorder_that_was_shut_down_stays_so_in_a_child(embedded_url: str, settings: Settings) -> None:
    broadcaster = EventBroadcaster(embedded_url, settings=settings)
    recorder = broadcaster.new_recorder("c")
    broadcaster.shutdown()

    def child() -> None:
        say(recorder, "child")
        assert broadcaster.losses.counts == {"refused": 1}

    in_child(child)


def test_local_logging_goes_on_in_a_child(broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
    """A server that forks its workers after wiring: their events are logged like the parent's."""
    lines: list[str] = []
    broadcaster.start_logging(lambda text, *args: lines.append(text % args))
    broadcaster.start_logging(lambda text, *args: lines.append("stopped")).stop()

    def child() -> None:
        say(recorder, "child")
        broadcaster.shutdown(60)
        assert len(lines) == 1
        assert lines[0].endswith("reason: 'Said' child")

    in_child(child)
    assert lines == []


def test_a_fork_while_another_thread_wires_leaves_the_child_able_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def child() -> None:
        monkeypatch.setenv("EVENTBUS_REDIS_URL", "none")
        wiring.make_event_recorder("web")

    with wiring._lock:  # whoever holds it is not there in the child
        in_child(child)


UNTIL_SIGNALLED = """
import os, signal, time
from eventbus import EventBroadcaster
EventBroadcaster("none")
codes = set()
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that has lost its signal ends by this one
        while True:  # not in one wait: of a signal that comes the moment before it Python learns when it ends
            time.sleep(0.2)
    os.kill(pid, signal.SIGTERM)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert codes == {-signal.SIGTERM}, codes
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""


def test_a_signal_that_reaches_a_child_before_it_runs_is_not_lost() -> None:
    """A pool that is ended while it starts a worker sends one."""
    subprocess.run([sys.executable, "-c", UNTIL_SIGNALLED], timeout=50, check=True)


IMPORTING = """
import sys
from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.record import broadcaster as module
modules = set()
import_all = module._import_all
module._import_all = lambda: (import_all(), modules.update(sys.modules))
with EventBroadcaster(sys.argv[1], settings=Settings(prefix=sys.argv[2], flush_s=60)) as broadcaster:
    broadcaster.new_recorder("c").event(ObjectReference("Pod", "default", "web-0"), "Normal", "Said", "x")
    assert broadcaster.flush(60)
assert modules
assert not (late := set(sys.modules) - modules), late
"""


def test_nothing_is_imported_while_another_thread_may_fork(short_path: Path, prefix: str) -> None:
    """Over TCP and with a name to resolve: a child that is forked in the middle would wait for that import for ever."""
    with tcp_server(short_path) as server:
        command = [sys.executable, "-c", IMPORTING, f"redis://localhost:{server._config['port']}/0", prefix]
        subprocess.run(command, timeout=50, check=True)


FORKING = """
import contextlib, os, signal, sys, threading, time
from importlib.machinery import PathFinder
from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.record import process_hooks

locked = sys.argv[3] == "locked"
if not locked:
    process_hooks.no_fork = contextlib.nullcontext
importing, forked = threading.Event(), threading.Event()
os.register_at_fork(after_in_parent=forked.set)

class Slow:  # in the middle of a module: while one is looked for, Python itself keeps forks away
    def find_spec(self, name, path=None, target=None):
        if name != "encodings.idna" or importing.is_set():
            return None
        spec = PathFinder.find_spec(name, path)
        execute, spec.loader.exec_module = spec.loader.exec_module, lambda module: (wait(), execute(module))
        return spec

def wait():
    importing.set()
    while not forked.is_set() and not (locked and main_waits()):
        time.sleep(0.001)

def main_waits():
    return sys._current_frames()[threading.main_thread().ident].f_code is process_hooks._before_fork.__code__

sys.meta_path.insert(0, Slow())
broadcaster = EventBroadcaster(sys.argv[1], settings=Settings(prefix=sys.argv[2], flush_s=60))
recorder = broadcaster.new_recorder("c")
recorder.event(ObjectReference("Pod", "default", "web-0"), "Normal", "Said", "parent")
assert importing.wait(60)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(40 if locked else 4)  # a child whose flusher hangs ends by this one
    for n in range(500):
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Normal", "Said", f"child {n}")
    os._exit(0 if broadcaster.shutdown(60) else 1)
assert broadcaster.shutdown(60)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("locked", "code", "arrive"),
    [
        ("locked", 0, 501),
        pytest.param("control", -signal.SIGALRM, 1, marks=pytest.mark.volume),
    ],
)
def test_a_fork_while_the_first_event_imports_what_resolves_a_name_leaves_no_lock_to_its_child(
    short_path: Path, settings: Settings, locked: str, code: int, arrive: int
) -> None:
    """The import of `encodings.idna` stands still until the fork is done, or waits for it: the control has no lock."""
    with tcp_server(short_path) as server:
        url = f"redis://localhost:{server._config['port']}/0"
        command = [sys.executable, "-c", FORKING, url, settings.prefix, locked]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (ran.returncode, ran.stdout) == (0, f"{code}\n"), ran.stderr
        assert len(read_incoming(server.url or "", settings)) == arrive
