"""A reader that mirrors the store as an informer does, and keeps an eye on every version it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.bus import Bus
from eventbus.errors import BusUnavailable, Expired
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions, WatchEvent, WatchEventType
from eventbus.store.object_store import ObjectStore
from eventbus.store.writer import ObjectWriter


class Reader:
    """Mirrors the store from a list and its changes, and checks every version on its way; relists when it must."""

    def __init__(self, bus: Bus) -> None:
        self.state: dict[str, Event] = {}
        self.changes: list[WatchEvent[Event]] = []
        self.problems: list[str] = []
        self.relists = 0
        self._bus = bus
        self._versions: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listed = threading.Event()
        self._thread.start()
        self._listed.wait(30)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        with self._bus.client() as client, ObjectStore(self._bus, client) as store:
            events = store.objects(EVENT)
            while not self._stop.is_set():
                try:
                    listed = events.list()
                except Exception:
                    self._stop.wait(0.05)
                    continue
                self.state = {full_name(event): event for event in listed.items}
                self._listed.set()
                self._follow(events, listed.resource_version)

    def _follow(self, events: ObjectWriter[Event], position: str) -> None:
        while not self._stop.is_set():
            try:
                watch = events.watch(ListOptions(resource_version=position, timeout_s=0.2))
                for change in watch:
                    self._apply(change)
                    position = change.resource_version
                watch.stop()
            except BusUnavailable:
                self._stop.wait(0.05)
            except Expired:
                self.relists += 1
                return

    def _apply(self, change: WatchEvent[Event]) -> None:
        assert change.object is not None
        self.changes.append(change)
        name, version = full_name(change.object), int(change.object.metadata.resource_version)
        held = self.state.get(name)
        seen = self._versions.get(name, 0)
        if version <= seen:
            self.problems.append(f"{name} went from {seen} to {version}")
        self._versions[name] = version
        if held is not None and version <= int(held.metadata.resource_version):
            return  # the list had it already
        if change.type is WatchEventType.DELETED:
            self.state.pop(name, None)
        else:
            self.state[name] = change.object


def full_name(event: Event) -> str:
    return f"{event.metadata.namespace}/{event.metadata.name}"


@contextmanager
def reading(bus: Bus) -> Iterator[Reader]:
    reader = Reader(bus)
    try:
        yield reader
    finally:
        reader.stop()
