"""A handler that believes only what can be."""

from __future__ import annotations

import time
from typing import Any

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, last_state
from eventbus.model.list_watch import HasMetadata


class Witness:
    """Each disbelief is a notification at which it raises."""

    def __init__(self, pause_s: float = 0) -> None:
        self.held: dict[str, Any] = {}
        self.told = 0
        self._pause_s = pause_s

    def on_add(self, found: Any, initial: bool) -> None:
        self._look()
        assert full_name(found) not in self.held, f"added twice: {full_name(found)}"
        self.held[full_name(found)] = found

    def on_update(self, old: Any, new: Any) -> None:
        self._look()
        assert self.held[full_name(new)] == old, "the step does not begin where the last one ended"
        assert version(new) > version(old) or new == old, "back in time"
        self.held[full_name(new)] = new

    def on_delete(self, found: Any) -> None:
        self._look()
        held = self.held.pop(full_name(last_state(found)))
        assert version(last_state(found)) >= version(held)
        if isinstance(found, DeletedFinalStateUnknown):
            assert found.object == held, "the last state that was seen"

    def _look(self) -> None:
        self.told += 1
        if self._pause_s:
            time.sleep(self._pause_s)


def full_name(found: HasMetadata) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


def version(found: HasMetadata) -> int:
    return int(found.metadata.resource_version)
