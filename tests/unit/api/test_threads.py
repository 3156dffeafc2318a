"""threads.py: what threads have found comes back to the loop, each to who asked."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from eventbus.api.thread_context import Threads


async def squares(threads: Threads) -> list[int]:
    return await asyncio.gather(*[threads.run(lambda n=n: n * n) for n in range(200)])  # type: ignore[misc]


def test_each_gets_its_own_result_from_a_few_threads() -> None:
    threads = Threads(4, "few")
    assert asyncio.run(squares(threads)) == [n * n for n in range(200)]
    assert len(threads._threads) <= 4
    threads.close()


def test_what_is_raised_is_raised_for_who_asked_and_nobody_else() -> None:
    threads = Threads(2, "raising")

    async def ask() -> tuple[object, int]:
        def fail() -> None:
            raise KeyError("missing")

        failed, fine = await asyncio.gather(threads.run(fail), threads.run(lambda: 7), return_exceptions=True)
        assert not isinstance(fine, BaseException)
        return failed, fine

    failed, fine = asyncio.run(ask())
    assert isinstance(failed, KeyError)
    assert fine == 7
    threads.close()


def test_what_is_begun_goes_on_when_its_caller_is_cancelled_and_what_is_not_is_dropped() -> None:
    threads = Threads(1, "cancelled")
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(60)
        done.set()

    async def cancel() -> None:
        first, second = (
            asyncio.ensure_future(threads.run(work)),
            asyncio.ensure_future(threads.run(lambda: pytest.fail("nobody waits"))),
        )
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        go.set()
        assert await threads.run(lambda: 3) == 3

    asyncio.run(cancel())
    assert done.is_set()
    threads.close()


class Emptied(SimpleQueue[Any]):
    """A queue whose last task a thread takes between a look at it and the next step."""

    def empty(self) -> bool:
        found = super().empty()
        while not found and not super().empty():
            super().get()
        return found


def test_closing_does_not_wait_for_a_task_that_a_thread_has_just_taken() -> None:
    threads = Threads(1, "taken")
    threads._tasks = Emptied()
    loop = asyncio.new_event_loop()
    threads._tasks.put((lambda: None, loop.create_future()))
    loop.close()
    closing = threading.Thread(target=threads.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_closing_waits_for_what_is_begun() -> None:
    threads = Threads(1, "closing")
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        done.set()

    async def begin() -> None:
        task = asyncio.ensure_future(threads.run(work))
        await asyncio.sleep(0)
        begun.wait(60)
        task.cancel()

    asyncio.run(begin())
    threads.close()
    assert done.is_set()
    assert not any(thread.is_alive() for thread in threads._threads)
