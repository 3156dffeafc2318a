"""One queue to many watchers inside one process: client-go's `watch.Broadcaster`.

Nothing here knows Redis or Events. Order of the locks: the mux's and a watcher's are never held together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from eventbus.errors import BroadcasterStopped, EventBusError

T = TypeVar("T")

#: items waiting to be distributed, and waiting in one watcher: client-go's number for events
QUEUE_LENGTH = 1_000


class FullQueue(StrEnum):
    """The policy for a watcher whose queue has no room."""

    DROP = "drop"  #: this watcher misses the item, counted; the others get it
    WAIT = "wait"  #: everyone waits until this watcher has room or stops


class WatchEnded(EventBusError):
    """The watcher was stopped or its mux shut down, and all it held has been read. Cure: none; watch again."""

    def __init__(self) -> None:
        super().__init__("watch ended")


class MuxWatcher(Generic[T]):
    """One reader's queue. Made by `Mux.watch`; read it from any thread, by `for` or `get`.

    It ends after `stop` or after the shutdown of the mux; what it holds by then can still be read.
    The mux holds it until then, read or not.
    """

    def __init__(
        self,
        *,
        queue_length: int,
        full_queue: FullQueue,
        prefix: Sequence[T],
        first: int,
        forget: Callable[[MuxWatcher[T]], None],
    ) -> None:
        self.dropped = 0  #: items missed because the queue was full
        self._first = first  # number of the first item meant for this watcher
        self._queue_length = queue_length
        self._full_queue = full_queue
        self._buffer: deque[T] = deque(prefix)
        self._forget = forget
        self._closed = False
        self._renew_locks()

    def get(self, timeout: float | None = None) -> T:
        """Take the next item, in the order in which the mux accepted them.

        Blocks until there is one, at most *timeout* seconds (None: without end).

        Raises: TimeoutError: nothing came in time; call again. WatchEnded: nothing will come any more.
        """
        with self._lock:
            if not self._buffer and not self._closed:
                self._wait_for_item(timeout)
            if self._buffer:
                self._has_room.notify()
                return self._buffer.popleft()
            if self._closed:
                raise WatchEnded
            raise TimeoutError(f"no item within {timeout} s")

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self.get()
        except WatchEnded:
            raise StopIteration from None

    def stop(self) -> None:
        """Take no more items; a distributor that waits for room here goes on. Again: no effect.

        Never blocks on readers or on other watchers, so a handler may call it, for itself or for another.
        """
        self._close()
        self._forget(self)

    def _offer(self, item: T) -> None:
        with self._lock:
            while not self._closed and self._is_full():
                if self._full_queue is FullQueue.DROP:
                    self.dropped += 1
                    return
                self._has_room.wait()
            if not self._closed:
                self._buffer.append(item)
                self._has_item.notify()

    def _is_full(self) -> bool:
        # A queue of length 0 hands over, as Go's: there is room for as many items as readers stand waiting.
        return len(self._buffer) >= (self._queue_length or self._readers)

    def _wait_for_item(self, timeout: float | None) -> None:
        self._readers += 1
        self._has_room.notify()
        try:
            self._has_item.wait_for(lambda: self._buffer or self._closed, timeout)
        finally:
            self._readers -= 1

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._has_room.notify_all()
            self._has_item.notify_all()

    def _reset_after_fork(self) -> None:
        self._renew_locks()
        self._buffer.clear()
        self._closed = True

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()
        self._has_item = threading.Condition(self._lock)
        self._has_room = threading.Condition(self._lock)
        self._readers = 0  # threads that stand in get


class Mux(Generic[T]):
    """Gives every accepted item to every watcher, in the order of acceptance; the order among watchers is open.

    A daemon thread distributes; it starts with the first watcher, so a mux that nobody watches costs nothing.

    Args:   full_queue: the policy for a watcher without room.  incoming_length: items, 1 or more.
            name: of the thread.  prepare: makes of an item what the watchers get, once, in that thread; None: they
            get nothing of it. It must not raise.
    Source: apimachinery `pkg/watch/mux.go`. Departures: `watch` and `stop` take effect at their place in the
            queue without waiting for it to drain; without a watcher nothing is queued; drops are counted.
    """

    def __init__(
        self,
        *,
        full_queue: FullQueue = FullQueue.DROP,
        incoming_length: int = QUEUE_LENGTH,
        name: str = "eventbus-mux",
        prepare: Callable[[T], T | None] | None = None,
    ) -> None:
        if incoming_length < 1:
            raise ValueError(f"incoming_length: {incoming_length} is below 1")
        self._full_queue = full_queue
        self._incoming_length = incoming_length
        self._name = name
        self._prepare = prepare
        self._stopped = False
        self._watchers: tuple[MuxWatcher[T], ...] = ()
        self._make_empty()

    @property
    def dropped(self) -> int:
        """Return how many items `action_or_drop` refused because incoming was full."""
        return self._dropped

    def action_or_drop(self, item: T) -> bool:
        """Accept *item* for all present watchers, or drop and count it when incoming is full. Never blocks.

        Safe in a signal handler and in `__del__`.

        Returns: False if dropped. Without a watcher True: nobody is there to miss it.
        Raises:  BroadcasterStopped: after shutdown.
        """
        # Read without the lock: a watch that is just being made may come before or after this item.
        if not self._watchers and not self._stopped:
            return True
        with self._lock:
            if self._is_full():
                self._dropped += 1
                return False
            self._accept(item)
            return True

    def action(self, item: T) -> None:
        """Accept *item* for all present watchers; blocks while incoming is full.

        Raises: BroadcasterStopped: after shutdown, also when it comes during the wait; *item* was not accepted.
        """
        with self._lock:
            while self._is_full():
                self._has_room.wait()
            self._accept(item)

    def watch(self, queue_length: int = QUEUE_LENGTH, prefix: Sequence[T] = ()) -> MuxWatcher[T]:
        """Begin to watch: nothing accepted before this call took its place in the queue, everything after.

        Does not wait for the queue. *prefix* comes first, and makes the queue one longer than itself at least.

        Args:   queue_length: 0 or more; 0 hands items over only to a reader that stands waiting.
        Raises: BroadcasterStopped: after shutdown.
        """
        if queue_length < 0:
            raise ValueError(f"queue_length: {queue_length} is below 0")
        with self._lock:
            if self._stopped:
                raise BroadcasterStopped
            self._start_distributor()
            watcher = MuxWatcher(
                queue_length=max(queue_length, len(prefix) + 1) if prefix else queue_length,
                full_queue=self._full_queue,
                prefix=prefix,
                first=self._taken + len(self._incoming),
                forget=self._forget,
            )
            self._watchers = (*self._watchers, watcher)
            return watcher

    def shutdown(self, timeout: float | None = None) -> bool:
        """Accept nothing more, distribute what is queued, then close the watchers. Again: no effect.

        Waits for the distribution, not for the reading, at most *timeout* seconds (None: without end). Under
        WAIT it waits for slow watchers; so a handler whose own watcher may be full stops that first.

        Returns: True when all is distributed; False: the thread still works at it.
        """
        with self._lock:
            self._stopped = True
            self._has_item.notify_all()
            self._has_room.notify_all()
            distributor = self._distributor
        if distributor is None:
            return True
        if distributor is not threading.current_thread():  # it is, when a finalizer runs there
            distributor.join(timeout)
        return not distributor.is_alive()

    def reset_after_fork(self) -> None:
        """Make it empty, with fresh locks: call it in the child, before anything else there uses it.

        Watchers of the parent are closed here and empty. A mux that was shut down stays so.
        """
        for watcher in self._watchers:
            watcher._reset_after_fork()
        self._watchers = ()
        self._make_empty()

    def _make_empty(self) -> None:
        # Reentrant: a signal handler or a finalizer may record an event while its own thread holds the lock.
        self._lock = threading.RLock()
        self._has_item = threading.Condition(self._lock)
        self._has_room = threading.Condition(self._lock)
        self._incoming: deque[T] = deque()
        self._taken = 0  # items the distributor has taken; the number of the oldest in incoming
        self._dropped = 0
        self._distributor: threading.Thread | None = None

    def _is_full(self) -> bool:
        # What is stopped refuses and what nobody watches takes no room, so neither keeps a caller waiting.
        return bool(self._watchers) and not self._stopped and len(self._incoming) >= self._incoming_length

    def _accept(self, item: T) -> None:
        if self._stopped:
            raise BroadcasterStopped
        if self._watchers:
            self._incoming.append(item)
            self._has_item.notify()

    def _start_distributor(self) -> None:
        if self._distributor is None:
            thread = threading.Thread(target=self._distribute, name=self._name, daemon=True)
            thread.start()
            self._distributor = thread

    def _distribute(self) -> None:
        while (taken := self._take()) is not None:
            number, accepted, watchers = taken
            item = accepted if self._prepare is None else self._prepare(accepted)
            if item is None:
                continue
            for watcher in watchers:
                if watcher._first <= number:
                    watcher._offer(item)
        self._close_watchers()

    def _take(self) -> tuple[int, T, tuple[MuxWatcher[T], ...]] | None:
        with self._lock:
            self._has_item.wait_for(lambda: self._incoming or self._stopped)
            if not self._incoming:
                return None
            number, item = self._taken, self._incoming.popleft()
            self._taken += 1
            self._has_room.notify()
            return number, item, self._watchers

    def _close_watchers(self) -> None:
        with self._lock:
            watchers, self._watchers = self._watchers, ()
        for watcher in watchers:
            watcher._close()

    def _forget(self, watcher: MuxWatcher[T]) -> None:
        with self._lock:
            self._watchers = tuple(other for other in self._watchers if other is not watcher)
            self._has_room.notify_all()
