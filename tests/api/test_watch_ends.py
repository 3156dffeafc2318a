"""How a watch over HTTP ends, and that it leaves nothing in memory."""

from __future__ import annotations

import gc
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eventbus.api.kube.handler import MOST_OPENING
from eventbus.api.watch.watcher import Watcher, begin_watch
from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.support.api_in_process import serving
from tests.support.api_replay import EVENTS
from tests.support.metrics import value
from tests.waiting import PATIENCE_S, eventually

WATCH = f"GET {EVENTS}?watch=1&allowWatchBookmarks=true{{more}} HTTP/{{version}}\r\nHost: localhost\r\n\r\n"
LONG_RUNNING = "eventbus_apiserver_longrunning_requests"


class Server:
    """A server on a unix socket, asked over plain sockets."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(str(self._path))
        return made

    def watch(self, more: str = "", version: str = "1.1") -> socket.socket:
        """A watch whose head has come."""
        made = self.connect()
        made.sendall(WATCH.format(more=more, version=version).encode())
        assert read_head(made).startswith(f"HTTP/{version} 200 ")
        return made

    def post(self, name: str, message: str = "") -> None:
        about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
        body = json.dumps({"metadata": {"name": name}, "involvedObject": about, "reason": "R", "message": message})
        head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        with self.connect() as made:
            made.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            assert b" 201 " in read_all(made)

    def watches(self) -> int:
        """How many it says that there are."""
        with self.connect() as made:
            made.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return int(value(read_all(made).partition(b"\r\n\r\n")[2].decode(), LONG_RUNNING, verb="WATCH"))


@pytest.fixture
def server(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[Server]:
    with serving(open_bus(embedded_url, Settings(prefix=prefix)), socket=tmp_path / "s"):
        yield Server(tmp_path / "s")


def read_head(made: socket.socket) -> str:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = made.recv(1)
        assert data, head
        head += data
    return head.decode()


def read_all(made: socket.socket) -> bytes:
    """Until its end."""
    return b"".join(iter(lambda: made.recv(65_536), b""))


def alive(kind: type) -> int:
    """Objects of a class, without those that only a collection would find."""
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


@pytest.mark.parametrize(("version", "end"), [("1.1", b"\r\n0\r\n\r\n"), ("1.0", b"}\n")])
def test_its_time_is_over(server: Server, version: str, end: bytes) -> None:
    server.post("a")
    with server.watch("&timeoutSeconds=1", version) as made:
        told = read_all(made)  # and then the connection is closed
    assert [told.count(word) for word in (b"ADDED", b"BOOKMARK")] == [1, 1]
    assert told.endswith(end)
    eventually(lambda: server.watches() == 0)


def test_its_head_says_that_the_connection_will_be_closed(server: Server) -> None:
    with server.connect() as made:
        made.sendall(WATCH.format(more="", version="1.1").encode())
        head = read_head(made).lower()
    assert "\r\nconnection: close\r\n" in head
    assert "\r\ntransfer-encoding: chunked\r\n" in head


@pytest.mark.parametrize("leave", [socket.socket.close, lambda made: made.shutdown(socket.SHUT_WR)])
def test_its_client_leaves(server: Server, leave: Callable[[socket.socket], None]) -> None:
    with server.watch() as made:
        assert server.watches() == 1
        leave(made)
        eventually(lambda: server.watches() == 0)
        if made.fileno() >= 0:
            assert read_all(made) == b""


def test_clients_that_do_not_wait_for_it_keep_no_place(server: Server) -> None:
    for _ in range(40):
        with server.connect() as made:
            made.sendall(WATCH.format(more="", version="1.1").encode())
    eventually(lambda: server.watches() == 0)
    eventually(lambda: alive(Watcher) == 0)


def test_what_its_client_sends_besides_is_not_answered(server: Server) -> None:
    with server.watch("&timeoutSeconds=2") as made:
        for _ in range(3):
            made.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server.post("a")
        told = read_all(made)
    assert told.count(b"HTTP/1.1") == 0
    assert told.count(b"ADDED") == 1
    assert told.endswith(b"\r\n0\r\n\r\n")


def test_an_error_of_ours_cuts_it_off(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Watcher, "run", run)
    with caplog.at_level(logging.ERROR, "eventbus"), server.watch() as made:
        assert read_all(made) == b""  # without the last chunk: its client sees that this was no end
    assert "broken" in caplog.text
    eventually(lambda: server.watches() == 0)


def test_many_that_come_together_are_begun_a_few_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    may, opening = threading.Event(), []
    open_ = Watcher.open

    async def counted(self: Watcher, begin: Any) -> None:
        opening.append(self)
        await open_(self, begin)

    monkeypatch.setattr(Watcher, "open", counted)
    hold_back(monkeypatch, may)
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(MOST_OPENING + 20)]
        for made in connections:
            made.sendall(WATCH.format(more="", version="1.1").encode())
        eventually(lambda: server.watches() == MOST_OPENING + 20)
        eventually(lambda: len(opening) >= MOST_OPENING)
        assert len(opening) == MOST_OPENING
        connections[0].close()  # who leaves makes room
        eventually(lambda: len(opening) == MOST_OPENING + 1)
        may.set()
        for made in connections[1:]:
            assert read_head(made).startswith("HTTP/1.1 200 ")


def hold_back(monkeypatch: pytest.MonkeyPatch, may: threading.Event) -> threading.Event:
    """Have no watch begun until it *may*. Returns: an event that is set when one was to be begun."""
    is_asked = threading.Event()

    def waiting(*arguments: Any) -> Any:
        begin = begin_watch(*arguments)

        def wait(*more: Any) -> Any:
            is_asked.set()
            assert may.wait(PATIENCE_S)
            return begin(*more)

        return wait

    monkeypatch.setattr("eventbus.api.kube.handler.begin_watch", waiting)
    return is_asked


def test_a_stop_ends_also_those_that_are_just_being_begun(
    embedded_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may, stopped = threading.Event(), threading.Event()
    stop = Watcher.stop

    def noted(self: Watcher) -> None:
        stop(self)
        stopped.set()
        may.set()

    monkeypatch.setattr(Watcher, "stop", noted)
    is_asked = hold_back(monkeypatch, may)
    with ExitStack() as stack:
        with serving(open_bus(embedded_url, Settings(prefix=prefix)), socket=tmp_path / "s"):
            made = stack.enter_context(Server(tmp_path / "s").connect())
            made.sendall(WATCH.format(more="", version="1.1").encode())
            assert is_asked.wait(PATIENCE_S)
        assert stopped.is_set()
        assert read_all(made).endswith(b"\r\n\r\n0\r\n\r\n")


def test_a_stop_lets_what_was_told_arrive(
    embedded_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, stop, told = threading.Event(), Watcher.stop, list[bytes]()

    def noted(self: Watcher) -> None:
        stop(self)
        stopped.set()

    monkeypatch.setattr(Watcher, "stop", noted)
    with serving(open_bus(embedded_url, Settings(prefix=prefix)), socket=tmp_path / "s"):
        server = Server(tmp_path / "s")
        made = server.watch()

        def read_late() -> None:
            stopped.wait(20)
            told.append(read_all(made))

        reading = threading.Thread(target=read_late)
        reading.start()
        for number in range(60):  # more than the system takes: the rest waits with us
            server.post(f"e{number}", "x" * 9000)
    reading.join(20)
    made.close()
    assert told[0].count(b"ADDED") > 10
    assert told[0].endswith(b"\r\n0\r\n\r\n")
