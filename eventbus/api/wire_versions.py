"""Resource versions as HTTP clients see them: one whole number a kind, that only grows.

Of one partition it is the store's own counter less a base, which the bus keeps, so that numbers begin small though the
store's begin at the time in microseconds. Of several it is the counters behind each other, each in `DIGITS` digits:
along a watch none of them shrinks and one grows, so the number grows too, and every worker reads it unasked.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, Expired
from eventbus.store.changes import NEVER_WRITTEN, UNFINISHED, read_versions

#: A counter jumps to the time in microseconds where state was lost: 16 digits until the year 2286.
DIGITS: Final = 16
#: Where numbers begin: what was changed before a base was set, so many times at the most, has one, too.
FIRST: Final = 1_000_000


class WireVersions(msgspec.Struct, frozen=True):
    """The versions of one kind, there and back."""

    base: int = 0
    partitions: int = 1

    def own(self, version: str) -> str:
        """Of an object."""
        if not self.base or not version.isdecimal() or int(version) <= NEVER_WRITTEN:
            return version
        return str(max(NEVER_WRITTEN, int(version) - self.base))

    def of_list(self, version: str) -> str:
        """Of a list, or a bookmark."""
        first, *rest = version.split("-")
        return self.own(first) if not rest else first + "".join(counter.zfill(DIGITS) for counter in rest)

    def of_frame(self, position: str, own: str) -> str:
        """Of a frame: the watch's *position*, or the object's *own* as long as nobody can go on from there."""
        return self.own(own) if position in ("", UNFINISHED) or "-" not in position else self.of_list(position)

    def to_store(self, version: str) -> str:
        """What a list or watch asks for. Raises: Expired: it is one object's own, of which none can go on."""
        if version in ("", "0"):
            return version
        if self.partitions == 1:
            return self.own_to_store(version)
        if len(version) <= DIGITS * (self.partitions - 1):
            raise Expired(f"too old resource version: {version}")
        counters: list[str] = []
        while len(counters) < self.partitions - 1:
            version, last = version[:-DIGITS], version[-DIGITS:]
            counters.append(str(int(last)))
        return "-".join([version, *reversed(counters)])

    def own_to_store(self, version: str) -> str:
        """What a write asks an object to have. What is no number stays what it is, and fits no object."""
        if not (self.base and version.isdecimal() and version.isascii()) or int(version) <= NEVER_WRITTEN:
            return version
        return str(int(version) + self.base)

    def is_joined(self, version: str) -> bool:
        """Whether *version* is that of a frame, not an object's own: of a bus with several partitions."""
        return self.partitions > 1 and version.isdecimal() and len(version) > DIGITS

    def holds(self, version: str, own: str) -> bool:
        """Whether an object that a frame of this joined *version* told has still its *own*.

        In the frame that tells a change, the counter of the object's partition is the object's version.
        """
        return own in self.to_store(version).split("-")


class Bases:
    """The bases of a bus, as its workers have agreed on them: fields of `eb:{p}:bus`, set once. Thread-safe."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._known: dict[str, WireVersions] = {}

    def of(self, client: Client, plural: str, partitions: int) -> WireVersions:
        """The versions of a kind. Redis: HGET, GET, HSETNX on bus, the first time."""
        found = self._known.get(plural)
        if found is not None:
            return found
        if partitions > 1:
            made = WireVersions(partitions=partitions)
        else:
            newest = read_versions(self._bus, client, plural, [0])[0]
            if newest <= NEVER_WRITTEN:
                return WireVersions()  # it gets its base with its first object
            made = WireVersions(self._agreed(client, plural, max(0, newest - FIRST)))
        with self._lock:
            return self._known.setdefault(plural, made)

    def keep(self, client: Client) -> None:
        """Tell the bases again to a bus that was flushed: numbers jump up, and no worker begins them anew."""
        for plural, versions in list(self._known.items()):
            if versions.base:
                self._agreed(client, plural, versions.base)

    def _agreed(self, client: Client, plural: str, base: int) -> int:
        key, field = bus_key(self._bus.prefix), f"base:{plural}"
        try:
            with redis_errors():
                client.hsetnx(key, field, str(base))
                found: Any = client.hmget(key, [field])
            return int(found[0])
        except BusRefused:  # who may only read sees the store's own numbers, as nobody who writes has set a base
            with redis_errors():
                found = client.hmget(key, [field])
            return int(found[0] or 0)


__all__ = ["DIGITS", "FIRST", "Bases", "WireVersions"]
