"""Brings changes from the hub's thread to the loop: one subscriber a kind, one wake-up for many changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from eventbus.api.watch.group import Crowd, Lines, Offer, Taker, Tone
from eventbus.errors import EventBusError
from eventbus.model.kinds import Kind
from eventbus.store.change_hub import Hub, Subscriber
from eventbus.store.changes import Change
from eventbus.store.storage import Storage
from eventbus.store.watch import WatchState

#: For as long as telling all watches has taken, and no longer than this, seconds, changes are gathered: a write to
#: each of many watches costs the same for one change as for twenty, and requests have half of the loop's time.
MOST_REST_S: Final = 0.05


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

    def gather(self, state: WatchState[Any], kind: Kind[Any], tone: Tone, taker: Taker, lines: Lines) -> None:
        """Have what *state* waits for written to *taker*, together with others of its *tone*, as long as there is room.

        Where that cannot be it is offered changes as before. Called in the loop.
        """
        if (fan := self._fans.get(kind)) is not None:
            fan.gather(state, tone, taker, lines)

    def scatter(self, state: WatchState[Any], kind: Kind[Any]) -> None:
        """Offer *state* its changes again. Called in the loop; no effect where it has left the others."""
        if (fan := self._fans.get(kind)) is not None:
            fan.scatter(state)


class Fan:
    """The one subscriber of a kind. Changes wait in a deque until the loop has come round, and are then handed on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failed = False
        self._loop = loop
        self._lock = threading.Lock()
        self._subscribers: set[Subscriber] = set()  # all but those that a crowd stands for
        self._crowds: dict[Tone, Crowd] = {}
        self._crowded: dict[WatchState[Any], Tone] = {}
        self._waiting: deque[Offer] = deque()
        self._failure: EventBusError | None = None
        self._scheduled = False
        self._rests_until = 0.0
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
        """Forget a watch that is in no crowd; return True if it was the last one."""
        with self._lock:
            before = len(self._subscribers)
            self._subscribers.discard(subscriber)
            return before > 0 and not self._subscribers and not self._crowded

    def gather(self, state: WatchState[Any], tone: Tone, taker: Taker, lines: Lines) -> None:
        """See `FanHub`."""
        with self._lock:
            if state not in self._subscribers or self.failed:
                return
            crowd = self._crowds.get(tone)
            if crowd is None:
                crowd = Crowd(tone, state, lines)
            if crowd.fits(state):
                crowd.add(state, taker)
                self._crowds[tone], self._crowded[state] = crowd, tone
                self._subscribers.discard(state)

    def scatter(self, state: WatchState[Any]) -> None:
        """See `FanHub`."""
        with self._lock:
            tone = self._crowded.get(state)
            if tone is not None:
                self._crowds[tone].remove(state)
                self._take_back([state])

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
            self._loop.call_soon_threadsafe(self._begin_to_hand_on)

    def _begin_to_hand_on(self) -> None:
        if self._loop.time() < self._rests_until:
            self._loop.call_at(self._rests_until, self._hand_on)
        else:
            self._hand_on()

    def _hand_on(self) -> None:
        begun = self._loop.time()
        self._tell()
        ended = self._loop.time()
        self._rests_until = ended + min(ended - begun, MOST_REST_S)

    def _tell(self) -> None:
        with self._lock:
            self._scheduled = False
            waiting, failure = list(self._waiting), self._failure
            self._waiting.clear()
        for crowd in list(self._crowds.values()):
            left = crowd.tell(waiting)
            with self._lock:
                self._take_back(left)
        for subscriber in self._apart():
            for offered in waiting:
                subscriber.offer(*offered)
        if failure is not None:
            for state in list(self._crowded):
                self.scatter(state)
            for subscriber in self._apart():
                subscriber.fail(failure)

    def _apart(self) -> list[Subscriber]:
        with self._lock:
            return list(self._subscribers)

    def _take_back(self, left: Iterable[WatchState[Any]]) -> None:
        for state in left:
            tone = self._crowded.pop(state)
            self._subscribers.add(state)
            if tone in self._crowds and not len(self._crowds[tone]):
                del self._crowds[tone]
