"""Runs in threads what waits for Redis: each thread has a desk with its own client and the store's tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from eventbus.api.threads import Threads
from eventbus.api.versions.numbered_objects import open_objects
from eventbus.api.versions.numbering import Numbering
from eventbus.api.versions.wire_versions import Bases, WireVersions
from eventbus.api.watch.hub import FanHub
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS
from eventbus.model.kinds import Kind
from eventbus.store.change_hub import Hub
from eventbus.store.changes import Versions
from eventbus.store.writer import ObjectWriter

R = TypeVar("R")

#: Threads that wait for Redis: more calls than these wait for each other.
THREADS: Final = 16


class Desk:
    """The tools of one thread of the pool: a client of its own, and objects over it."""

    def __init__(self, bus: Bus, hub: Hub, bases: Bases, numbering: Numbering | None) -> None:
        self.bus = bus
        self.client: Client = bus.client(name="eventbus-api")
        self.functions = bus.functions(self.client, 0)  #: of what all share
        self._hub = hub
        self._bases = bases
        self._numbering = numbering
        self._objects: dict[Kind[Any], ObjectWriter[Any]] = {}

    def objects(self, kind: Kind[Any]) -> ObjectWriter[Any]:
        """Get, list, watch and write *kind*, in this thread."""
        found = self._objects.get(kind)
        if found is None:
            found = self._objects[kind] = open_objects(
                bus=self.bus, client=self.client, hub=self._hub, kind=kind, numbering=self._numbering_of(kind)
            )
        return found

    def versions(self, kind: Kind[Any]) -> WireVersions:
        """Return the translation between our versions of *kind* and those that clients see."""
        numbering = self._numbering_of(kind)
        if numbering is None:
            return self._bases.of(self.client, kind.plural)
        with numbering.line() as line:
            return WireVersions(line.base if len(line) else 0, self.bus.partitions)

    def to_store(self, kind: Kind[Any], version: str) -> str:
        """Return the store's version where a list or watch begins. Raises: Expired: nobody can go on from there."""
        numbering = self._numbering_of(kind)
        if numbering is None or version in ("", "0"):
            return self.versions(kind).to_store(version)
        return str(Versions(numbering.position(int(version))))

    def _numbering_of(self, kind: Kind[Any]) -> Numbering | None:
        return self._numbering if kind.plural == EVENTS else None

    def keep_bases(self) -> None:
        """See `Bases.keep`."""
        self._bases.keep(self.client)


class BlockingPool:
    """Runs in threads what waits for Redis; each thread has a `Desk`.

    Args: numbering: of events, where the bus has several partitions; else None.
    """

    def __init__(self, *, bus: Bus, hub: FanHub, numbering: Numbering | None) -> None:
        self.hub = hub
        self._bus = bus
        self._bases = Bases(bus)
        self._numbering = numbering
        self._local = threading.local()
        self._lock = threading.Lock()
        self._desks: list[Desk] = []
        self._threads = Threads(THREADS, "eventbus-api")

    async def run(self, work: Callable[[Desk], R]) -> R:
        """Return or raise what *work* does. It goes on to its end though the caller is cancelled."""
        return await self._threads.run(lambda: work(self._desk()))

    def close(self) -> None:
        """Wait for what is begun, drop what is not, and close the clients."""
        self._threads.close()
        with self._lock:
            while self._desks:
                self._desks.pop().client.close()

    def _desk(self) -> Desk:
        desk: Desk | None = getattr(self._local, "desk", None)
        if desk is None:
            desk = self._local.desk = Desk(self._bus, self.hub, self._bases, self._numbering)
            with self._lock:
                self._desks.append(desk)
        return desk
