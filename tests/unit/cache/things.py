"""Objects for these tests, and what else they share. A thing is an event that nothing but its name matters of."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TypeAlias

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, DeltaFIFO, last_state
from eventbus.cache.indexer import Indexer, object_key
from eventbus.cache.reflector import StopSignal
from eventbus.errors import BusUnavailable
from eventbus.model.event import Event, ObjectMeta
from eventbus.model.list_watch import ListOptions, ObjectList, WatchEvent, WatchEventType
from eventbus.testing.clock import FakeClock
from eventbus.testing.watch_source import FakeWatch
from tests.waiting import eventually


def make_thing(name: str, value: str = "", version: str = "", namespace: str = "", **labels: str) -> Event:
    """The thing *name*; *value* is what changes in it."""
    metadata = ObjectMeta(name=name, namespace=namespace, resource_version=version, labels=labels)
    return Event(metadata=metadata, message=value)


class Notes:
    """A handler that writes down what it is told, as `add a=1`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.initial: list[str] = []
        self.threads: set[str] = set()

    def on_add(self, found: Event, initial: bool) -> None:
        self._note(f"add {_short(found)}")
        if initial:
            self.initial.append(found.metadata.name)

    def on_update(self, old: Event, new: Event) -> None:
        self._note(f"update {_short(old)} {_short(new)}")

    def on_delete(self, found: Event | DeletedFinalStateUnknown[Event]) -> None:
        unsure = " unseen" if isinstance(found, DeletedFinalStateUnknown) else ""
        self._note(f"delete {_short(last_state(found))}{unsure}")

    def wait_for(self, *notes: str) -> None:
        """Wait until it has been told exactly these, in any order of the objects."""
        eventually(lambda: len(self.notes) >= len(notes))
        assert sorted(self.notes) == sorted(notes)

    def _note(self, note: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.notes.append(note)


def _short(found: Event) -> str:
    return f"{found.metadata.name}={found.message}"


class Store(DeltaFIFO[Event]):
    """Applies each change at once to *held*: no test has to pop."""

    def __init__(self) -> None:
        self.held: Indexer[Event] = Indexer()
        super().__init__(known_objects=self.held)

    def add(self, obj: Event) -> None:
        self.held.add(obj)

    def update(self, obj: Event) -> None:
        self.held.add(obj)

    def delete(self, obj: Event) -> None:
        self.held.delete_key(object_key(obj))

    def replace(self, items: Iterable[Event]) -> None:
        for key in self.held.list_keys():
            self.held.delete_key(key)
        for obj in items:
            self.held.add(obj)


class SleeplessStop(StopSignal):
    """Takes no time to sleep: writes down how long, moves the clock, and is set by the sleep number *most*."""

    def __init__(self, clock: FakeClock, most: int = 1_000, root: SleeplessStop | None = None) -> None:
        super().__init__(clock)
        self._root = root or self
        self._clock_to_move = clock
        self._most = most
        self.slept: list[float] = [] if root is None else root.slept

    def sleep(self, seconds: float) -> bool:
        if not self.is_set():
            self.slept.append(seconds)
            self._clock_to_move.advance(seconds)
            if len(self.slept) >= self._most:
                self._root.set()
        return self.is_set()

    def _new(self) -> StopSignal:
        return SleeplessStop(self._clock_to_move, self._most, self._root)


Answer: TypeAlias = ObjectList[Event] | Exception
Opened: TypeAlias = FakeWatch[Event] | Exception


class ScriptedSource:
    """Answers lists and watches in the order of the script, and stops the reader when the script is over."""

    def __init__(self, stop: StopSignal, lists: Iterable[Answer] = (), watches: Iterable[Opened] = ()) -> None:
        self._stop = stop
        self._lists = list(lists)
        self._watches = list(watches)
        self.listed: list[ListOptions] = []
        self.watched: list[ListOptions] = []

    @property
    def versions(self) -> list[str]:
        """Return the versions that lists asked for; a continued one in brackets."""
        return [
            options.resource_version or f"({options.continue_})" * bool(options.continue_) for options in self.listed
        ]

    def list(self, options: ListOptions) -> ObjectList[Event]:
        self.listed.append(options)
        if not self._lists:
            self._stop.set()
            raise BusUnavailable("the script is over")
        answer = self._lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, options: ListOptions) -> FakeWatch[Event]:
        self.watched.append(options)
        if not self._watches:
            self._stop.set()
            raise BusUnavailable("the script is over")
        opened = self._watches.pop(0)
        if isinstance(opened, Exception):
            raise opened
        return opened


def listed(version: str, *items: Event, more: str = "") -> ObjectList[Event]:
    """A page."""
    return ObjectList(items, version, more)


def watch_of(*events: WatchEvent[Event]) -> FakeWatch[Event]:
    """A watch that tells *events* and ends."""
    watch = FakeWatch(events)
    watch.close()
    return watch


def added(found: Event) -> WatchEvent[Event]:
    return WatchEvent(WatchEventType.ADDED, found)


def modified(found: Event) -> WatchEvent[Event]:
    return WatchEvent(WatchEventType.MODIFIED, found)


def deleted(found: Event) -> WatchEvent[Event]:
    return WatchEvent(WatchEventType.DELETED, found)
