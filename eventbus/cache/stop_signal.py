"""Stops threads, also those that sleep or block in a watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventbus.util.clock import Clock, SystemClock

#: Seconds between two reads of a fake clock, which a test moves without a notification.
FAKE_CLOCK_EVERY_S = 0.01


class StopSignal:
    """A signal set once, from any thread; it ends every sleep on it and runs the registered callbacks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Set the signal, and run the callbacks in this thread. Idempotent."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Return True if it is time to stop."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> bool:
        """Sleep on the clock, or until the signal is set. Returns: whether it is set."""
        return self.sleep_until(self._clock.monotonic() + seconds)

    def sleep_until(self, due: float) -> bool:
        """Sleep until the clock's `monotonic` is *due*, or until the signal is set. Returns: whether it is set."""
        longest = float("inf") if isinstance(self._clock, SystemClock) else FAKE_CLOCK_EVERY_S
        while (left := due - self._clock.monotonic()) > 0:
            if self._event.wait(min(left, longest)):
                break
        return self._event.is_set()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Have `set` run *callback* inside the block; at once if it is set already."""
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
        """Yield a signal that is set with this one, can be set without it, and is set at the end of the block."""
        child = self._new()
        with self.calling(child.set):
            try:
                yield child
            finally:
                child.set()

    def _new(self) -> StopSignal:
        return StopSignal(self._clock)
