"""A watch that a test feeds by hand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from eventbus.errors import EventBusError
from eventbus.model.list_watch import HasMetadata, WatchEvent

T = TypeVar("T", bound=HasMetadata)


class FakeWatch(Generic[T]):
    """Implements `eventbus.model.list_watch.Watch`: delivers offered events until it is ended. Thread-safe.

    *stops* counts the calls of `stop`. Made by `FakeWatchSource.watch`, or by a test.

    Args: events: the first events.  on_stop: called by `stop`.
    """

    def __init__(self, events: Iterable[WatchEvent[T]] = (), on_stop: Callable[[FakeWatch[T]], None] | None = None):
        self.stops = 0
        self._events = deque(events)
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._held = False
        self._ended = False

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        while (event := self._next()) is not None:
            yield event

    def stop(self) -> None:
        """See `Watch`."""
        self.stops += 1
        self.end()
        if self._on_stop is not None:
            self._on_stop(self)

    def offer(self, *events: WatchEvent[T]) -> None:
        """Deliver *events* after the queued ones."""
        with self._changed:
            self._events += events
            self._changed.notify_all()

    def hold(self, held: bool) -> None:
        """Deliver nothing while *held*."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def close(self) -> None:
        """Deliver the queued events, then end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def end(self) -> None:
        """End at once and drop the queued events."""
        with self._changed:
            self._events.clear()
            self._ended = True
            self._changed.notify_all()

    def fail(self, error: EventBusError) -> None:
        """Drop the queued events, deliver ERROR, and end."""
        with self._changed:
            self._events = deque([WatchEvent.failed(error)])
            self._ended = True
            self._changed.notify_all()

    @property
    def is_behind(self) -> bool:
        """Return True if something waits to be delivered."""
        with self._changed:
            return any(event.object is not None for event in self._events)

    def _next(self) -> WatchEvent[T] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (self._events and not self._held))
            return self._events.popleft() if self._events else None


__all__ = ["FakeWatch"]
