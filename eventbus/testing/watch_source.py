"""A store in memory that tests write to and readers watch, and that can misbehave as a real one does."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from eventbus.errors import EventBusError, Expired, NotFound
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, WatchEvent, WatchEventType
from eventbus.model.selectors import OBJECT_FIELDS, FieldSelector, LabelSelector
from eventbus.store.selection import Was, restored

T = TypeVar("T", bound=HasMetadata)

#: The position of a watch's initial events except the last, as in the store.
UNFINISHED = "unfinished"


class FakeWatch(Generic[T]):
    """Implements `eventbus.model.list_watch.Watch`: delivers offered events until it is ended. Thread-safe.

    *stops* counts the calls of `stop`. Made by `FakeWatchSource.watch`, or by a test.

    Args: events: the first events.  on_stop: called by `stop`.
    """

    def __init__(self, events: Iterable[WatchEvent[T]] = (), on_stop: Callable[[FakeWatch[T]], None] | None = None):
        self.stops = 0
        self._events = deque(events)
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._held = False
        self._ended = False

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        while (event := self._next()) is not None:
            yield event

    def stop(self) -> None:
        """See `Watch`."""
        self.stops += 1
        self.end()
        if self._on_stop is not None:
            self._on_stop(self)

    def offer(self, *events: WatchEvent[T]) -> None:
        """Deliver *events* after the queued ones."""
        with self._changed:
            self._events += events
            self._changed.notify_all()

    def hold(self, held: bool) -> None:
        """Deliver nothing while *held*."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def close(self) -> None:
        """Deliver the queued events, then end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def end(self) -> None:
        """End at once and drop the queued events."""
        with self._changed:
            self._events.clear()
            self._ended = True
            self._changed.notify_all()

    def fail(self, error: EventBusError) -> None:
        """Drop the queued events, deliver ERROR, and end."""
        with self._changed:
            self._events = deque([WatchEvent.failed(error)])
            self._ended = True
            self._changed.notify_all()

    @property
    def is_behind(self) -> bool:
        """Return True if something waits to be delivered."""
        with self._changed:
            return any(event.object is not None for event in self._events)

    def _next(self) -> WatchEvent[T] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (self._events and not self._held))
            return self._events.popleft() if self._events else None


class FakeWatchSource(Generic[T]):
    """Implements `model.list_watch.ListerWatcher`; a test writes with `add`, `modify` and `delete`. Thread-safe.

    Versions are numbers, one for each write; *lists* and *watches* are the options of all calls so far.

    It simulates failures on request: `drop_watches` ends the watches as a lost connection does; `hold_watches` delays
    changes until `release_watches`; `expire` drops the past changes, so that older watches get `Expired`;
    `fail_next_list`, `fail_next_watch` and `break_watches` raise. Writes are never refused, lists are never late,
    and a watch's *timeout_s* is ignored: call `drop_watches` instead.

    Args: fields: the selectable fields.  with_version: returns the object with another version; needed for
          values that are not `msgspec.Struct`.  first_version: the version before the first write.
    Source: the idea of client-go's `fake_controller_source.go`.
    """

    def __init__(
        self,
        *,
        fields: Mapping[str, Callable[[T], str]] = OBJECT_FIELDS,
        with_version: Callable[[T, str], T] | None = None,
        first_version: int = 1,
    ) -> None:
        self.lists: list[ListOptions] = []
        self.watches: list[ListOptions] = []
        self._fields = fields
        self._with_version = with_version or _with_version
        self._changed = threading.Condition(threading.RLock())
        self._version = first_version
        self._floor = first_version  # the oldest version from which a watch can begin
        self._objects: dict[tuple[str, str], T] = {}
        self._sorted: list[tuple[str, str]] = []  # the keys of _objects, or out of date and cleared
        self._changes: list[_Change[T]] = []
        self._open: dict[FakeWatch[T], _Selection[T]] = {}
        self._held = False
        self._list_failures: list[Exception] = []
        self._watch_failures: list[Exception] = []

    def add(self, obj: T) -> T:
        """Write an object, new or not. Returns: it with its version."""
        with self._changed:
            return self._write(obj)

    def modify(self, obj: T) -> T:
        """Update an existing object. Return it with its version. Raises: NotFound."""
        with self._changed:
            self._require(obj)
            return self._write(obj)

    def delete(self, obj: T) -> T:
        """Remove the object with the name of *obj*. Returns: its last state, at the deletion's version.

        Raises: NotFound.
        """
        with self._changed:
            old = self._require(obj)
            self._version += 1
            gone = self._with_version(old, str(self._version))
            del self._objects[_identity(old)]
            self._sorted = []
            self._offer(_Change(self._version, old=old, new=None, gone=gone))
            return gone

    def bookmark(self) -> None:
        """Send a bookmark to the open watches that allow it."""
        with self._changed:
            for watch, selection in self._open.items():
                if selection.options.allow_bookmarks:
                    watch.offer(WatchEvent.bookmark(str(self._version)))

    def drop_watches(self) -> None:
        """End every open watch; undelivered events are lost."""
        with self._changed:
            for watch in tuple(self._open):
                watch.end()
                self._forget(watch)

    def break_watches(self, error: EventBusError) -> None:
        """Make every open watch deliver ERROR and end."""
        with self._changed:
            for watch in tuple(self._open):
                watch.fail(error)
                self._forget(watch)

    def hold_watches(self) -> None:
        """Have all watches, open and new, deliver nothing for now."""
        self._hold(True)

    def release_watches(self) -> None:
        """Let watches deliver the delayed changes, then all later ones."""
        self._hold(False)

    def expire(self) -> None:
        """Drop all changes up to now: older watches, open or new, and continued lists get `Expired`."""
        with self._changed:
            self._floor = self._version
            self._changes.clear()
            for watch in tuple(self._open):
                if watch.is_behind:
                    watch.fail(Expired(f"too old resource version ({self._floor})"))
                    self._forget(watch)

    def fail_next_list(self, *errors: Exception) -> None:
        """Raise *errors*, one in each of the next lists."""
        with self._changed:
            self._list_failures += errors

    def fail_next_watch(self, *errors: Exception) -> None:
        """Raise *errors*, one at each of the next attempts to watch."""
        with self._changed:
            self._watch_failures += errors

    @property
    def version(self) -> str:
        """Return the version of the last write."""
        return str(self._version)

    @property
    def objects(self) -> dict[tuple[str, str], T]:
        """Return all objects by namespace and name: a copy."""
        with self._changed:
            return dict(self._objects)

    def wait_for_watches(self, n: int = 1, timeout_s: float = 10.0) -> None:
        """Block until *n* watches are open, at most *timeout_s* real seconds. Raises: TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._open) == n, timeout_s):
                raise TimeoutError(f"{len(self._open)} watches are open, not {n}")

    def watch(self, options: ListOptions) -> FakeWatch[T]:
        """See `ListerWatcher.watch`."""
        with self._changed:
            self.watches.append(options)
            if self._watch_failures:
                raise self._watch_failures.pop(0)
            selection = _Selection(options, self._fields)
            watch = FakeWatch(self._first_events(options, selection), self._forget)
            watch.hold(self._held)
            self._open[watch] = selection
            self._changed.notify_all()
            return watch

    def list(self, options: ListOptions) -> ObjectList[T]:
        """See `ListerWatcher.list`. A continuation expires with the version of its first page."""
        with self._changed:
            self.lists.append(options)
            if self._list_failures:
                raise self._list_failures.pop(0)
            version, start = self._page_start(options)
            selection = _Selection(options, self._fields)
            objects = (self._objects[identity] for identity in self._identities_after(start))
            items = list(islice(filter(selection.matches, objects), options.limit + 1 if options.limit else None))
            page = items[: options.limit or None]
            more = f"{version}/{'/'.join(_identity(page[-1]))}" if len(page) < len(items) else ""
            return ObjectList(tuple(page), str(version), more)

    def _page_start(self, options: ListOptions) -> tuple[int, tuple[str, str]]:
        if options.continue_:
            version, namespace, name = options.continue_.split("/")
            if int(version) < self._floor:
                raise Expired("The provided continue parameter is too old to display a consistent list result")
            return int(version), (namespace, name)
        if int(options.resource_version or 0) > self._version:
            raise Expired(f"too large resource version: {options.resource_version} ({self._version})")
        return self._version, ("", "")

    def _identities_after(self, start: tuple[str, str]) -> Iterator[tuple[str, str]]:
        # Sorted once for all pages of a list.
        if len(self._sorted) != len(self._objects):
            self._sorted = sorted(self._objects)
        return islice(self._sorted, bisect_right(self._sorted, start), None)

    def _first_events(self, options: ListOptions, selection: _Selection[T]) -> tuple[WatchEvent[T], ...]:
        version = options.resource_version
        sends = version in ("", "0") if options.send_initial_events is None else options.send_initial_events
        if sends:
            return self._initial_events(options, selection)
        if version in ("", "0"):
            return ()
        if version == UNFINISHED or int(version) < self._floor:
            raise Expired(f"too old resource version: {version} ({self._floor})")
        seen = (change.seen_by(selection) for change in self._changes if change.version > int(version))
        return tuple(event for event in seen if event is not None)

    def _initial_events(self, options: ListOptions, selection: _Selection[T]) -> tuple[WatchEvent[T], ...]:
        """Return ADDED for all objects, and a bookmark if it is requested. A watch cannot resume in between."""
        objects = [obj for obj in self._objects.values() if selection.matches(obj)]
        positions = [UNFINISHED] * (len(objects) - 1) + [self.version]
        events = [WatchEvent(WatchEventType.ADDED, obj, at) for obj, at in zip(objects, positions, strict=False)]
        if options.send_initial_events and options.allow_bookmarks:
            events.append(WatchEvent(WatchEventType.BOOKMARK, position=self.version, initial_events_end=True))
        return tuple(events)

    def _write(self, obj: T) -> T:
        self._version += 1
        new = self._with_version(obj, str(self._version))
        old = self._objects.get(_identity(new))
        self._objects[_identity(new)] = new
        if old is None:
            self._sorted = []
        gone = None if old is None else self._as_selected(old, new)
        self._offer(_Change(self._version, old=old, new=new, gone=gone))
        return new

    def _as_selected(self, old: T, new: T) -> T:
        """Return *new* with its former labels and fields, as the store returns an object that left a selection."""
        value: object = new
        if not isinstance(value, msgspec.Struct):
            return new
        fields = {name: get(old) for name, get in self._fields.items() if get(old) != get(new)}
        return restored(new, Was(old.metadata.labels, fields))

    def _offer(self, change: _Change[T]) -> None:
        self._changes.append(change)
        for watch, selection in self._open.items():
            event = change.seen_by(selection)
            if event is not None:
                watch.offer(event)

    def _hold(self, held: bool) -> None:
        with self._changed:
            self._held = held
            for watch in self._open:
                watch.hold(held)

    def _forget(self, watch: FakeWatch[T]) -> None:
        with self._changed:
            self._open.pop(watch, None)
            self._changed.notify_all()

    def _require(self, obj: T) -> T:
        old = self._objects.get(_identity(obj))
        if old is None:
            raise NotFound(f'objects "{obj.metadata.name}" not found')
        return old


