"""One reader of the changes a process, however many watch: it reads, decodes once, and fans out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.keys import EVENTS
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError, Expired, PoisonBatch
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata
from eventbus.store.changes import READ_COUNT, ChangeType, change_type, follows, read_versions
from eventbus.store.items import Was, decode_object, decode_was

log = logging.getLogger("eventbus")

BLOCK_MS = 500
PAUSE_S = 0.5


class ObjectChange(msgspec.Struct, frozen=True):
    """One change of an object of any kind; *object* carries its version, *was* says what selectors saw before."""

    type: ChangeType
    object: HasMetadata
    version: int
    partition: int
    was: Was | None = None


class Subscriber(Protocol):
    """One who watches. Called from the hub's threads; never blocks."""

    kind: Kind[Any]

    def offer(self, partition: int, changes: Sequence[ObjectChange], version: int) -> None:
        """What changed of its kind in *partition*, up to *version*."""
        ...

    def fail(self, error: EventBusError) -> None:
        """Nothing more will be offered: changes were lost."""
        ...


def decode_change(kind: Kind[Any], partition: int, version: int, fields: Mapping[bytes, bytes]) -> ObjectChange | None:
    """One entry of the stream; None: it cannot be read, by us at least."""
    try:
        found = decode_object(kind, fields[b"o"])
        was = decode_was(fields.get(b"w"))
        return None if found is None else ObjectChange(change_type(fields[b"t"]), found, version, partition, was)
    except (PoisonBatch, KeyError):
        return None


def plural_of(fields: Mapping[bytes, bytes]) -> str:
    """The kind an entry is of."""
    return fields.get(b"n", EVENTS.encode()).decode("utf-8", "replace")


class ChangeHub:
    """Reads the changes of all partitions while somebody watches, and tells each what is of its kind.

    One thread, connection and blocking XREAD for all partitions (on a cluster: each). It starts with the first
    subscriber and ends, by itself, half a second after the last. Redis away: it waits, and nothing is lost by that.
    Changes lost: everybody is told Expired, also when nothing follows the loss. Thread-safe.
    """

    def __init__(self, bus: Bus, *, block_ms: int = BLOCK_MS) -> None:
        self.reads = 0  #: XREADs so far
        self._bus = bus
        self._block_ms = block_ms
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._subscribers: dict[Kind[Any], set[Subscriber]] = {}
        self._positions = [0] * bus.partitions
        every = range(bus.partitions)
        self._lanes = [_Lane([partition]) for partition in every] if bus.is_cluster else [_Lane(list(every))]

    def attach(self, subscriber: Subscriber, newest: Sequence[int]) -> tuple[int, ...]:
        """Begin to offer changes to *subscriber*.

        Args:    newest: the version of each partition as it was read just now; where reading begins if nobody reads.
        Returns: the versions behind which it is told everything. What is up to there it reads itself.
        """
        with self._lock:
            self._subscribers.setdefault(subscriber.kind, set()).add(subscriber)
            for lane in self._lanes:
                if not lane.running:
                    for partition in lane.partitions:
                        self._positions[partition] = newest[partition]
                    lane.running = True
                    lane.thread = threading.Thread(
                        target=self._run, args=(lane,), name=f"eventbus-hub-{lane.partitions[0]}", daemon=True
                    )
                    lane.thread.start()
            return tuple(self._positions)

    def detach(self, subscriber: Subscriber) -> None:
        """Offer nothing more. Again: no effect."""
        with self._lock:
            self._subscribers.get(subscriber.kind, set()).discard(subscriber)

    def close(self) -> None:
        """End the threads; who still watches is told nothing more."""
        self._closed.set()
        with self._lock:
            threads = [lane.thread for lane in self._lanes if lane.thread is not None]
        for thread in threads:
            # One that Ctrl-C has kept from starting cannot be joined.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(self._block_ms / 1000 + 1)

    def _run(self, lane: _Lane) -> None:
        client = self._bus.client(block_ms=self._block_ms, name="eventbus-hub")
        try:
            while self._go_on(lane):
                try:
                    self._read(client, lane)
                except EventBusError as error:
                    log.debug("reading changes waits: %s", error)
                    self._closed.wait(PAUSE_S)
                except Exception:
                    log.exception("reading changes goes on after an unexpected error")
                    self._closed.wait(PAUSE_S)
        finally:
            client.close()

    def _go_on(self, lane: _Lane) -> bool:
        with self._lock:
            lane.running = any(self._subscribers.values()) and not self._closed.is_set()
            return lane.running

    def _read(self, client: Client, lane: _Lane) -> None:
        keys = [self._bus.keys[partition].changes for partition in lane.partitions]
        after = [f"{self._positions[partition]}-0" for partition in lane.partitions]
        with redis_errors():
            reply: Any = client.execute_command(
                "XREAD", "COUNT", READ_COUNT, "BLOCK", self._block_ms, "STREAMS", *keys, *after
            )
        self.reads += 1
        found = dict(reply or ())
        for partition, key in zip(lane.partitions, keys, strict=True):
            if entries := found.get(key):
                self._tell(client, partition, entries)
        if not found:
            self._check(client, lane)

    def _tell(self, client: Client, partition: int, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        lost = ""
        with self._lock:  # a few ms, in which nobody can begin: whoever does is told all behind the position he got
            position = self._positions[partition]
            changes: dict[Kind[Any], list[ObjectChange]] = {
                kind: [] for kind, group in self._subscribers.items() if group
            }
            for entry_id, fields in entries:
                version = int(entry_id.partition(b"-")[0])
                if not follows(version, position):
                    lost = f"too old resource version: {position} ({version})"
                    break
                position = version
                plural = plural_of(fields)
                for kind in (kind for kind in changes if kind.plural == plural):
                    change = decode_change(kind, partition, version, fields)
                    changes[kind] += [] if change is None else [change]
            self._positions[partition] = position
            for kind, found in changes.items():
                for subscriber in self._subscribers[kind]:
                    subscriber.offer(partition, found, position)
        if lost:
            self._lose(partition, lost, read_versions(self._bus, client)[partition])

    def _check(self, client: Client, lane: _Lane) -> None:
        """Nothing came: look whether something is lost all the same (FLUSHALL, a tail), since nothing may ever come."""
        newest = read_versions(self._bus, client, lane.partitions)
        for partition, version in zip(lane.partitions, newest, strict=True):
            position = self._positions[partition]
            # Versions and changes are written together: one that is ahead of us has changes, or these are gone.
            if version < position or (version > position and not self._has_more(client, partition, position)):
                self._lose(partition, f"too old resource version: {position} ({version})", version)

    def _has_more(self, client: Client, partition: int, position: int) -> bool:
        key = self._bus.keys[partition].changes
        with redis_errors():
            return bool(client.execute_command("XREAD", "COUNT", 1, "STREAMS", key, f"{position}-0"))

    def _lose(self, partition: int, problem: str, newest: int) -> None:
        with self._lock:
            self._positions[partition] = newest
            for group in self._subscribers.values():
                for subscriber in group:
                    subscriber.fail(Expired(problem))
                group.clear()


class _Lane:
    """The partitions that one thread reads. *running*: it will look at the subscribers once more before it ends."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.partitions = list(partitions)
        self.running = False
        self.thread: threading.Thread | None = None


__all__ = ["ChangeHub", "ObjectChange", "Subscriber", "decode_change", "plural_of"]
