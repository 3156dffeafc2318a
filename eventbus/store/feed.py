"""Reads the changes of one kind for all watches of this process: it reads, decodes once, and fans out."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError, Expired
from eventbus.log import log
from eventbus.store.changes import READ_COUNT, Change, follow, read_versions
from eventbus.store.storage import Storage

BLOCK_MS = 500
PAUSE_S = 0.5
#: How often partitions on which nothing comes are looked at while others are busy.
CHECK_S = 1.0


class Subscriber(Protocol):
    """One watch. It is called from the feed's threads, which hold a lock: it must neither block nor call back."""

    def offer(self, partition: int, changes: Sequence[Change[Any]], version: int) -> None:
        """Take the changes of its kind in *partition*, up to *version*."""
        ...

    def fail(self, error: EventBusError) -> None:
        """Take the error that ends the changes: some were lost, and nothing more will be offered."""
        ...


class Feed:
    """Reads all partitions of one kind while somebody watches it.

    One thread, connection and blocking XREAD for all partitions (on a cluster: each). It starts with the first
    subscriber and ends, by itself, half a second after the last. Redis away: it waits, and nothing is lost by that.
    Changes lost: everybody is told Expired, also when nothing follows the loss. Thread-safe.
    """

    def __init__(self, *, bus: Bus, storage: Storage[Any]) -> None:
        self.reads = 0  #: XREADs so far
        self._bus = bus
        self._storage = storage
        self._plural = storage.kind.plural
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._subscribers: set[Subscriber] = set()
        self._positions = dict.fromkeys(storage.partitions, 0)
        every = list(storage.partitions)
        self._threads = (
            [_ReaderThread([partition]) for partition in every] if bus.is_cluster else [_ReaderThread(every)]
        )

    @property
    def is_reading(self) -> bool:
        """Return True while one of its threads runs."""
        return any(reader.running for reader in self._threads)

    def attach(self, subscriber: Subscriber, newest: Sequence[int]) -> tuple[int, ...]:
        """Begin to offer changes to *subscriber*.

        Args:    newest: the version of each partition as it was read just now; where reading begins if nobody reads.
        Returns: the versions behind which it is told everything. What is up to there it reads itself.
        """
        with self._lock:
            self._subscribers.add(subscriber)
            for reader in self._threads:
                if not reader.running:
                    for partition in reader.partitions:
                        self._positions[partition] = newest[partition]
                    reader.running = True
                    name = f"eventbus-hub-{self._plural}-{reader.partitions[0]}"
                    reader.thread = threading.Thread(target=self._run, args=(reader,), name=name, daemon=True)
                    reader.thread.start()
            return tuple(self._positions.values())

    def detach(self, subscriber: Subscriber) -> None:
        """Offer nothing more to *subscriber*. Again: no effect."""
        with self._lock:
            self._subscribers.discard(subscriber)

    def close(self) -> None:
        """Have the threads end; watches that are still open get no more changes."""
        self._closed.set()

    def join(self) -> None:
        """Wait for the threads, after `close`."""
        with self._lock:
            threads = [reader.thread for reader in self._threads if reader.thread is not None]
        for thread in threads:
            # One that Ctrl-C has kept from starting cannot be joined.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(BLOCK_MS / 1000 + 1)

    def _run(self, reader: _ReaderThread) -> None:
        client = self._bus.client(block_ms=BLOCK_MS, name="eventbus-hub")
        try:
            while self._go_on(reader):
                try:
                    self._read(client, reader)
                except EventBusError as error:
                    log.debug("reading changes of %s waits: %s", self._plural, error)
                    self._closed.wait(PAUSE_S)
                except Exception:
                    log.exception("reading changes of %s goes on after an unexpected error", self._plural)
                    self._closed.wait(PAUSE_S)
        finally:
            client.close()

    def _go_on(self, reader: _ReaderThread) -> bool:
        with self._lock:
            reader.running = bool(self._subscribers) and not self._closed.is_set()
            return reader.running

    def _read(self, client: Client, reader: _ReaderThread) -> None:
        keys = [self._key(partition) for partition in reader.partitions]
        after = [f"{self._positions[partition]}-0" for partition in reader.partitions]
        with redis_errors():
            reply: Any = client.execute_command(
                "XREAD", "COUNT", READ_COUNT, "BLOCK", BLOCK_MS, "STREAMS", *keys, *after
            )
        self.reads += 1
        found = dict(reply or ())
        for partition, key in zip(reader.partitions, keys, strict=True):
            if entries := found.get(key):
                self._tell(client, partition, entries)
        quiet = [partition for partition, key in zip(reader.partitions, keys, strict=True) if not found.get(key)]
        now = time.monotonic()
        # What is written all the time on one partition must not hide what is lost on another.
        if quiet and (not found or now - reader.checked_at >= CHECK_S):
            reader.checked_at = now
            self._check(client, quiet)

    def _tell(self, client: Client, partition: int, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        with self._lock:  # a few ms, in which nobody can begin: whoever does is told all behind the position he got
            found = follow(self._storage, partition, self._positions[partition], entries)
            self._positions[partition] = found.version
            for subscriber in self._subscribers:
                subscriber.offer(partition, found.changes, found.version)
        if found.lost is not None:
            self._lose(partition, found.lost, self._newest(client, [partition])[0])

    def _check(self, client: Client, partitions: Sequence[int]) -> None:
        """Check that nothing is lost although nothing came (FLUSHALL, a tail), since nothing may ever come."""
        for partition, version in zip(partitions, self._newest(client, partitions), strict=True):
            position = self._positions[partition]
            # Versions and changes are written together: one that is ahead of us has changes, or these are gone.
            if version < position or (version > position and not self._has_more(client, partition, position)):
                self._lose(partition, Expired(f"too old resource version: {position} ({version})"), version)

    def _has_more(self, client: Client, partition: int, position: int) -> bool:
        with redis_errors():
            return bool(client.execute_command("XREAD", "COUNT", 1, "STREAMS", self._key(partition), f"{position}-0"))

    def _newest(self, client: Client, partitions: Sequence[int]) -> list[int]:
        return read_versions(self._bus, client, self._plural, partitions)

    def _key(self, partition: int) -> bytes:
        return self._bus.keys[partition].changes_of(self._plural)

    def _lose(self, partition: int, error: Expired, newest: int) -> None:
        with self._lock:
            self._positions[partition] = newest
            for subscriber in self._subscribers:
                subscriber.fail(error)
            self._subscribers.clear()


class _ReaderThread:
    """The partitions that one thread reads. *running*: it will check for subscribers once more before it ends."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.partitions = list(partitions)
        self.running = False
        self.checked_at = 0.0
        self.thread: threading.Thread | None = None
