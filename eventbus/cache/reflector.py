"""Mirrors a store's objects of one kind: lists, then watches from the list's version; lists again after a loss."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from eventbus.cache.delta_fifo import DeltaFIFO
from eventbus.errors import BusUnavailable, EventBusError, Expired
from eventbus.model.list_watch import (
    HasMetadata,
    ListerWatcher,
    ListOptions,
    ObjectList,
    WatchEvent,
    WatchEventType,
    list_all,
)
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log

T = TypeVar("T", bound=HasMetadata)

#: objects in a page of a list
PAGE_SIZE: Final = 500
#: A watch has a time-out of this many seconds, up to twice as many, so that watchers do not all come back at once.
WATCH_TIMEOUT_S: Final = 300.0
#: A watch that ends sooner and without an event has failed, even without an error.
SHORTEST_WATCH_S: Final = 1.0

#: Versions that mean *any*: the first events of a watch from there may have any age.
_NO_VERSION: Final = frozenset({"", "0"})


class Reflector(Generic[T]):
    """Copies a remote store into a queue of deltas, and keeps it current. One `run` at a time.

    Nothing is lost: the watch delivers the changes since the list, and after a loss it lists again. The version
    never goes back: a list asks for one not older than the last, unless that has expired.

    Args:   resource: the kind's plural, for log lines.
            resync_s: after so many seconds, and again, `store.resync` is called if *should_resync* says so; 0 = never.
            on_error: called with each error that list or watch met, in this thread; by default it is logged.
            expected_type: objects of another type are logged and skipped.
            chance: gives 0..1, for jitter.
    Source: client-go `tools/cache/reflector.go`. Departures: a connection that is lost inside a watch is opened
            again without a list; *on_error* also gets the errors that a watch reports; no streaming lists.
    """

    def __init__(
        self,
        *,
        source: ListerWatcher[T],
        store: DeltaFIFO[T],
        clock: Clock,
        resource: str = "objects",
        resync_s: float = 0,
        should_resync: Callable[[], bool] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        expected_type: type[T] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._resource = resource
        self._resync_s = resync_s
        self._should_resync = should_resync
        self._on_error = on_error or self._log_error
        self._expected_type = expected_type
        self._chance = chance
        self._backoff = ReflectorBackoff(clock=clock, chance=chance)
        self._version = ""
        self._expired = False  # the last list at _version failed, so that the next asks for the newest
        #: A list of any version ("0") has come in pages: the server has no cache, so later lists ask for pages as well.
        self._always_pages = False

    @property
    def last_sync_resource_version(self) -> str:
        """Return the version up to which the store has been filled; "" before the first list."""
        return self._version

    def run(self, stop: StopSignal) -> None:
        """List and watch repeatedly, with a pause after each, until *stop* is set. Raises nothing."""
        while not stop.is_set():
            server_s = 0.0
            try:
                self.list_and_watch(stop)
            except Exception as error:  # after any error of the source or the store it must continue
                self._report(error)
                server_s = _retry_after_s(error)
            stop.sleep(max(self._backoff.next_s(), server_s))

    def list_and_watch(self, stop: StopSignal) -> None:
        """List once, then watch until *stop* is set or a new list is needed.

        Returns: after *stop*, or when a resync failed.
        Raises:  Expired: changes were lost. Errors of list and watch, except BusUnavailable of a watch.
        """
        if stop.is_set():
            return
        with stop.child() as ended:
            listed_at = self._clock.monotonic()
            objects = self._list()
            if stop.is_set():
                return
            self._store.replace(objects.items)
            self._version = objects.resource_version
            with self._resyncing(ended, first=listed_at + self._resync_s):
                while not ended.is_set():
                    self._watch(ended)

    def _list(self) -> ObjectList[T]:
        try:
            objects = self._list_from("" if self._expired else self._version or "0")
        except Expired:
            # At once, and once: list the newest state.
            self._expired = True
            objects = self._list_from("")
        self._expired = False
        return objects

    def _list_from(self, version: str) -> ObjectList[T]:
        limit = PAGE_SIZE if self._always_pages or version in _NO_VERSION else 0
        objects, came_in_pages = list_all(self._source, ListOptions(resource_version=version, limit=limit))
        self._always_pages |= version == "0" and came_in_pages
        return objects

    def _watch(self, ended: StopSignal) -> None:
        """Run one watch, from the last version, to its end."""
        started = self._clock.monotonic()
        timeout_s = WATCH_TIMEOUT_S * (1 + self._chance())
        options = ListOptions(resource_version=self._version, timeout_s=timeout_s, allow_bookmarks=True)
        try:
            watch = self._source.watch(options)
            with ended.calling(watch.stop):
                try:
                    n = self._apply_all(watch, ended)
                finally:
                    watch.stop()
        except BusUnavailable as error:
            self._report(error)
            ended.sleep(max(self._backoff.next_s(), _retry_after_s(error)))
            return
        if not n and not ended.is_set() and self._clock.monotonic() - started < SHORTEST_WATCH_S:
            problem = f"closed within {SHORTEST_WATCH_S:g} s, no events received"
            raise EventBusError(f"very short watch: {self._resource}: {problem}")

    def _apply_all(self, watch: Iterable[WatchEvent[T]], ended: StopSignal) -> int:
        """Apply the events of the watch to the store. Returns: how many. Raises: the error that the watch reports."""
        n = 0
        may_advance_version = self._version not in _NO_VERSION
        for event in watch:
            if ended.is_set():
                break
            if event.type is WatchEventType.ERROR:
                raise event.error or EventBusError(f"a watch of {self._resource} failed")
            n += 1
            self._apply(event)
            # Without a start version the first ADDED are the initial objects, unordered.
            may_advance_version |= event.type is not WatchEventType.ADDED
            if may_advance_version and event.resource_version:
                self._version = event.resource_version
        return n

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.type is WatchEventType.BOOKMARK:
            return
        obj = event.object
        if obj is None or (self._expected_type is not None and not isinstance(obj, self._expected_type)):
            log.error("A watch of %s returned a %s; skipped", self._resource, type(obj).__name__)
            return
        apply = {
            WatchEventType.ADDED: self._store.add,
            WatchEventType.MODIFIED: self._store.update,
            WatchEventType.DELETED: self._store.delete,
        }[event.type]
        try:
            apply(obj)
        except Exception:
            log.exception("Cannot store %s %s; skipped", event.type, obj.metadata.name)

    @contextmanager
    def _resyncing(self, ended: StopSignal, first: float) -> Iterator[None]:
        """Resync when it is due, during the block; a failure sets *ended*."""
        if self._resync_s <= 0:
            yield
            return
        thread = threading.Thread(
            target=self._resync, args=(ended, first), name=f"eventbus-resync-{self._resource}", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _resync(self, ended: StopSignal, due: float) -> None:
        while not ended.sleep_until(due):
            try:
                if self._should_resync is None or self._should_resync():
                    self._store.resync()
            except Exception:
                log.exception("Resync of %s failed; listing again", self._resource)
                ended.set()
            due = self._clock.monotonic() + self._resync_s

    def _report(self, error: Exception) -> None:
        try:
            self._on_error(error)
        except Exception:
            log.exception("The watch error handler of %s failed", self._resource)

    def _log_error(self, error: Exception) -> None:
        if isinstance(error, Expired):
            log.info("Watch of %s: %s; listing again", self._resource, error)
        elif isinstance(error, EventBusError):
            log.warning("Failed to list or watch %s: %s", self._resource, error)
        else:
            log.error("Failed to list or watch %s", self._resource, exc_info=error)


def _retry_after_s(error: Exception) -> float:
    """Return the pause that the server asks for, seconds."""
    return (error.retry_after_s or 0.0) if isinstance(error, BusUnavailable) else 0.0


#: client-go's numbers: the pauses are 0.8–1.6 s, 1.6–3.2 s, … 30–60 s, so that the watchers of a lost server do not
#: all come back at once.
PAUSES: Final = Backoff(first_s=1.6, last_s=60.0, at_least=0.5)
#: Seconds after which the pauses start with the shortest again.
RESET_AFTER_S: Final = 120.0


class ReflectorBackoff:
    """Computes the pauses. Not thread-safe.

    Args:   chance: returns a random number, 0..1.
    Source: client-go `tools/cache/reflector.go`; the time is counted from the last reset, as there.
    """

    def __init__(self, *, clock: Clock, chance: Callable[[], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._tries = 0
        self._reset_at = clock.monotonic()

    def next_s(self) -> float:
        """Return the seconds to wait now."""
        now = self._clock.monotonic()
        if now - self._reset_at > RESET_AFTER_S:
            self._tries, self._reset_at = 0, now
        self._tries += 1
        return PAUSES.pause_s(self._tries, lambda low, high: low + (high - low) * self._chance())


#: Seconds between two reads of a fake clock, which a test moves without a notification.
FAKE_CLOCK_EVERY_S = 0.01


class StopSignal:
    """A signal set once, from any thread; it ends every sleep on it and runs the registered callbacks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Set the signal, and run the callbacks in this thread. Idempotent."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Return True if it is time to stop."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> bool:
        """Sleep on the clock, or until the signal is set. Returns: whether it is set."""
        return self.sleep_until(self._clock.monotonic() + seconds)

    def sleep_until(self, due: float) -> bool:
        """Sleep until the clock's `monotonic` is *due*, or until the signal is set. Returns: whether it is set."""
        longest = float("inf") if isinstance(self._clock, SystemClock) else FAKE_CLOCK_EVERY_S
        while (left := due - self._clock.monotonic()) > 0:
            if self._event.wait(min(left, longest)):
                break
        return self._event.is_set()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Have `set` run *callback* inside the block; at once if it is set already."""
        with self._lock:
            is_set = self._event.is_set()
            if not is_set:
                self._callbacks.append(callback)
        if is_set:
            callback()
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

    @contextmanager
    def child(self) -> Iterator[StopSignal]:
        """Yield a signal that is set with this one, can be set without it, and is set at the end of the block."""
        child = self._new()
        with self.calling(child.set):
            try:
                yield child
            finally:
                child.set()

    def _new(self) -> StopSignal:
        return StopSignal(self._clock)
