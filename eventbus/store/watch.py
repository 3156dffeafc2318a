"""A watch to iterate over: a `WatchState`, and the thread that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from eventbus.model.list_watch import HasMetadata, WatchEvent
from eventbus.store.changes import Change
from eventbus.store.watch_state import Behind, Wait, WatchState
from eventbus.util.clock import Clock

T = TypeVar("T", bound=HasMetadata)


class StoreWatch(Generic[T]):
    """Implements `eventbus.model.list_watch.Watch`: read by one thread, stopped by any. Its events: see `WatchState`.

    Raises: Expired, out of the iteration: changes were lost; list again. BusUnavailable: go on from the last position.
    """

    def __init__(
        self,
        *,
        state: WatchState[T],
        ready: threading.Event,
        read: Callable[[Behind], tuple[Sequence[Change[T]], int]],
        detach: Callable[[WatchState[T]], None],
        clock: Clock,
    ) -> None:
        self._state = state
        self._ready = ready
        self._read = read
        self._detach = detach
        self._clock = clock

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        while True:
            self._ready.clear()
            now = self._clock.monotonic()
            step = self._state.next(now)
            if step is None:
                return
            if isinstance(step, WatchEvent):
                yield step
            elif isinstance(step, Wait):
                self._ready.wait(None if step.until is None else max(0.0, step.until - now))
            else:
                self._state.caught_up(*self._read(step))

    def stop(self) -> None:
        """See `Watch`."""
        self._state.stop()
        self._detach(self._state)
