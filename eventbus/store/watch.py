"""A watch of one kind that never blocks. `reader.StoreWatch` is the iterator over it, which blocks.

The way of a watch: initial objects, catch-up from the store, then the changes that the `ChangeHub` offers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.list_watch import HasMetadata, ListOptions, WatchEvent, WatchEventType
from eventbus.store.changes import UNFINISHED, Change, Versions
from eventbus.store.selection import Selection, restored
from eventbus.store.storage import ChangeType

T = TypeVar("T", bound=HasMetadata)

#: Changes buffered for a slow reader. With more, the watch ends after them; the reader's next watch continues there.
BUFFERED = 10_000
#: Seconds between two bookmarks; controllers written for Kubernetes give up after 70.
BOOKMARK_S = 60.0

#: The empty buffer that idle watches share. A buffer of their own would take 0.7 KB, and most of thousands are idle.
_EMPTY: Final[deque[Any]] = deque()
#: By (was selected, is selected).
_EVENT_TYPES = {
    (False, True): WatchEventType.ADDED,
    (True, True): WatchEventType.MODIFIED,
    (True, False): WatchEventType.DELETED,
}


class WatchStart(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The start of a watch: *items* are delivered as ADDED, then the changes after the versions *after*."""

    after: Versions
    newest: Sequence[int]  #: the store's versions, just read
    items: tuple[T, ...] = ()
    item_versions: tuple[int, ...] = ()  #: of each of *items*, in its partition
    marks_end: bool = False  #: a bookmark marks the end of *items*


class _Reached(msgspec.Struct, frozen=True):
    """A mark after all changes of *partition* up to *version*; unselected ones advance the position, too."""

    partition: int
    version: int


class Idle(msgspec.Struct, frozen=True):
    """There is nothing to deliver. Wait for `ready`, at most *until*: monotonic, as in `next`; None: no limit."""

    until: float | None


class CatchUp(msgspec.Struct, frozen=True):
    """A request: read the changes of *partition* after version *after*, and pass them to `caught_up`."""

    partition: int
    after: int
    until: int


#: A result of `WatchState.next`; None: the watch has ended.
Step: TypeAlias = WatchEvent[T] | Idle | CatchUp | None


