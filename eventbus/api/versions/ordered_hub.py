"""Merges the changes of several partitions into one order by number, which is the order of the checkpoints."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from eventbus.api.versions.checkpoint_line import Vector
from eventbus.api.versions.numbering import Numbering
from eventbus.errors import BusUnavailable, EventBusError, Expired
from eventbus.model.kinds import Kind
from eventbus.store.change_hub import ChangeHub, Subscriber
from eventbus.store.changes import Change
from eventbus.store.storage import Storage
from eventbus.util.log import log

#: Seconds before the next attempt to reach Redis.
PAUSE_S: Final = 0.5
#: Maximum number of changes that wait for a checkpoint. Beyond it, watches expire and clients relist.
HELD: Final = 200_000


class OrderedHub:
    """Implements `Hub` over a `ChangeHub`: orders changes by number for kinds in several partitions."""

    def __init__(self, hub: ChangeHub, numbering: Numbering | None) -> None:
        self._hub = hub
        self._numbering = numbering
        self._lock = threading.Lock()
        self._orders: dict[Subscriber, _Order] = {}

    def attach(self, subscriber: Subscriber, storage: Storage[Any], newest: Sequence[int]) -> tuple[int, ...]:
        """See `ChangeHub.attach`. With several partitions, *newest* and the result are checkpoints.

        Raises: BusUnavailable.
        """
        if self._numbering is None or len(storage.partitions) == 1:
            return self._hub.attach(subscriber, storage, newest)
        order = _Order(subscriber, self._numbering)
        offered = self._hub.attach(order, storage, newest)
        try:
            begun = order.begin(offered, newest)
        except BaseException:
            self._hub.detach(order, storage.kind)
            raise
        with self._lock:
            self._orders[subscriber] = order
        return begun

    def detach(self, subscriber: Subscriber, kind: Kind[Any]) -> None:
        """See `ChangeHub.detach`."""
        with self._lock:
            order = self._orders.pop(subscriber, None)
        self._hub.detach(subscriber if order is None else order, kind)
        if order is not None:
            order.close()

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            orders = list(self._orders.values())
            self._orders.clear()
        for order in orders:
            order.close()
            order.join()


class _Order:
    """Implements `Subscriber`: buffers changes until a checkpoint is complete, then passes them on in order.

    Its thread makes checkpoints of the changes that the hub has read. It ends after `close` or a failure of the hub.
    """

    def __init__(self, subscriber: Subscriber, numbering: Numbering) -> None:
        self._subscriber = subscriber
        self._numbering = numbering
        self._changed = threading.Condition()
        self._offered: list[tuple[int, Sequence[Change[Any]], int]] = []
        self._failure: EventBusError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="eventbus-api-order", daemon=True)

    def begin(self, offered: Sequence[int], newest: Sequence[int]) -> Vector:
        """Start to pass on changes. Returns: the checkpoint after which the subscriber gets every change."""
        start = [max(pair) for pair in zip(offered, newest, strict=True)]
        self._numbering.cover(start)
        with self._numbering.line() as line:
            self._epoch, self._position = line.epoch, line.first_covering(start)
        self._read = list(offered)
        self._held: list[deque[Change[Any]]] = [deque() for _ in offered]
        begun = self._position
        self._thread.start()
        return begun

    def offer(self, partition: int, changes: Sequence[Change[Any]], version: int) -> None:
        """See `Subscriber`."""
        with self._changed:
            self._offered.append((partition, changes, version))
            self._changed.notify()

    def fail(self, error: EventBusError) -> None:
        """See `Subscriber`."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify()

    def close(self) -> None:
        """Ask the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self) -> None:
        """Wait for the thread, after `close`."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._take():
                self._pass_on()
        except EventBusError as error:
            self._subscriber.fail(error)
        except Exception:
            log.exception("watchers list again after an unexpected error")
            self._subscriber.fail(Expired("the order of changes was lost"))

    def _take(self) -> bool:
        """Wait for changes and buffer them; False: it is closed. Raises: the error with which the hub failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._offered or self._failure or self._closed)
            offered, self._offered = self._offered, []
            if self._closed:
                return False
            if self._failure is not None:
                raise self._failure
        for partition, changes, version in offered:
            self._held[partition] += changes
            self._read[partition] = max(self._read[partition], version)
        if sum(map(len, self._held)) > HELD:
            raise Expired("too many changes wait for a partition that does not answer")
        return True

    def _pass_on(self) -> None:
        try:
            self._numbering.cover(self._read)
        except BusUnavailable as error:
            log.debug("changes wait for a checkpoint: %s", error)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PAUSE_S)
                self._offered.insert(0, (0, (), 0))  # triggers a retry
            return
        with self._numbering.line() as line:
            if line.epoch != self._epoch:
                raise Expired("too old resource version: the store has lost changes, or was created again")
            path = list(line.behind(self._position))
        for checkpoint in path:
            if any(read < version for read, version in zip(self._read, checkpoint, strict=True)):
                return  # another worker has read further; the remaining changes will arrive
            self._offer(checkpoint)

    def _offer(self, checkpoint: Vector) -> None:
        for partition, (former, version) in enumerate(zip(self._position, checkpoint, strict=True)):
            if version > former:
                held, changes = self._held[partition], []
                while held and held[0].version <= version:
                    change = held.popleft()
                    if change.version > former:
                        changes.append(change)
                self._subscriber.offer(partition, changes, version)
        self._position = checkpoint
