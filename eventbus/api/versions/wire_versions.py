"""Resource versions as HTTP clients see them: for each kind one integer that only grows.

With one partition it is the store's counter minus a base, which the bus stores. The base keeps numbers small, because
the store's counter starts at the time in microseconds. With several partitions it is the sum of the counters minus a
base, along a line of checkpoints that all workers share: see `checkpoint_line`. There, objects already have their
number.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused
from eventbus.store.changes import NEVER_WRITTEN, UNFINISHED, read_versions

#: The first number, so that up to this many changes before the base was set have a positive number too.
FIRST: Final = 1_000_000


class WireVersions(msgspec.Struct, frozen=True):
    """Converts the versions of one kind in both directions."""

    base: int = 0
    partitions: int = 1

    def own(self, version: str) -> str:
        """Return the client's version of an object."""
        if self.partitions > 1 or not self.base or not version.isdecimal() or int(version) <= NEVER_WRITTEN:
            return version
        return str(max(NEVER_WRITTEN, int(version) - self.base))

    def of_list(self, version: str) -> str:
        """Return the client's version of a list or a bookmark."""
        return str(sum(map(int, version.split("-"))) - self.base) if "-" in version else self.own(version)

    def of_frame(self, position: str, own: str) -> str:
        """Return the version of a frame: the watch's *position*, or *own* while no watch can resume from it."""
        return self.own(own) if position in ("", UNFINISHED) or "-" not in position else self.of_list(position)

    def to_store(self, version: str) -> str:
        """Return the store's version for a client's. Text that is not a number is kept, and matches no object."""
        if self.partitions > 1 or not (self.base and version.isdecimal() and version.isascii()):
            return version
        return version if int(version) <= NEVER_WRITTEN else str(int(version) + self.base)


class Bases:
    """The bases of a bus, shared by its workers: fields of `eb:{p}:bus`, set once. Thread-safe."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._known: dict[str, WireVersions] = {}

    def of(self, client: Client, plural: str) -> WireVersions:
        """Return the versions of a kind in one partition. Redis: HGET, GET, HSETNX on bus, the first time."""
        versions = self._known.get(plural)
        if versions is not None:
            return versions
        newest = read_versions(self._bus, client, plural, [0])[0]
        if newest <= NEVER_WRITTEN:
            return WireVersions()  # it gets its base with its first object
        new = WireVersions(self._agreed(client, plural, max(0, newest - FIRST)))
        with self._lock:
            return self._known.setdefault(plural, new)

    def keep(self, client: Client) -> None:
        """Store the bases again after a flush of the bus: numbers jump up, and no worker restarts them."""
        for plural, versions in list(self._known.items()):
            if versions.base:
                self._agreed(client, plural, versions.base)

    def _agreed(self, client: Client, plural: str, base: int) -> int:
        key, field = bus_key(self._bus.prefix), f"base:{plural}"
        try:
            with redis_errors():
                client.hsetnx(key, field, str(base))
                stored: Any = client.hmget(key, [field])
            return int(stored[0])
        except BusRefused:  # a read-only user sees the store's own numbers until a writer sets the base
            with redis_errors():
                stored = client.hmget(key, [field])
            return int(stored[0] or 0)
