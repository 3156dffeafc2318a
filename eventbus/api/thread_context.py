"""Threads that wait for Redis: each has a context with its own client and the store's tools."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from eventbus.api.versions.numbered_objects import open_objects
from eventbus.api.versions.numbering import Numbering
from eventbus.api.versions.wire_versions import Bases, WireVersions
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS
from eventbus.model.kinds import Kind
from eventbus.store.change_hub import Hub
from eventbus.store.changes import Versions
from eventbus.store.writer import ObjectWriter

R = TypeVar("R")

#: Task that ends a thread.
_END: Final = None


class Threads:
    """A pool of up to *most* threads, started on demand. Its methods must be called from the loop's thread.

    `concurrent.futures` wakes the loop once for each result and makes three objects for it. Under load this took a
    sixth of the loop's time.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._tasks: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_scheduled = False

    async def run(self, work: Callable[[], R]) -> R:
        """Run *work* in a thread; return its result or raise its error. Started work finishes after a cancel."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = self._loop.create_future()
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put((work, future))
        return await future

    def close(self) -> None:
        """Wait for running tasks, and drop tasks that have not started."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(_END)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not _END:
            work, future = task
            result: Any = None
            failure: BaseException | None = None
            if not future.cancelled():  # its client has disconnected
                try:
                    result = work()
                except BaseException as error:
                    failure = error
            self._done.append((future, result, failure))
            del task, work, future, result, failure  # or they would live until the next task
            if not self._is_scheduled:  # else the loop has not looked yet
                self._is_scheduled = True
                assert self._loop is not None
                with suppress(RuntimeError):  # the loop is closed: no caller waits
                    self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self._is_scheduled = False
        while self._done:
            future, result, failure = self._done.popleft()
            self._unfinished -= 1
            if future.done():
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)


#: Threads that wait for Redis: more calls than these wait for each other.
THREADS: Final = 16


class ThreadContext:
    """The tools of one thread of the pool: a client of its own, and objects over it."""

    def __init__(self, bus: Bus, hub: Hub, bases: Bases, numbering: Numbering | None) -> None:
        self.bus = bus
        self.client: Client = bus.client(name="eventbus-api")
        self.functions = bus.functions(self.client, 0)  #: on partition 0, for shared data
        self._hub = hub
        self._bases = bases
        self._numbering = numbering
        self._objects: dict[Kind[Any], ObjectWriter[Any]] = {}

    def objects(self, kind: Kind[Any]) -> ObjectWriter[Any]:
        """Get, list, watch and write *kind*, in this thread."""
        found = self._objects.get(kind)
        if found is None:
            found = self._objects[kind] = open_objects(
                bus=self.bus, client=self.client, hub=self._hub, kind=kind, numbering=self._numbering_of(kind)
            )
        return found

    def versions(self, kind: Kind[Any]) -> WireVersions:
        """Return the translation between our versions of *kind* and those that clients see."""
        numbering = self._numbering_of(kind)
        if numbering is None:
            return self._bases.of(self.client, kind.plural)
        with numbering.line() as line:
            return WireVersions(line.base if len(line) else 0, self.bus.partitions)

    def to_store(self, kind: Kind[Any], version: str) -> str:
        """Return the store's version where a list or watch begins. Raises: Expired: no watch can resume there."""
        numbering = self._numbering_of(kind)
        if numbering is None or version in ("", "0"):
            return self.versions(kind).to_store(version)
        return str(Versions(numbering.position(int(version))))

    def _numbering_of(self, kind: Kind[Any]) -> Numbering | None:
        return self._numbering if kind.plural == EVENTS else None

    def keep_bases(self) -> None:
        """See `Bases.keep`."""
        self._bases.keep(self.client)


class BlockingPool:
    """Runs blocking calls in threads; each thread has a `ThreadContext`.

    Args: numbering: of events, where the bus has several partitions; else None.
    """

    def __init__(self, *, bus: Bus, hub: Hub, numbering: Numbering | None) -> None:
        self._hub = hub
        self._bus = bus
        self._bases = Bases(bus)
        self._numbering = numbering
        self._local = threading.local()
        self._lock = threading.Lock()
        self._contexts: list[ThreadContext] = []
        self._threads = Threads(THREADS, "eventbus-api")

    async def run(self, work: Callable[[ThreadContext], R]) -> R:
        """Return the result of *work* or raise its error. It finishes although the caller is cancelled."""
        return await self._threads.run(lambda: work(self._context()))

    def close(self) -> None:
        """Wait for running calls, drop the others, and close the clients."""
        self._threads.close()
        with self._lock:
            while self._contexts:
                self._contexts.pop().client.close()

    def _context(self) -> ThreadContext:
        context: ThreadContext | None = getattr(self._local, "context", None)
        if context is None:
            context = self._local.context = ThreadContext(self._bus, self._hub, self._bases, self._numbering)
            with self._lock:
                self._contexts.append(context)
        return context
