"""Helpers of the tests of the write path: a bus of one's own, the content of its stream, and a line that can be cut."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.model.event import Event
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.testing.clock import FakeClock
from tests.waiting import eventually

#: Raised by a handler; they are no `Exception`, and would end a thread.
UNUSUAL = [asyncio.CancelledError, GeneratorExit]
#: Raised by a handler that wants no more events.
EXITS = [SystemExit, KeyboardInterrupt]


def settings_of(prefix: str, **more: Any) -> Settings:
    """Settings of a test: its own prefix, and reads that end soon, so that stopping is quick."""
    return Settings(prefix=prefix, **({"worker_block_ms": 50} | more))


def pass_time(clock: FakeClock, bus: Bus, seconds: float, *, step_s: float) -> None:
    """Let *seconds* pass for the workers on *clock*: each beats at each step, however busy the machine is.

    Args: step_s: more than they leave between two beats.
    """
    with bus.client() as client:
        for _ in range(round(seconds / step_s)):
            before: Any = client.hgetall(bus.keys[0].workers)
            clock.advance(step_s)
            eventually(lambda before=before: _all_moved(before, client.hgetall(bus.keys[0].workers)))  # type: ignore[misc]


def _all_moved(before: Mapping[bytes, bytes], now: Mapping[bytes, bytes]) -> bool:
    return all(now.get(name) != count for name, count in before.items())


def read_incoming(url: str, settings: Settings) -> list[Event]:
    """As `incoming_of` the bus there."""
    return incoming_of(open_bus(url, settings))


def incoming_of(bus: Bus) -> list[Event]:
    """Every event in the streams, with its uid, in the order of the stream; partitions one after the other."""
    events: list[Event] = []
    with bus.client() as client:
        for keys in bus.keys:
            for _, fields in client.xrange(keys.incoming):
                batch = unpack_batch(fields[b"b"])
                assert int(fields[b"n"]) == len(batch.events)
                events += [unpack_event(e, batch.uid(i)) for i, e in enumerate(batch.events)]
    return events


def uids(events: list[Event]) -> list[str]:
    return [event.metadata.uid for event in events]


def messages(events: list[Event]) -> list[str]:
    return [event.message for event in events]


def stored_events(bus: Bus) -> list[Event]:
    """Return the events that the store holds now."""
    client = bus.client()
    try:
        return list(ObjectStore(bus, client).list().items)
    finally:
        client.close()


def bus_with(url: str, settings: Settings, **options: Any) -> Bus:
    """Open the bus before anybody else does, so that it has these options."""
    return open_bus(url, settings, options=Options(**options))


@contextmanager
def own_server(directory: Path, **config: str) -> Iterator[EmbeddedServer]:
    """A server that a test may stop, kill or freeze."""
    server = EmbeddedServer(directory, config={name.replace("_", "-"): value for name, value in config.items()})
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """The process stands still: its sockets are open and nobody answers."""
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def lose_tail(server: EmbeddedServer, directory: Path, *, keep: int) -> None:
    """Restart with an append-only file that ends behind its first *keep* bytes: what a kill, or a failover, leaves.

    Of a call that was cut, the server takes back the whole.
    """
    kill_server(server)
    (log,) = directory.glob("*/appendonlydir/*.incr.aof")
    os.truncate(log, keep)
    server.start()


def append_only_bytes(directory: Path) -> int:
    """How many bytes the append-only file has; all that was answered, if the server writes always."""
    (log,) = directory.glob("*/appendonlydir/*.incr.aof")
    return log.stat().st_size


def kill_server(server: EmbeddedServer) -> None:
    """kill -9, and wait until it is gone."""
    os.kill(server.pid or 0, signal.SIGKILL)
    eventually(lambda: not server.running())


class CuttingProxy:
    """A line to a server's unix socket whose replies can be lost: the call has had its effect and nobody knows.

    *cut* decides for each piece of reply whether the line breaks before it arrives. Listens on loopback.
    """

    def __init__(self, url: str, cut: Callable[[], bool]) -> None:
        self._path = unquote(url.removeprefix("unix://"))
        self._cut = cut
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="cutting-proxy", daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._waker.close()
        self._thread.join(30)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ, None)
            selector.register(self._listener, selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        for each in list(selector.get_map().values()):
                            if isinstance(each.fileobj, socket.socket):
                                each.fileobj.close()
                        return
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif selector.get_map().get(key.fd) is key:  # its line may have been cut a moment ago
                        self._forward(selector, key)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._path)
        selector.register(client, selectors.EVENT_READ, (server, False))
        selector.register(server, selectors.EVENT_READ, (client, True))

    def _forward(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        source, (target, is_reply) = key.fileobj, key.data
        assert isinstance(source, socket.socket)
        try:
            data = source.recv(1 << 18)
            if data and is_reply and self._cut():
                self.cuts += 1
                data = b""
            if data:
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            for side in (source, target):
                selector.unregister(side)
                side.close()
