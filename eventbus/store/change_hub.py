"""Reads the changes of each watched kind once for all watches of this process: one feed for each kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError, Expired
from eventbus.model.kinds import Kind
from eventbus.store.changes import READ_COUNT, Change, follow, read_versions
from eventbus.store.storage import Storage
from eventbus.util.log import log

BLOCK_MS = 500
PAUSE_S = 0.5
#: Seconds between two checks of idle partitions while others are busy.
CHECK_S = 1.0


class Subscriber(Protocol):
    """One watch. The feed's threads call it with a lock held, so it must not block or call the feed."""

    def offer(self, partition: int, changes: Sequence[Change[Any]], version: int) -> None:
        """Take the changes of its kind in *partition*, up to *version*."""
        ...

    def fail(self, error: EventBusError) -> None:
        """Take the error that ends the changes: some were lost, and no more are offered."""
        ...


class Hub(Protocol):
    """The interface of a `ChangeHub` that watches use; a wrapper of a hub implements it as well."""

    def attach(self, subscriber: Subscriber, storage: Storage[Any], newest: Sequence[int]) -> tuple[int, ...]:
        """See `ChangeHub.attach`."""
        ...

    def detach(self, subscriber: Subscriber, kind: Kind[Any]) -> None:
        """See `ChangeHub.detach`."""
        ...


class ChangeHub:
    """One reader of changes for each kind, shared by all its watches. Thread-safe."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._feeds: dict[Kind[Any], Feed] = {}

    @property
    def reads(self) -> int:
        """Return the number of XREADs so far."""
        return sum(feed.reads for feed in list(self._feeds.values()))

    @property
    def is_reading(self) -> bool:
        """Return True while one of its threads runs."""
        return any(feed.is_reading for feed in list(self._feeds.values()))

    def attach(self, subscriber: Subscriber, storage: Storage[Any], newest: Sequence[int]) -> tuple[int, ...]:
        """Offer the changes of a kind from now on: see `Feed.attach`.

        The *storage* of the first subscriber decodes them.
        """
        with self._lock:
            feed = self._feeds.get(storage.kind)
            if feed is None:
                feed = self._feeds[storage.kind] = Feed(bus=self._bus, storage=storage)
        return feed.attach(subscriber, newest)

    def detach(self, subscriber: Subscriber, kind: Kind[Any]) -> None:
        """Stop offering changes to *subscriber*. Idempotent."""
        if feed := self._feeds.get(kind):
            feed.detach(subscriber)

    def close(self) -> None:
        """End the threads; watches that are still open get no more changes."""
        with self._lock:
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.close()
        for feed in feeds:
            feed.join()


class Feed:
    """Reads all partitions of one kind while it has subscribers.

    It has one thread, connection and blocking XREAD for all partitions, on a cluster for each partition. The thread
    starts with the first subscriber, and ends half a second after the last. While Redis is unavailable it waits, and
    loses no changes. After a loss of changes, every subscriber gets Expired, even if no change follows. Thread-safe.
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
        """Offer changes to *subscriber* from now on.

        Args:    newest: the version of each partition, just read: the start if this feed is not reading yet.
        Returns: the versions after which *subscriber* gets every change. It reads the changes before them itself.
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
        """Stop offering changes to *subscriber*. Idempotent."""
        with self._lock:
            self._subscribers.discard(subscriber)

    def close(self) -> None:
        """End the threads; watches that are still open get no more changes."""
        self._closed.set()

    def join(self) -> None:
        """Wait for the threads, after `close`."""
        with self._lock:
            threads = [reader.thread for reader in self._threads if reader.thread is not None]
        for thread in threads:
            # Joining raises if Ctrl-C has interrupted the start of the thread.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(BLOCK_MS / 1000 + 1)

    def _run(self, reader: _ReaderThread) -> None:
        client = self._bus.client(block_ms=BLOCK_MS, name="eventbus-hub")
        try:
            while self._keep_running(reader):
                try:
                    self._read(client, reader)
                except EventBusError as error:
                    log.debug("reading the changes of %s waits: %s", self._plural, error)
                    self._closed.wait(PAUSE_S)
                except Exception:
                    log.exception("reading the changes of %s continues after an unexpected error", self._plural)
                    self._closed.wait(PAUSE_S)
        finally:
            client.close()

    def _keep_running(self, reader: _ReaderThread) -> bool:
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
        entries_by_key = dict(reply or ())
        for partition, key in zip(reader.partitions, keys, strict=True):
            if entries := entries_by_key.get(key):
                self._offer(client, partition, entries)
        quiet = [
            partition for partition, key in zip(reader.partitions, keys, strict=True) if not entries_by_key.get(key)
        ]
        now = time.monotonic()
        # Continuous writes on one partition must not hide a loss on another.
        if quiet and (not entries_by_key or now - reader.checked_at >= CHECK_S):
            reader.checked_at = now
            self._check(client, quiet)

    def _offer(self, client: Client, partition: int, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        with self._lock:  # a few ms; `attach` waits, so a new subscriber gets all after its positions
            followed = follow(self._storage, partition, self._positions[partition], entries)
            self._positions[partition] = followed.version
            for subscriber in self._subscribers:
                subscriber.offer(partition, followed.changes, followed.version)
        if followed.lost is not None:
            self._report_loss(partition, followed.lost, self._newest(client, [partition])[0])

    def _check(self, client: Client, partitions: Sequence[int]) -> None:
        """Check idle partitions for losses (FLUSHALL, a lost tail): no later change may reveal them."""
        for partition, version in zip(partitions, self._newest(client, partitions), strict=True):
            position = self._positions[partition]
            # A version is written with its changes: if it is above our position and the stream has nothing newer,
            # changes were lost.
            if version < position or (version > position and not self._has_more(client, partition, position)):
                self._report_loss(partition, Expired(f"too old resource version: {position} ({version})"), version)

    def _has_more(self, client: Client, partition: int, position: int) -> bool:
        with redis_errors():
            return bool(client.execute_command("XREAD", "COUNT", 1, "STREAMS", self._key(partition), f"{position}-0"))

    def _newest(self, client: Client, partitions: Sequence[int]) -> list[int]:
        return read_versions(self._bus, client, self._plural, partitions)

    def _key(self, partition: int) -> bytes:
        return self._bus.keys[partition].changes_of(self._plural)

    def _report_loss(self, partition: int, error: Expired, newest: int) -> None:
        with self._lock:
            self._positions[partition] = newest
            for subscriber in self._subscribers:
                subscriber.fail(error)
            self._subscribers.clear()


class _ReaderThread:
    """The partitions of one thread. *running*: the thread checks for subscribers once more before it ends."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.partitions = list(partitions)
        self.running = False
        self.checked_at = 0.0
        self.thread: threading.Thread | None = None
