"""Reads from the bus what commands have recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from eventbus import Event, EventBroadcaster, Settings
from tests.waiting import eventually


class Recorded:
    """The events of a bus, raw and in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def about(self, name: str) -> list[Event]:
        """Those about the object *name*."""
        return [event for event in self.events if event.involved_object.name == name]

    def reasons(self, name: str) -> list[str]:
        return [event.reason for event in self.about(name)]

    def wait_for(self, name: str, *reasons: str) -> list[Event]:
        """Until exactly *reasons* were recorded about *name*; those events."""
        try:
            eventually(lambda: len(self.about(name)) >= len(reasons))
        finally:
            assert self.reasons(name) == list(reasons)
        return self.about(name)


@contextmanager
def recorded_on(url: str, prefix: str, since: datetime | None = None) -> Iterator[Recorded]:
    """All events of this bus from *since*, or from now, on."""
    found = Recorded()
    with EventBroadcaster(settings=Settings(redis_url=url, prefix=prefix, worker_block_ms=100)) as broadcaster:
        broadcaster.start_event_watcher(found.events.append, since=since)
        yield found
