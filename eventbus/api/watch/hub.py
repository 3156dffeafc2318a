"""Brings changes from the hub's thread to the loop, and encodes them once for all watches that get the same lines.

The `ChangeHub` sees one subscriber per kind, the `_Relay`, which wakes the loop once for many changes. A watch that
waits joins a group: the group advances one `WatchState` for all its members, and gives each the encoded lines.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from eventbus.api.kube.rendering import Renderer
from eventbus.api.kube.resources import Resource
from eventbus.api.metrics import Metrics
from eventbus.errors import EventBusError
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import WatchEvent, WatchEventType
from eventbus.store.change_hub import Hub, Subscriber
from eventbus.store.changes import Change
from eventbus.store.selection import Selection
from eventbus.store.storage import Storage
from eventbus.store.watch import WatchState
from eventbus.util.log import log

#: After a round of changes to all watches, the loop serves other requests for as long as the round took, but at most
#: this many seconds. Changes are collected in the meantime: a round of twenty costs little more than a round of one.
MAX_PAUSE_S: Final = 0.05

#: Bytes of lines that a group collects before it gives them to its members.
CHUNK: Final = 64 * 1024
#: The arguments of `Subscriber.offer`.
_Offer: TypeAlias = tuple[int, Sequence[Change[Any]], int]
#: Queues lines for one watch. Returns False, and queues nothing, if its client reads too slowly.
WatchWriter: TypeAlias = Callable[[bytes], bool]


class WatchKey(NamedTuple):
    """The inputs of the lines of a watch, besides the changes: its representation and its selection."""

    renderer: Renderer
    selection: Selection[Any]


class WatchHub:
    """A `Hub` that wraps another, and offers changes to watches in *loop*, not in the thread of the other hub.

    `attach` and `detach` are thread-safe.
    """

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        self._lock = threading.Lock()
        self._relays: dict[Kind[Any], _Relay] = {}

    def attach(self, subscriber: Subscriber, storage: Storage[Any], newest: Sequence[int]) -> tuple[int, ...]:
        """See `ChangeHub.attach`."""
        with self._lock:
            relay = self._relays.get(storage.kind)
            if relay is None or relay.failed:
                relay = self._relays[storage.kind] = _Relay(self._loop)
                relay.starts_at(self._hub.attach(relay, storage, newest))
            return relay.add(subscriber)

    def detach(self, subscriber: Subscriber, kind: Kind[Any]) -> None:
        """See `ChangeHub.detach`."""
        with self._lock:
            relay = self._relays.get(kind)
            if relay is not None and relay.discard(subscriber):
                self._hub.detach(relay, kind)
                del self._relays[kind]

    def join(
        self, state: WatchState[Any], kind: Kind[Any], key: WatchKey, writer: WatchWriter, encoder: LineEncoder
    ) -> None:
        """Let the group of *key* write the lines of *state* while it waits: until `leave`, or *writer* is too slow.

        Creates the group if it is missing; if the group is at another position, *state* stays alone. Call it in
        the loop.
        """
        if (relay := self._relays.get(kind)) is not None:
            relay.join(state, key, writer, encoder)

    def leave(self, state: WatchState[Any], kind: Kind[Any]) -> None:
        """Offer changes to *state* again. Call it in the loop. Idempotent."""
        if (relay := self._relays.get(kind)) is not None:
            relay.leave(state)


class WatchGroup:
    """Watches with one key that wait at one position. Lives in the loop.

    Its own `WatchState` advances for all members. A member with a writer that is too slow leaves, and advances alone.
    """

    def __init__(self, key: WatchKey, first: WatchState[Any], encoder: LineEncoder) -> None:
        self._renderer = key.renderer
        self._lead: WatchState[Any] = first.twin()
        self._encoder = encoder
        self._writers: dict[WatchState[Any], WatchWriter] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def fits(self, state: WatchState[Any]) -> bool:
        """Return True if the next lines of *state* are those of the members."""
        return state.position == self._lead.position and state.is_past_list

    def add(self, state: WatchState[Any], writer: WatchWriter) -> None:
        self._writers[state] = writer

    def remove(self, state: WatchState[Any]) -> None:
        """Let *state* advance alone from the group's position."""
        del self._writers[state]
        state.skip_to(self._lead.position)

    def advance(self, offers: Iterable[_Offer]) -> list[WatchState[Any]]:
        """Write the changes of *offers*. Returns: the members that have left: the caller offers *offers* to them."""
        leaving: list[WatchState[Any]] = []
        written = self._lead.position
        for offer in offers:
            self._lead.offer(*offer)
        try:
            lines, size = [], 0
            while isinstance(step := self._lead.next(0.0), WatchEvent):
                lines.append(self._encoder.line(self._renderer, step, first=False))
                size += len(lines[-1])
                if size >= CHUNK:
                    leaving += self._write(lines, written)
                    lines, size, written = [], 0, self._lead.position
            if lines:
                leaving += self._write(lines, written)
            if step is not None:  # None: the watch has ended
                return leaving
        except Exception:
            log.debug("watches of %s advance one by one", self._renderer.resource.plural, exc_info=True)
        # The group has ended, or a change cannot be encoded: each member gets the same end by itself.
        for state in self._writers:
            state.skip_to(written)
        leaving += self._writers
        self._writers.clear()
        return leaving

    def _write(self, lines: Sequence[bytes], before: Sequence[int]) -> list[WatchState[Any]]:
        """Returns: the members that are too slow. *before*: their position without these *lines*."""
        joined = b"".join(lines)
        slow = [state for state, writer in self._writers.items() if not writer(joined)]
        for state in slow:
            del self._writers[state]
            state.skip_to(before)
        self._encoder.count(self._renderer.resource, len(lines) * len(self._writers))
        return slow


