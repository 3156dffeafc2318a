"""The queue between the watch and the cache: for each object its deltas, the changes, oldest first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from eventbus.cache.indexer import Indexer, object_key
from eventbus.model.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)


class DeltaType(StrEnum):
    """The reason for a delta."""

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"  #: it was in a list
    SYNC = "Sync"  #: it has not changed; it is sent to the handlers again


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """The object was deleted while the watch was down: *object* is the last known state, perhaps not the final one."""

    key: str
    object: T


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """One change. *object* is a tombstone only if the type is DELETED."""

    type: DeltaType
    object: T | DeletedFinalStateUnknown[T]


def last_state(obj: T | DeletedFinalStateUnknown[T]) -> T:
    """Return the object itself, also of a tombstone, for an `on_delete` handler."""
    return obj.object if isinstance(obj, DeletedFinalStateUnknown) else obj


def key_of(obj: T | DeletedFinalStateUnknown[T]) -> str:
    """Return the key of an object or of a tombstone."""
    return obj.key if isinstance(obj, DeletedFinalStateUnknown) else object_key(obj)


class DeltaFIFO(Generic[T]):
    """Deltas by key. A key is in the queue once, at the place of its first unread delta.

    Only two adjacent deletions of one object are merged. Thread-safe; everything but `pop` and
    `wait_until_synced` returns at once, after at most one call of `pop`'s *process*.

    Args:   known_objects: the copy that the reader of the queue keeps. A `replace` deletes the objects of it that
                are missing, and `resync` repeats its objects. Change it only inside *process* of `pop`, or a
                deletion can be missed.
            transform: applied once to each object that comes in; not to tombstones, and not again on a resync.
    Source: client-go `tools/cache/delta_fifo.go`. Departure: the initial list counts as handled after, not before
            *process* of its last object.
    """

    def __init__(self, *, known_objects: Indexer[T], transform: Callable[[T], T] | None = None) -> None:
        self._known = known_objects
        self._transform = transform
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._items: dict[str, list[Delta[T]]] = {}  # a key is in it iff it is in _queue
        self._populated = False  # it has got a delta
        self._initial = 0  # keys of the first replace that have not been popped
        self._closed = False

    def add(self, obj: T) -> None:
        """Queue that *obj* is new. Raises: any error of the transform."""
        self._accept(DeltaType.ADDED, obj)

    def update(self, obj: T) -> None:
        """Queue that *obj* has changed. Raises: any error of the transform."""
        self._accept(DeltaType.UPDATED, obj)

    def delete(self, obj: T) -> None:
        """Queue that *obj* is gone. Ignored if it is neither queued nor known. Raises: any error of the transform."""
        key = object_key(obj)
        with self._changed:
            self._populated = True
            if key in self._items or self._known.get_by_key(key) is not None:
                self._append(DeltaType.DELETED, self._transformed(obj))

    def replace(self, items: Iterable[T]) -> None:
        """Replace all objects by *items*: queue a delta for each, and a deletion for each other object queued or known.

        Raises: any error of the transform; then nothing has changed.
        """
        with self._changed:
            listed = {object_key(obj): self._transformed(obj) for obj in items}
            for obj in listed.values():
                self._append(DeltaType.REPLACED, obj)
            missing = self._missing(listed)
            for tombstone in missing:
                self._append(DeltaType.DELETED, tombstone)
            if not self._populated:
                self._populated = True
                self._initial = len(listed) + len(missing)
            self._changed.notify_all()

    def resync(self) -> None:
        """Queue a SYNC for each known object without queued deltas."""
        with self._changed:
            for key, obj in self._known.items():
                if key not in self._items:
                    self._append(DeltaType.SYNC, obj)

    def pop(self, process: Callable[[Sequence[Delta[T]], bool], None]) -> Sequence[Delta[T]]:
        """Take the deltas of the oldest key, oldest first, and give them to *process* before the queue gets another.

        Blocks until there is a key. *process*' second argument is whether it belongs to the first list.

        Returns: the deltas; none: the queue is closed and empty.
        Raises: any error of *process*; the deltas are removed all the same.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                return ()
            deltas = tuple(self._items.pop(self._queue.popleft()))
            if not self._queue:
                self._items = {}  # an emptied dict keeps the memory of its largest size, that of the first list
            try:
                process(deltas, not self._is_synced())
            finally:
                if self._initial:
                    self._initial -= 1
                    self._changed.notify_all()
            return deltas

    @property
    def has_synced(self) -> bool:
        """Return True if all of the first `replace` has been popped and processed, or something else came first."""
        with self._changed:
            return self._is_synced()

    def wait_until_synced(self, timeout_s: float | None = None) -> bool:
        """Block until `has_synced`, at most *timeout_s* real seconds, or until it is closed. Returns: `has_synced`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_synced() or self._closed, timeout_s)
            return self._is_synced()

    def close(self) -> None:
        """Let `pop` return the queued deltas, and then none. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return the number of keys that are queued."""
        with self._changed:
            return len(self._queue)

    def _accept(self, delta_type: DeltaType, obj: T) -> None:
        with self._changed:
            self._populated = True
            self._append(delta_type, self._transformed(obj))

    def _append(self, delta_type: DeltaType, obj: T | DeletedFinalStateUnknown[T]) -> None:
        key = key_of(obj)
        deltas = self._items.get(key)
        if deltas is None:
            deltas = self._items[key] = []
            self._queue.append(key)
        deltas.append(Delta(delta_type, obj))
        if len(deltas) > 1 and deltas[-1].type is deltas[-2].type is DeltaType.DELETED:
            # Of two deletions the one that knows the last state stays.
            del deltas[-2 if isinstance(deltas[-2].object, DeletedFinalStateUnknown) else -1]
        self._changed.notify_all()

    def _missing(self, listed: dict[str, T]) -> list[DeletedFinalStateUnknown[T]]:
        """Return tombstones of the objects not *listed*: the queued first, in their newest state, then the known."""
        missing = [
            DeletedFinalStateUnknown(key, last_state(deltas[-1].object))
            for key, deltas in self._items.items()
            if key not in listed
        ]
        for key, obj in self._known.items():
            if key not in listed and key not in self._items:
                missing.append(DeletedFinalStateUnknown(key, obj))
        return missing

    def _transformed(self, obj: T) -> T:
        return obj if self._transform is None else self._transform(obj)

    def _is_synced(self) -> bool:
        return self._populated and not self._initial
