"""Work that says how long it has to wait instead of waiting, so that a thread can do other work meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

#: Yields the seconds to wait; it is sent True if it is to stop, and then yields hardly anything more.
Pausing = Generator[float, bool | None, T]


def pause(seconds: float) -> Pausing[bool]:
    """Wait for so long. Returns True if the work is to stop."""
    return bool((yield seconds))


def finish(work: Pausing[T], sleep: Callable[[float], bool]) -> T:
    """Do *work* to its end and return its result. *sleep* waits for so many seconds; True: stop."""
    try:
        seconds = next(work)
        while True:
            seconds = work.send(sleep(seconds))
    except StopIteration as end:
        result: T = end.value
        return result


__all__ = ["Pausing", "finish", "pause"]