class WatchState(Generic[T]):
    """One watch. One thread at a time calls `next`, the hub calls `offer` and `fail`, any thread `stop`.

    An object that leaves the selection is delivered as DELETED, an object that enters it as ADDED. The watch ends after
    its timeout, or if its reader is too slow; a new watch from the last position misses no change. Before all initial
    objects are delivered, events have the version `UNFINISHED`, from which no watch can resume. No method blocks.

    Args: now: monotonic seconds, as in `next`.
          ready: called once when there is work again after `next` returned `Idle`. The hub's thread calls it
          with a lock held, so it must only wake another thread.
    """

    def __init__(
        self,
        *,
        selection: Selection[T],
        options: ListOptions,
        start: WatchStart[T],
        now: float,
        ready: Callable[[], None],
    ) -> None:
        self.selection = selection
        self._start = start
        self._ready = ready
        self._bookmarks = options.allow_bookmarks
        self._now = now
        self._ends_at = None if options.timeout_s is None else now + options.timeout_s
        self._bookmark_at = now + BOOKMARK_S
        self._lock = threading.Lock()
        self._buffer: deque[Change[T] | _Reached] = _EMPTY
        self._progress = list(start.after.counters)
        self._position = list(start.after.counters)
        self._bookmarked: tuple[int, ...] = ()
        if not start.items and options.resource_version not in ("", "0"):
            self._bookmarked = tuple(start.after.counters)  # its reader has this version already
        self._path: Sequence[Sequence[int]] = (tuple(start.newest),)
        self._caught: tuple[Sequence[Change[T]], int] | None = None
        #: By partition: already read, for a later stage of `_path`.
        self._ahead: dict[int, tuple[Sequence[Change[T]], int]] = {}
        self._finished = not start.items  # all initial objects are delivered, as of _position
        #: Initial objects that were written during the list: their changes come again, and are skipped.
        oldest = min(start.after.counters)
        self._initial_versions = {
            (obj.metadata.namespace, obj.metadata.name): version
            for obj, version in zip(start.items, start.item_versions, strict=True)
            if version > oldest
        }
        self._failure: EventBusError | None = None
        self._waiting = self._ended = self._stopped = False
        self._steps = self._run()

    def starts_at(self, path: Sequence[Sequence[int]]) -> None:
        """Set the versions that it catches up to, in this order; the hub offers the changes after the last of them.

        Call it once, before `next`.
        """
        self._path = path

    def next(self, now: float) -> Step[T]:
        """Return the next step: deliver an event, catch up, wait, or (None) end.

        Raises: Expired: changes were lost; list again.
        """
        self._now = now
        return next(self._steps, None)

    def caught_up(self, changes: Sequence[Change[T]], version: int) -> None:
        """Take some or all of the changes that `next` requested by `CatchUp`, up to *version*."""
        self._caught = changes, version

    def offer(self, partition: int, changes: Sequence[Change[T]], version: int) -> None:
        """See `Subscriber`."""
        with self._lock:
            if self._ended:
                return
            if len(self._buffer) + len(changes) > BUFFERED:
                self._ended = True
            else:
                if changes and self._buffer is _EMPTY:
                    self._buffer = deque()
                self._buffer += changes
                if changes and len(self._progress) > 1:
                    self._buffer.append(_Reached(partition, version))
                self._progress[partition] = version
        if changes:
            self._wake()

    def fail(self, error: EventBusError) -> None:
        """See `Subscriber`."""
        with self._lock:
            self._failure = self._failure or error
            self._ended = True
        self._wake()

    @property
    def position(self) -> tuple[int, ...]:
        """Return the versions up to which all changes are delivered. An idle watch has nothing beyond it."""
        return tuple(self._position)

    @property
    def is_past_list(self) -> bool:
        """Return True if no initial object can come again: from now on it is like any other watch at its position."""
        return max(self._initial_versions.values(), default=0) <= min(self._position)

    def twin(self) -> WatchState[T]:
        """Make an idle watch of the same selection and position, without a timeout and bookmarks."""
        start: WatchStart[T] = WatchStart(after=Versions(self._position), newest=self.position)
        twin = WatchState(
            selection=self.selection, options=ListOptions(), start=start, now=self._now, ready=lambda: None
        )
        twin.next(self._now)
        return twin

    def skip_to(self, position: Sequence[int]) -> None:
        """Move an idle watch to *position*, because a `twin` has delivered the changes up to it in its place."""
        with self._lock:
            self._position, self._progress = list(position), list(position)

    def stop(self) -> None:
        """End soon, and drop undelivered changes. Idempotent."""
        with self._lock:
            self._stopped = self._ended = True
            self._buffer = _EMPTY
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, False
        if waiting:
            self._ready()

    def _run(self) -> Iterator[WatchEvent[T] | Idle | CatchUp]:
        yield from self._first_events()
        for versions in self._path:
            for partition, until in enumerate(versions):
                while self._position[partition] < until and not self._stopped:
                    yield from self._catch_up(partition, until)
        if not self._stopped:
            yield from self._end_of_first_events()
        while not self._is_over():
            yield from self._live()
        if self._bookmarks and not self._stopped and tuple(self._position) != self._bookmarked:
            yield self._bookmark()

    def _first_events(self) -> Iterator[WatchEvent[T]]:
        last = len(self._start.items)
        for number, obj in enumerate(self._start.items, 1):
            if self._stopped:
                return
            self._finished = number == last and self._start.after.counters == tuple(self._start.newest)
            yield WatchEvent(WatchEventType.ADDED, obj, position=self._version())

    def _catch_up(self, partition: int, until: int) -> Iterator[WatchEvent[T] | CatchUp]:
        """Yield the changes from the position of the watch to *until*."""
        caught = self._ahead.pop(partition, None)
        if caught is None:
            yield CatchUp(partition, self._position[partition], until)
            caught, self._caught = self._caught, None
        if caught is None:
            return
        changes, version = caught
        for number, change in enumerate(changes):
            if change.version > until:
                self._ahead[partition] = changes[number:], version
                break
            yield from self._seen(change)
        self._position[partition] = max(self._position[partition], min(version, until))

    def _end_of_first_events(self) -> Iterator[WatchEvent[T]]:
        self._finished = True
        if self._start.marks_end:
            yield msgspec.structs.replace(self._bookmark(), initial_events_end=True)
        elif self._bookmarks and self._start.items:
            yield self._bookmark()
        self._start = msgspec.structs.replace(
            self._start, items=(), item_versions=()
        )  # to free memory: a watch may last for an hour

    def _is_over(self) -> bool:
        """Return True if all offered changes are delivered and no more will come. Raises: the failure."""
        with self._lock:
            if self._buffer:
                return False
            if self._failure is not None:
                raise self._failure
            if not self._stopped:
                self._position = [max(pair) for pair in zip(self._position, self._progress, strict=True)]
            return self._ended or (self._ends_at is not None and self._now >= self._ends_at)

    def _live(self) -> Iterator[WatchEvent[T] | Idle]:
        """Yield one change, a bookmark if one is due, or an `Idle`."""
        with self._lock:
            change = self._buffer.popleft() if self._buffer else None
            if not self._buffer:
                self._buffer = _EMPTY
        if isinstance(change, _Reached):
            self._position[change.partition] = max(self._position[change.partition], change.version)
        elif change is not None:
            yield from self._seen(change)
        elif self._bookmarks and self._now >= self._bookmark_at:
            self._bookmark_at = self._now + BOOKMARK_S
            yield self._bookmark()
        else:
            with self._lock:
                self._waiting = not self._buffer and not self._ended
            if self._waiting:
                due = [self._ends_at, self._bookmark_at if self._bookmarks else None]
                yield Idle(min((at for at in due if at is not None), default=None))

    def _seen(self, change: Change[T]) -> Iterator[WatchEvent[T]]:
        if change.version <= self._position[change.partition]:
            return
        self._position[change.partition] = change.version
        obj = change.object
        if self._initial_versions and change.version <= self._initial_versions.get(
            (obj.metadata.namespace, obj.metadata.name), 0
        ):
            return
        is_in = change.type is not ChangeType.DELETED and self.selection.matches(obj)
        was_in = change.type is not ChangeType.ADDED and self.selection.matched(obj, change.was)
        if was_in and not is_in and change.was is not None and change.type is not ChangeType.DELETED:
            obj = restored(obj, change.was)  # with the values that its reader has seen
        if is_in or was_in:
            yield WatchEvent(_EVENT_TYPES[was_in, is_in], obj, position=self._version())

    def _bookmark(self) -> WatchEvent[T]:
        self._bookmarked = tuple(self._position)
        return WatchEvent.bookmark(self._version())

    def _version(self) -> str:
        return str(Versions(self._position)) if self._finished else UNFINISHED
