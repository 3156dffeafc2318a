"""Coroutines that yield the time to wait instead of blocking, so that one thread can run several of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

#: Yields the seconds to wait. If True is sent to it, it should end soon.
Pausing = Generator[float, bool | None, T]


def pause(seconds: float) -> Pausing[bool]:
    """Wait for *seconds*. Return True if the coroutine should stop."""
    return bool((yield seconds))


def finish(work: Pausing[T], sleep: Callable[[float], bool]) -> T:
    """Run *work* to its end and return its result. *sleep* waits for so many seconds; True: stop."""
    try:
        seconds = next(work)
        while True:
            seconds = work.send(sleep(seconds))
    except StopIteration as end:
        result: T = end.value
        return result


__all__ = ["Pausing", "finish", "pause"]
