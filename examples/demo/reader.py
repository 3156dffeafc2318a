"""Follows the store with an informer, without missing or repeating a version."""

from __future__ import annotations

import queue

from eventbus import Event, SharedInformerFactory
from eventbus.store.object_store import ObjectStore


class Reader:
    """Every event as it is written, oldest first. Use it from one thread; `stop` it."""

    def __init__(self, store: ObjectStore) -> None:
        self._told: queue.Queue[Event] = queue.Queue()
        self._factory = SharedInformerFactory(store)
        self._factory.events().add_event_handler(
            on_add=lambda event, initial: self._told.put(event), on_update=lambda old, new: self._told.put(new)
        )
        self._factory.start()

    def take(self, timeout_s: float) -> list[Event]:
        """Return what was written since the last call; empty after *timeout_s*."""
        try:
            found = [self._told.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._told.empty():
            found.append(self._told.get())
        return found

    def stop(self) -> None:
        self._factory.stop()
