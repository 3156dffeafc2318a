"""Batches concurrent writes: writes that arrive during a round trip share the next one, in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.store.calls import Call, call_together

R = TypeVar("R")

#: Maximum writes of a batch. Each write delays the later ones by its time in Redis.
MOST: Final = 64


class Together:
    """Sends calls on partition 0. Runs in the loop.

    A single write starts at once. Writes that arrive during a batch wait, and start together as the next batch.
    """

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool
        self._waiting: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None

    async def run(self, begin: Callable[[ThreadContext], Call[R]]) -> R:
        """Send the call that *begin* returns; return its result or raise its error. It is not cancelled once sent."""
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
    """One write. *done* belongs to the loop, all other fields to the thread that sends the call."""

    def __init__(self, begin: Callable[[ThreadContext], Call[Any]], done: asyncio.Future[Any]) -> None:
        self.done = done
        self.begin = begin
        self.failure: Exception | None = None
        self.result: Any = None

    def tell(self) -> None:
        if self.done.done():
            return
        if self.failure is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.failure)


def _do(writes: Sequence[_Write], context: ThreadContext) -> None:
    """Send the calls of all writes in one round trip."""
    calls: list[tuple[_Write, Call[Any]]] = []
    for write in writes:
        try:
            calls.append((write, write.begin(context)))
        except Exception as error:
            write.failure = error
    replies = call_together(context.bus, context.client, 0, [call.command for _, call in calls]) if calls else []
    for (write, call), reply in zip(calls, replies, strict=True):
        try:
            if isinstance(reply, Exception):
                raise reply
            write.result = call.result(reply)
        except Exception as error:
            write.failure = error
