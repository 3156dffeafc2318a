"""Notifications for handlers, and the buffer in which they wait for a slow one."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from eventbus.cache.deltas import DeletedFinalStateUnknown
from eventbus.model.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)

#: Waiting notifications of one handler that are not folded. client-go's ring starts with this size and grows.
FOLD_BEYOND: Final = 1_024


class Added(msgspec.Struct, Generic[T], frozen=True):
    """The object is new to the handler; *initial* if it was there before the handler."""

    object: T
    initial: bool = False


class Updated(msgspec.Struct, Generic[T], frozen=True):
    """The object has changed, or is sent again unchanged (resync)."""

    old: T
    new: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """The object is gone. *held* is the state that handlers last received; *object* may be a later one."""

    object: T | DeletedFinalStateUnknown[T]
    held: T


Notification: TypeAlias = Added[T] | Updated[T] | Deleted[T]


class NotificationBuffer(Generic[T]):
    """First in, first out, for one reader; `put` never blocks.

    Beyond *fold_beyond* waiting notifications an update is folded into the last one that waits for its object, if
    that is an update too: the reader then sees one step from the older state to the newest. So what waits is at most
    *fold_beyond*, and the additions and deletions, and an update after each. Order is kept for each object.
    """

    def __init__(self, fold_beyond: int = FOLD_BEYOND) -> None:
        self.folded = 0
        self._fold_beyond = fold_beyond
        self._changed = threading.Condition()
        self._numbers: deque[int] = deque()
        self._waiting: dict[int, tuple[str, Notification[T]]] = {}
        self._last: dict[str, int] = {}  # number of the last that waits, by key
        self._next = 0
        self._closed = False

    def put(self, key: str, notification: Notification[T]) -> None:
        """Add *notification* about the object *key*; after `close` it is dropped."""
        with self._changed:
            if self._closed or self._fold(key, notification):
                return
            number, self._next = self._next, self._next + 1
            self._numbers.append(number)
            self._waiting[number] = key, notification
            self._last[key] = number
            self._changed.notify()

    def get(self) -> Notification[T] | None:
        """Take the oldest; blocks until there is one. None after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._numbers or self._closed)
            if self._closed:
                return None
            number = self._numbers.popleft()
            key, notification = self._waiting.pop(number)
            if self._last[key] == number:
                del self._last[key]
            return notification

    def close(self) -> None:
        """Drop the waiting notifications and end the reader. Idempotent."""
        with self._changed:
            self._closed = True
            self._numbers.clear()
            self._waiting.clear()
            self._last.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return the number of notifications that wait."""
        return len(self._numbers)

    def _fold(self, key: str, notification: Notification[T]) -> bool:
        if len(self._numbers) < self._fold_beyond or not isinstance(notification, Updated) or key not in self._last:
            return False
        number = self._last[key]
        before = self._waiting[number][1]
        if not isinstance(before, Updated):
            return False
        self._waiting[number] = key, Updated(before.old, notification.new)
        self.folded += 1
        return True
