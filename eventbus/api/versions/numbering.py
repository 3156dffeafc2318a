"""Numbers event versions over HTTP on a bus of several partitions. All API workers share one line of checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from eventbus.api.versions.checkpoint_line import CheckpointLine, Vector
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import EVENTS
from eventbus.errors import Expired
from eventbus.store.changes import read_versions

#: The partition that stores the line.
PARTITION: Final = 0
#: Attempts, because another worker may restart the line during each of them.
ATTEMPTS: Final = 5

R = TypeVar("R")


class MadeAnew(Expired):
    """The change that was read or written is lost and has no number. Retry the call."""


def read_again(read: Callable[[], R]) -> R:
    """Return the result of *read*; retry when it read lost changes. Raises: MadeAnew: every attempt failed."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except MadeAnew:
            continue
    return read()


class Numbering:
    """Keeps the line of checkpoints of a bus, and adds missing checkpoints. Thread-safe.

    One call runs at a time. It usually covers the versions of the threads that wait for it.

    Raises, from methods that call Redis: BusUnavailable, BusRefused; MadeAnew.
    Redis: FCALL checkpoint, on the partition 0.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._line = CheckpointLine(bus.partitions)
        self._reading = threading.Lock()  # held to read the line
        self._calling = threading.Lock()  # held for a call
        self._wanted: list[int] = [0] * bus.partitions
        self._client: Client | None = None

    def newest(self, client: Client) -> Vector:
        """Read the versions of all partitions, and return the newest checkpoint, which covers them.

        A list that starts now contains every change up to it.

        Redis: GET on version, in a pipeline; FCALL checkpoint if a version has changed.
        """
        for _ in range(ATTEMPTS):
            with self._reading:
                known = (self._line.newest, self._line.versions) if len(self._line) else None
            versions = read_versions(self._bus, client, EVENTS, range(self._bus.partitions))
            # A version that was known before the read is higher: the partition has lost these changes.
            is_lost = known is not None and any(now < then for now, then in zip(versions, known[1], strict=True))
            self._cover(versions, lost=known[0] if known and is_lost else None)
            if not is_lost:
                break
        with self._reading:
            return self._line.versions

    def cover(self, versions: Sequence[int]) -> None:
        """Make sure that a checkpoint is at or after *versions*; 0 matches any version."""
        self._cover(versions)

    def number(self, partition: int, version: int) -> int:
        """Return the number of an existing change."""
        wanted = [0] * self._bus.partitions
        wanted[partition] = version
        self._cover(wanted)
        with self._reading:
            return self._line.number(partition, version)

    def position(self, number: int) -> Vector:
        """Return the position after all changes up to *number*. Raises: Expired."""
        with self._reading:
            knows = bool(len(self._line)) and number <= self._line.newest
        if not knows:  # another worker may have assigned it
            self._call([0] * self._bus.partitions)
        with self._reading:
            return self._line.position(number)

    @contextmanager
    def line(self) -> Iterator[CheckpointLine]:
        """Lock the line for reading. Nothing is added during that time."""
        with self._reading:
            yield self._line

    def close(self) -> None:
        """Close the client."""
        with self._calling:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    def _cover(self, versions: Sequence[int], *, lost: int | None = None) -> None:
        with self._reading:
            if lost is None and self._line.covers(versions):
                return
            self._wanted = [max(pair) for pair in zip(self._wanted, versions, strict=True)]
        if lost is not None:
            self._call(versions, whole=True, lost=lost)
            return
        with self._calling:
            with self._reading:
                if self._line.covers(versions):
                    return
                wanted, self._wanted = self._wanted, [0] * len(versions)
            self._ask(wanted)
        with self._reading:
            if not self._line.covers(versions):
                raise MadeAnew("the store was created again in the meantime")

    def _call(self, versions: Sequence[int], *, whole: bool = False, lost: int | None = None) -> None:
        with self._calling:
            self._ask(versions, whole=whole, lost=lost)

    def _ask(self, versions: Sequence[int], *, whole: bool = False, lost: int | None = None) -> None:
        if self._client is None:
            self._client = self._bus.client(name="eventbus-api-numbers")
        functions = self._bus.functions(self._client, PARTITION)
        more = True
        while more:
            with self._reading:
                after = self._line.newest if len(self._line) else None
            reply = functions.checkpoint(versions, after=after, whole=whole, lost=lost)
            if reply is None:
                versions = read_versions(self._bus, self._client, EVENTS, range(self._bus.partitions))
                whole = True
                continue
            with self._reading:
                self._line.take(reply.oldest, reply.entries)
            lost, more = None, bool(reply.entries)
