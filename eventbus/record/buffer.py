"""The outbox's buffer: events recorded and not yet packed, bounded in events and bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from eventbus.clock import Clock
from eventbus.record.flush_mark import FlushMark
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending
from eventbus.settings import FullBuffer, Settings

#: Why there is no room, as cause and message: there is no spool, or it still has room.
OUTBOX_FULL = ("dropped", "the outbox is full")
#: The spool is full as well.
SPOOL_FULL = ("spool_full", "the outbox is full, and the spool takes no more")


class Buffer:
    """A queue from any thread to the flusher. If it is full, an event is dropped or waited for, and counted."""

    def __init__(self, *, settings: Settings, clock: Clock, losses: Losses) -> None:
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self.items: deque[Pending | FlushMark] = deque()
        self.limit = settings.buffer_events
        #: Below this an event is small enough that *buffer_events* of them fit into *buffer_bytes* anyway.
        self.small = settings.buffer_bytes // settings.buffer_events - 512
        # Reentrant: a signal handler may record an event while its own thread holds one of them.
        self._large_lock = threading.RLock()
        self._large_bytes = 0
        self._room = threading.Condition(threading.RLock())
        self._waiters = 0
        self._closed = False
        #: The cause to count for an event without room, and its message.
        self.why_full = OUTBOX_FULL

    @property
    def events(self) -> int:
        """Return about how many events wait in it."""
        return sum(type(item) is Pending for item in list(self.items))

    def make_room(self, pending: Pending, wake: Callable[[], None]) -> bool:
        """Find room for a large event, or one that comes when the buffer is full. False: it was counted as lost.

        With `wait` it blocks for at most *buffer_wait_s*, and calls *wake* to start the flusher.
        """
        size = len(pending.message)
        if self._has_room(size):
            return True
        if self._settings.buffer_full is FullBuffer.WAIT and self._wait_for_room(size, wake):
            return True
        cause, detail = self.why_full
        self._losses.count(cause, 1, detail)
        return False

    def give_back(self, size: int) -> None:
        """Free the room of a message of *size* characters, more than `small`, that has left the buffer."""
        with self._large_lock:
            self._large_bytes -= size

    def tell_room(self) -> None:
        """Wake the callers that wait for room."""
        if self._waiters:
            with self._room:
                self._room.notify_all()

    def close(self) -> None:
        """Free the callers that wait for room; from now on none waits."""
        self._closed = True
        self.tell_room()

    def clear(self) -> int:
        """Empty it, and free the callers that wait in a flush. Returns the number of events removed."""
        events = 0
        while self.items:
            try:
                item = self.items.popleft()
            except IndexError:
                break  # another thread clears it as well
            if type(item) is FlushMark:
                item.done.set()
            else:
                events += 1
        return events

    def _wait_for_room(self, size: int, wake: Callable[[], None]) -> bool:
        deadline = self._clock.monotonic() + self._settings.buffer_wait_s
        with self._room:
            self._waiters += 1
            try:
                while not (room := self._has_room(size)) and not self._closed:
                    wake()
                    if not self._room.wait(deadline - self._clock.monotonic()):
                        return self._has_room(size)
                return room
            finally:
                self._waiters -= 1

    def _has_room(self, size: int) -> bool:
        if len(self.items) >= self.limit:
            return False
        if size > self.small:
            with self._large_lock:
                if self._large_bytes + size > self._settings.buffer_bytes:
                    return False
                self._large_bytes += size
        return True
