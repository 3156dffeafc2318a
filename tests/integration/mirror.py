"""A reader that mirrors the store as an informer does, and keeps an eye on every version it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.bus import Bus
from eventbus.errors import Expired
from eventbus.event import Event
from eventbus.store.changes import Change, ChangeType, ChangeWatch
from eventbus.store.object_store import ObjectStore


class Reader:
    """Mirrors the store from a list and its changes, and checks every version on its way; relists when it must."""

    def __init__(self, bus: Bus) -> None:
        self.state: dict[str, Event] = {}
        self.changes: list[Change] = []
        self.problems: list[str] = []
        self.relists = 0
        self._bus = bus
        self._versions: dict[tuple[int, str], int] = {}
        self._stop = threading.Event()
        self._watch: ChangeWatch | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listed = threading.Event()
        self._thread.start()
        self._listed.wait(5)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        client = self._bus.client()
        while not self._stop.is_set():
            try:
                listed = ObjectStore(self._bus, client).list()
                self.state = {full_name(event): event for event in listed.items}
                watch = ObjectStore(self._bus, client).watch(listed.resource_version)
            except Exception:
                self._stop.wait(0.05)
                continue
            self._listed.set()
            self._follow(watch)
        client.close()

    def _follow(self, watch: ChangeWatch) -> None:
        try:
            while not self._stop.is_set():
                if (change := watch.get(0.05)) is not None:
                    self._apply(change)
        except Expired:
            self.relists += 1
        finally:
            watch.stop()

    def _apply(self, change: Change) -> None:
        self.changes.append(change)
        name, version = full_name(change.object), int(change.object.metadata.resource_version)
        held = self.state.get(name)
        seen = self._versions.get((change.partition, change.key), 0)
        if version <= seen:
            self.problems.append(f"{name} went from {seen} to {version}")
        self._versions[change.partition, change.key] = version
        if held is not None and version <= int(held.metadata.resource_version):
            return  # the list had it already
        if change.type is ChangeType.DELETED:
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