class _Relay:
    """The one subscriber of a kind. Changes wait in a deque until the loop passes them on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failed = False
        self._loop = loop
        self._lock = threading.Lock()
        self._subscribers: set[Subscriber] = set()  # without the members of groups
        self._groups: dict[WatchKey, WatchGroup] = {}
        self._grouped: dict[WatchState[Any], WatchKey] = {}
        self._waiting: deque[_Offer] = deque()
        self._failure: EventBusError | None = None
        self._scheduled = False
        self._paused_until = 0.0
        self._positions: dict[int, int] = {}

    def starts_at(self, positions: Sequence[int]) -> None:
        """Set the versions after which changes are offered. Later ones may have been offered already."""
        with self._lock:
            for partition, version in enumerate(positions):
                self._positions.setdefault(partition, version)

    def add(self, subscriber: Subscriber) -> tuple[int, ...]:
        """Offer changes to *subscriber*. Returns: the versions after which it gets all changes."""
        with self._lock:
            self._subscribers.add(subscriber)
            return tuple(version for _, version in sorted(self._positions.items()))

    def discard(self, subscriber: Subscriber) -> bool:
        """Stop offering changes to *subscriber*, which is in no group. Returns: True if it was the last one."""
        with self._lock:
            before = len(self._subscribers)
            self._subscribers.discard(subscriber)
            return before > 0 and not self._subscribers and not self._grouped

    def join(self, state: WatchState[Any], key: WatchKey, writer: WatchWriter, encoder: LineEncoder) -> None:
        """See `WatchHub`."""
        with self._lock:
            if state not in self._subscribers or self.failed:
                return
            group = self._groups.get(key) or WatchGroup(key, state, encoder)
            if group.fits(state):
                group.add(state, writer)
                self._groups[key], self._grouped[state] = group, key
                self._subscribers.discard(state)

    def leave(self, state: WatchState[Any]) -> None:
        """See `WatchHub`."""
        with self._lock:
            key = self._grouped.get(state)
            if key is not None:
                self._groups[key].remove(state)
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
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._loop.time() < self._paused_until:
            self._loop.call_at(self._paused_until, self._pass_on)
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        begun = self._loop.time()
        with self._lock:
            self._scheduled = False
            waiting, failure = list(self._waiting), self._failure
            self._waiting.clear()
        for group in list(self._groups.values()):
            leaving = group.advance(waiting)
            with self._lock:
                self._take_back(leaving)
        if failure is not None:
            for state in list(self._grouped):
                self.leave(state)
        with self._lock:
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            for offer in waiting:
                subscriber.offer(*offer)
            if failure is not None:
                subscriber.fail(failure)
        # The loop runs this after all watches that the changes have woken.
        self._loop.call_soon(self._pause, begun)

    def _pause(self, begun: float) -> None:
        now = self._loop.time()
        self._paused_until = now + min(now - begun, MAX_PAUSE_S)

    def _take_back(self, leaving: Iterable[WatchState[Any]]) -> None:
        for state in leaving:
            key = self._grouped.pop(state)
            self._subscribers.add(state)
            if key in self._groups and not len(self._groups[key]):
                del self._groups[key]


#: Seconds for which an encoded line is kept: about long enough for all watches of a change.
KEPT_S: Final = 0.05


class LineEncoder:
    """Encodes and counts lines. Lives in the loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: dict[tuple[Any, ...], tuple[object, bytes]] = {}
        self._clearing = False

    def line(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        """Return the line of *event*. *first*: include the columns of a table."""
        if event.type is WatchEventType.BOOKMARK or first:
            return self._encoded(renderer, event, first=first)
        key = (id(event.object), event.type, event.position, renderer.resource.kind.api_version, renderer.answer)
        encoded = self._known.get(key)
        if encoded is None:
            # The entry keeps the object alive, so that no other object gets its id.
            encoded = self._known[key] = (event.object, self._encoded(renderer, event, first=False))
            if not self._clearing:
                self._clearing = True
                asyncio.get_running_loop().call_later(KEPT_S, self._clear)
        return encoded[1]

    def count(self, resource: Resource, lines: int) -> None:
        """Count *lines* that are written to watches of *resource*."""
        self._metrics.note_watch_lines(resource, lines)

    def _encoded(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        line = renderer.frame(event, first=first)
        self._metrics.note_watch_line(renderer.resource, len(line))
        return line

    def _clear(self) -> None:
        self._known.clear()
        self._clearing = False
