"""Batches concurrent writes: writes that arrive during a round trip share the next one, in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.store.calls import Call, call_together

W = TypeVar("W")
R = TypeVar("R")

#: Maximum writes of a batch. Each write delays the later ones by its time in Redis.
MAX_WRITES: Final = 64


class WriteBatcher(Generic[W, R]):
    """Runs one batch of writes at a time. Lives in the loop.

    A single write starts at once. Writes that arrive during a batch wait, and start together as the next batch. No lock
    is held during a round trip, and waiting writes use no thread.

    Args: write_all: runs in a thread of *pool*, one call at a time. Returns: the result or error of each write.
    """

    def __init__(
        self, pool: BlockingPool, write_all: Callable[[Sequence[W], ThreadContext], Sequence[R | Exception]]
    ) -> None:
        self._pool = pool
        self._write_all = write_all
        self._waiting: list[tuple[W, asyncio.Future[R]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, write: W) -> R:
        """Return the result of *write* or raise its error. A write that has started finishes after a cancel."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        return await done

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_WRITES], self._waiting[MAX_WRITES:]
                batch = [(write, done) for write, done in batch if not done.done()]  # else its client has disconnected
                writes = [write for write, _ in batch]
                results: Sequence[R | Exception]
                try:
                    results = await self._pool.run(partial(self._write_all, writes))
                except Exception as error:
                    results = [error] * len(batch)
                for (_, done), result in zip(batch, results, strict=True):
                    if done.done():
                        continue
                    if isinstance(result, Exception):
                        done.set_exception(result)
                    else:
                        done.set_result(result)
        finally:
            self._writing = None


def send_calls(begins: Sequence[Callable[[ThreadContext], Call[Any]]], context: ThreadContext) -> list[Any]:
    """Send the calls that *begins* return in one round trip, on partition 0. Returns: each result or error."""
    results: list[Any] = []
    commands = []
    for begin in begins:
        try:
            call = begin(context)
            commands.append(call.command)
            results.append(call)
        except Exception as error:
            results.append(error)
    replies = iter(call_together(context.bus, context.client, 0, commands) if commands else ())
    for place, call in enumerate(results):
        if isinstance(call, Exception):
            continue
        try:
            reply = next(replies)
            if isinstance(reply, Exception):
                raise reply
            results[place] = call.result(reply)
        except Exception as error:
            results[place] = error
    return results
