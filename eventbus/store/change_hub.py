"""The change feeds of a process: one for each watched kind, so that a watcher gets changes of its own kind only."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from eventbus.broker.bus import Bus
from eventbus.model.kinds import Kind
from eventbus.store.feed import Feed, Subscriber
from eventbus.store.storage import Storage


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
        """Offer the changes of a kind from now on, decoded by its first subscriber's *storage*. See `Feed.attach`."""
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
