"""List, then watch: how a reader follows the store without missing or repeating a version."""

from __future__ import annotations

from eventbus import Event, Expired
from eventbus.store.changes import ChangeType, ChangeWatch
from eventbus.store.object_store import ObjectStore


class Reader:
    """Every event as it is written, oldest first. Use it from one thread; `stop` it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._versions: dict[str, int] = {}
        self._listed: list[Event] = []
        self._watch: ChangeWatch = self._begin()

    def take(self, timeout_s: float) -> list[Event]:
        """What was written since; empty after *timeout_s*."""
        if self._listed:
            listed, self._listed = self._listed, []
            return listed
        try:
            change = self._watch.get(timeout_s)
        except Expired:  # changes were lost, or the store was made anew: begin again with a list
            self._watch = self._begin()
            return []
        if change is None or change.type is ChangeType.DELETED:
            return []
        return [change.object] if self._is_new(change.object) else []

    def stop(self) -> None:
        self._watch.stop()

    def _begin(self) -> ChangeWatch:
        found = self._store.list()
        self._listed = [event for event in found.items if self._is_new(event)]
        return self._store.watch(found.resource_version)

    def _is_new(self, event: Event) -> bool:
        version = int(event.metadata.resource_version)
        if version <= self._versions.get(event.metadata.uid, 0):
            return False
        self._versions[event.metadata.uid] = version
        return True