class _Selection(Generic[T]):
    """The objects that a reader asked for."""

    def __init__(self, options: ListOptions, fields: Mapping[str, Callable[[T], str]]) -> None:
        self.options = options
        self._labels = LabelSelector.parse(options.label_selector)
        self._fields = FieldSelector.parse(options.field_selector, fields)

    def matches(self, obj: T | None) -> bool:
        return (
            obj is not None
            and self.options.namespace in ("", obj.metadata.namespace)
            and self._labels.matches(obj.metadata.labels)
            and self._fields.matches(obj)
        )


class _Change(msgspec.Struct, Generic[T], frozen=True):
    """A write: the states before and after; *gone* is the object for watches that no longer select it."""

    version: int
    old: T | None
    new: T | None
    gone: T | None

    def seen_by(self, selection: _Selection[T]) -> WatchEvent[T] | None:
        """Return the event for a watch: DELETED if the object leaves its selection, ADDED if it enters it."""
        match selection.matches(self.old), selection.matches(self.new):
            case False, True:
                return WatchEvent(WatchEventType.ADDED, self.new)
            case True, True:
                return WatchEvent(WatchEventType.MODIFIED, self.new)
            case True, False:
                return WatchEvent(WatchEventType.DELETED, self.gone)
        return None


def _identity(obj: HasMetadata) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


def _with_version(obj: T, version: str) -> T:
    value: object = obj
    if not isinstance(value, msgspec.Struct):
        raise TypeError(f"{type(obj).__name__} is not a msgspec.Struct: give with_version")
    metadata = msgspec.structs.replace(obj.metadata, resource_version=version)
    changed: T = msgspec.structs.replace(value, metadata=metadata)  # type: ignore[assignment]
    return changed
