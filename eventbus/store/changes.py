"""Watching the store: the changes behind a version, in order, or the news that some are lost.

One rule finds every loss: the next change must be the last version plus one.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Self

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError, Expired, PoisonBatch
from eventbus.event import Event
from eventbus.store.stored import decode_stored

log = logging.getLogger("eventbus")

READ_COUNT = 500
#: The version of a watch that has not told all it begins with: nobody can go on from there.
UNFINISHED = "unfinished"


class ChangeType(StrEnum):
    """What happened to the object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


_TYPES = {b"A": ChangeType.ADDED, b"M": ChangeType.MODIFIED, b"D": ChangeType.DELETED}


class Change(msgspec.Struct, frozen=True):
    """One change. *object* carries its version; of a DELETED one it is the last state with the deletion's version."""

    type: ChangeType
    object: Event
    key: str
    partition: int


class Versions:
    """The resource version of a list: one counter a partition, opaque to everybody else."""

    def __init__(self, counters: Sequence[int]) -> None:
        self.counters = tuple(counters)

    def __str__(self) -> str:
        return "-".join(map(str, self.counters))

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Read what `str` gave.

        Raises: Expired: it belongs to another bus, or stands in the middle of a watch's first events.
        """
        if text == UNFINISHED:
            raise Expired("the watch ended before it had told all there was")
        try:
            counters = [int(part) for part in text.split("-")]
        except ValueError as error:
            raise Expired(f"{text!r} is not a resource version of this bus") from error
        if len(counters) != partitions:
            raise Expired(f"resource version {text!r} has {len(counters)} parts, the bus {partitions} partitions")
        return cls(counters)


def follows(version: int, after: int) -> bool:
    """The one rule: the change behind *after* is the next number, or some are lost."""
    return version == after + 1


def change_type(letter: bytes) -> ChangeType:
    """As the stream has it. Raises: KeyError: it is none."""
    return _TYPES[letter]


def read_versions(bus: Bus, client: Client, partitions: Sequence[int] | None = None) -> list[int]:
    """The newest version of each partition (of *partitions*), in one round.

    Redis: HGET on meta, in a pipeline.
    """
    pipe: Any = client.pipeline(transaction=False)
    for partition in range(bus.partitions) if partitions is None else partitions:
        pipe.hget(bus.keys[partition].meta, "rv")
    with redis_errors():
        return [int(found or 0) for found in pipe.execute()]


class ChangeReader:
    """The changes of one partition behind a version. One thread, one connection."""

    def __init__(self, *, bus: Bus, client: Client, partition: int, after: int, count: int = READ_COUNT) -> None:
        self._client = client
        self._count = count
        self._key = bus.keys[partition].changes
        self._partition = partition
        self.after = after

    def read(self, block_ms: int) -> list[Change]:
        """The next changes, oldest first; blocks for at most *block_ms*.

        Raises:  Expired: changes behind `after` are gone, or the store was made anew: list again.
                 BusUnavailable: call again; nothing is lost by it.
        Redis:   XREAD on changes.
        """
        with redis_errors():
            reply: Any = self._client.execute_command(
                "XREAD", "COUNT", self._count, "BLOCK", max(1, block_ms), "STREAMS", self._key, f"{self.after}-0"
            )
        if not reply:
            return []
        found: list[Change] = []
        for entry_id, fields in reply[0][1]:
            version = int(entry_id.split(b"-")[0])
            if not follows(version, self.after):
                if found:
                    return found  # what is whole is handed out first; the next read raises
                raise Expired(f"too old resource version: {self.after} ({version})")
            self.after = version
            change = self._decode(fields)
            if change is not None:
                found.append(change)
        return found

    def _decode(self, fields: dict[bytes, bytes]) -> Change | None:
        if b"n" in fields:  # of another kind; its version counts all the same
            return None
        try:
            kind, key, event = _TYPES[fields[b"t"]], fields[b"k"].decode(), decode_stored(fields[b"o"])
        except (PoisonBatch, KeyError, UnicodeDecodeError):
            return None
        return None if event is None else Change(kind, event, key, self._partition)


class ChangeWatch:
    """The changes of all partitions, merged; order is kept per object. Iterate, and `stop` from anywhere.

    Raises Expired out of the iteration, once, when any partition's changes were lost; waits through an absent Redis.
    """

    def __init__(self, *, bus: Bus, after: Versions, block_ms: int = 1000) -> None:
        self._block_ms = block_ms
        self._stop = threading.Event()
        self._queue: queue.Queue[Change | EventBusError] = queue.Queue(maxsize=10_000)
        self._clients = [bus.client(block_ms=block_ms, name="eventbus-changes") for _ in after.counters]
        self._readers = [
            ChangeReader(bus=bus, client=client, partition=partition, after=counter)
            for partition, (client, counter) in enumerate(zip(self._clients, after.counters, strict=True))
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(reader,), name=f"eventbus-changes-{number}", daemon=True)
            for number, reader in enumerate(self._readers)
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Change]:
        while not self._stop.is_set():
            change = self.get(timeout_s=0.5)
            if change is not None:
                yield change

    def get(self, timeout_s: float) -> Change | None:
        """The next change, or None after *timeout_s*. Raises: Expired."""
        try:
            found = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, EventBusError):
            self.stop()
            raise found
        return found

    @property
    def versions(self) -> Versions:
        """How far it has read."""
        return Versions([reader.after for reader in self._readers])

    def stop(self) -> None:
        """End the iteration and every thread. Idempotent."""
        self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._block_ms / 1000 + 1)
        for client in self._clients:
            client.close()

    def _run(self, reader: ChangeReader) -> None:
        while not self._stop.is_set():
            try:
                changes: Sequence[Change | EventBusError] = reader.read(self._block_ms)
            except Expired as error:
                changes = [error]
            except EventBusError:
                self._stop.wait(0.5)
                continue
            except Exception:
                if not self._stop.is_set():  # else its client was closed in the middle of a read
                    log.exception("the watch goes on after an unexpected error")
                self._stop.wait(0.5)
                continue
            for change in changes:
                while not self._stop.is_set():
                    try:
                        self._queue.put(change, timeout=0.5)
                        break
                    except queue.Full:
                        continue
                if isinstance(change, Expired):
                    return
