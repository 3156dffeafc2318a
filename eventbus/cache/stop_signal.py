"""Telling threads to stop, also those that sleep or block in a watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventbus.clock import Clock, SystemClock

#: A clock that is not the machine's is moved by hand, and tells nobody: seconds between two looks at it.
LOOK_EVERY_S = 0.01


class StopSignal:
    """Set once, from any thread; ends every sleep on it and calls who asked to be called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Stop. Runs the callbacks, in this thread. Again: no effect."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> bool:
        """Sleep on the clock, or until the signal is set. Returns: whether it is set."""
        return self.sleep_until(self._clock.monotonic() + seconds)

    def sleep_until(self, due: float) -> bool:
        """As `sleep`, until the clock's `monotonic` says *due*."""
        longest = float("inf") if isinstance(self._clock, SystemClock) else LOOK_EVERY_S
        while (left := due - self._clock.monotonic()) > 0:
            if self._event.wait(min(left, longest)):
                break
        return self._event.is_set()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Inside the block, `set` runs *callback*; at once if it is set already."""
        with self._lock:
            is_set = self._event.is_set()
            if not is_set:
                self._callbacks.append(callback)
        if is_set:
            callback()
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

    @contextmanager
    def child(self) -> Iterator[StopSignal]:
        """Inside the block, a signal that is set with this one, and can be set without it. It is set at the end."""
        child = self._new()
        with self.calling(child.set):
            try:
                yield child
            finally:
                child.set()

    def _new(self) -> StopSignal:
        return StopSignal(self._clock)
