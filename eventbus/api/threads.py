"""Threads that work for one event loop, and return many results in one wake-up of the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

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
        self._telling = False

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
            if not self._telling:  # else the loop has not looked yet
                self._telling = True
                assert self._loop is not None
                with suppress(RuntimeError):  # the loop is closed: no caller waits
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._telling = False
        while self._done:
            future, result, failure = self._done.popleft()
            self._unfinished -= 1
            if future.done():
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
