"""Batches concurrent writes: writes that arrive during a round trip share the next one, in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.store.repeatable_call import Command, Steps, call_together

R = TypeVar("R")

#: Maximum writes of a batch. Each write delays the later ones by its time in Redis.
MOST: Final = 64


class Together:
    """Runs work that is written as steps, on partition 0. Runs in the loop.

    A single write starts at once. Writes that arrive during a batch wait, and start together as the next batch.
    """

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool
        self._waiting: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None

    async def run(self, begin: Callable[[ThreadContext], Steps[R]]) -> R:
        """Run the steps; return their result or raise their error. Started steps finish after a cancel."""
        write = _Write(begin, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await write.done  # type: ignore[no-any-return]

    async def _write(self) -> None:
        try:
            while self._waiting:
                writes, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                writes = [write for write in writes if not write.done.done()]  # else its client has disconnected
                try:
                    await self._pool.run(partial(_do, writes))
                except Exception as error:
                    for write in writes:
                        write.failure = error
                for write in writes:
                    write.tell()
        finally:
            self._writing = None


class _Write:
    """One write. *done* belongs to the loop, all other fields to the thread that runs the steps."""

    def __init__(self, begin: Callable[[ThreadContext], Steps[Any]], done: asyncio.Future[Any]) -> None:
        self.done = done
        self.failure: Exception | None = None
        self.command: Command | None = None  #: the pending command; None: the write has ended
        self._begin = begin
        self._result: Any = None

    def start(self, context: ThreadContext) -> None:
        self._steps = self._begin(context)
        self._go(partial(next, self._steps))

    def go_on(self, reply: Any) -> None:
        act = self._steps.throw if isinstance(reply, Exception) else self._steps.send
        self._go(partial(act, reply))

    def tell(self) -> None:
        if self.done.done():
            return
        if self.failure is None:
            self.done.set_result(self._result)
        else:
            self.done.set_exception(self.failure)

    def _go(self, act: Callable[[], Command]) -> None:
        self.command = None
        try:
            self.command = act()
        except StopIteration as end:
            self._result = end.value
        except Exception as error:
            self.failure = error


def _do(writes: Sequence[_Write], context: ThreadContext) -> None:
    """Run all writes to their ends, in as many rounds as the longest has steps."""
    for write in writes:
        write.start(context)
    while under_way := [write for write in writes if write.command is not None]:
        commands = [write.command for write in under_way if write.command is not None]
        for write, reply in zip(under_way, call_together(context.bus, context.client, 0, commands), strict=True):
            write.go_on(reply)
