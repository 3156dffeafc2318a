"""Brings changes from the hub's thread to the loop: one subscriber a kind, one wake-up for many changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from eventbus.errors import EventBusError
from eventbus.kinds import Kind
from eventbus.store.change_hub import Hub
from eventbus.store.changes import Change
from eventbus.store.feed import Subscriber
from eventbus.store.storage import Storage


class FanHub:
    """Implements `Hub` over another one: whoever watches a kind is offered its changes in *loop*, not in its thread.

    `attach` and `detach` are thread-safe.
    """

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        self._lock = threading.Lock()
        self._fans: dict[Kind[Any], Fan] = {}

    def attach(self, subscriber: Subscriber, storage: Storage[Any], newest: Sequence[int]) -> tuple[int, ...]:
        """See `ChangeHub.attach`."""
        with self._lock:
            fan = self._fans.get(storage.kind)
            if fan is None or fan.failed:
                fan = self._fans[storage.kind] = Fan(self._loop)
                fan.begin(self._hub.attach(fan, storage, newest))
            return fan.add(subscriber)

    def detach(self, subscriber: Subscriber, kind: Kind[Any]) -> None:
        """See `ChangeHub.detach`."""
        with self._lock:
            fan = self._fans.get(kind)
            if fan is not None and fan.discard(subscriber):
                self._hub.detach(fan, kind)
                del self._fans[kind]


class Fan:
    """The one subscriber of a kind. Changes wait in a deque until the loop has come round, and are then handed on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failed = False
        self._loop = loop
        self._lock = threading.Lock()
        self._subscribers: set[Subscriber] = set()
        self._waiting: deque[tuple[int, Sequence[Change[Any]], int]] = deque()
        self._failure: EventBusError | None = None
        self._scheduled = False
        self._positions: dict[int, int] = {}

    def begin(self, positions: Sequence[int]) -> None:
        """Offered is what is behind *positions*; some of it may have been, to nobody."""
        with self._lock:
            for partition, version in enumerate(positions):
                self._positions.setdefault(partition, version)

    def add(self, subscriber: Subscriber) -> tuple[int, ...]:
        """Returns: the versions behind which it is offered everything; maybe some before as well."""
        with self._lock:
            self._subscribers.add(subscriber)
            return tuple(version for _, version in sorted(self._positions.items()))

    def discard(self, subscriber: Subscriber) -> bool:
        """Forget a watch; return True if it was the last one."""
        with self._lock:
            before = len(self._subscribers)
            self._subscribers.discard(subscriber)
            return before > 0 and not self._subscribers

    def offer(self, partition: int, changes: Sequence[Change[Any]], version: int) -> None:
        """See `Subscriber`. Called in the hub's thread."""
        with self._lock:
            self._waiting.append((partition, changes, version))
            self._positions[partition] = version
            self._schedule()

    def fail(self, error: EventBusError) -> None:
        """See `Subscriber`. Called in the hub's thread, for the last time."""
        with self._lock:
            self._failure, self.failed = error, True
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._hand_on)

    def _hand_on(self) -> None:
        with self._lock:
            self._scheduled = False
            waiting, failure = list(self._waiting), self._failure
            self._waiting.clear()
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            for partition, changes, version in waiting:
                subscriber.offer(partition, changes, version)
            if failure is not None:
                subscriber.fail(failure)


__all__ = ["Fan", "FanHub"]
