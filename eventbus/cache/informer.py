"""The informer: keeps a local copy of the objects of one kind, and notifies handlers of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, Delta, DeltaFIFO, DeltaType, key_of
from eventbus.cache.indexer import Indexer, Lister, object_key
from eventbus.cache.processor import Added, Deleted, EventHandler, HandlerRegistration, Processor, Updated
from eventbus.cache.reflector import Reflector, StopSignal
from eventbus.errors import EventBusError
from eventbus.model.list_watch import HasMetadata, ListerWatcher, is_older
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log

T = TypeVar("T", bound=HasMetadata)

#: The shortest period of a handler's resyncs.
MIN_RESYNC_S: Final = 1.0


class SharedInformer(Generic[T]):
    """Lists and watches one kind, keeps the objects in an indexer, and calls handlers, each at its own pace.

    A handler gets every object, and its changes in order: an add, updates, a delete, an add again. It may not get each
    state: the changes while the watch is down become one step. The indexer is at least as new as a
    handler's notifications. A change is dropped unless its version is above the one in the cache. Handlers get the
    objects of the cache themselves: they are frozen.

    Args:   source: where to read.  resource: as `nodes`, for errors and thread names.
            resync_s: how often handlers get all objects again, unless they ask for another period; 0 = never.
            transform: applied to each object before it is kept.
            expected_type, on_error: as in `Reflector`.
    Source: client-go `tools/cache/shared_informer.go`. Departures: stale changes are dropped; updates that wait for a
            slow handler are folded; the notification after one at which the handler raised comes at once; a
            handler that raised in the initial list is synced nevertheless; a delete of an unknown object is ignored.
    """

    def __init__(
        self,
        source: ListerWatcher[T],
        *,
        resource: str = "objects",
        resync_s: float = 0,
        transform: Callable[[T], T] | None = None,
        expected_type: type[T] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.stale = 0  #: changes dropped because the cache had that version, or a newer one
        self._source = source
        self._resource = resource
        self._default_resync_s = self._check_s = resync_s
        self._expected_type = expected_type
        self._on_error = on_error
        self._clock = clock or SystemClock()
        self._indexer: Indexer[T] = Indexer()
        self._fifo: DeltaFIFO[T] = DeltaFIFO(known_objects=self._indexer, transform=transform)
        self._processor: Processor[T] = Processor(self._clock)
        self._stop = StopSignal(self._clock)
        self._reflector: Reflector[T] | None = None
        self._threads: list[threading.Thread] = []
        self._handlers = 0
        self._stopped = False
        # Held while deltas are applied and distributed, and while a handler is added: it gets each change exactly
        # once, as an initial object or as a change. Inside it only leaf locks are taken.
        self._deltas_lock = threading.RLock()
        self._start_lock = threading.Lock()

    @property
    def indexer(self) -> Indexer[T]:
        """Return the local copy. Read only; indexes may be added at any time."""
        return self._indexer

    def lister(self) -> Lister[T]:
        """Return a lister, which reads the local copy."""
        return Lister(self._indexer, self._resource)

    @property
    def has_started(self) -> bool:
        """Return True if `start` was called."""
        return bool(self._threads)

    @property
    def is_stopped(self) -> bool:
        """Return True if `stop` was called."""
        return self._stopped

    @property
    def has_synced(self) -> bool:
        """Return True if the local copy holds all of the first list.

        Handlers may not have been called yet: see their own `has_synced`."""
        return self._fifo.has_synced

    @property
    def last_sync_resource_version(self) -> str:
        """Return the version up to which the source has been read; "" before the first list."""
        return self._reflector.last_sync_resource_version if self._reflector is not None else ""

    def wait_for_cache_sync(self, timeout_s: float | None = None) -> bool:
        """Block until `has_synced`, at most *timeout_s* real seconds, or until it stops. Returns: `has_synced`."""
        return self._fifo.wait_until_synced(timeout_s)

    def add_event_handler(
        self,
        on_add: Callable[[T, bool], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T | DeletedFinalStateUnknown[T]], object] | None = None,
        *,
        filter: Callable[[T], bool] | None = None,
        resync_s: float | None = None,
    ) -> HandlerRegistration[T]:
        """Call these functions for every object and every change, in a thread of their own.

        The informer may be running: then its objects come first, marked as initial.

        Args:   on_add: object, and whether it was there before.  on_update: old, new.
                on_delete: the last state, or `DeletedFinalStateUnknown` if it was deleted while the watch was down.
                filter: objects that do not pass do not exist for this handler; runs in its thread.
                resync_s: how often to show everything again as an update: 0 = never, at least 1; None = as the
                informer says. On a running informer not more often than it looks.
        Raises: EventBusError: the informer has stopped; make a new one.
                ConfigError: a function is not callable, or is `async def`.
        """
        handler = EventHandler(on_add=on_add, on_update=on_update, on_delete=on_delete, filter=filter)
        with self._deltas_lock:
            if self.is_stopped:
                raise EventBusError("handler was not added to shared informer because it has stopped already")
            self._handlers += 1
            registration = HandlerRegistration(
                handler=handler,
                name=f"eventbus-handler-{self._resource}-{self._handlers}",
                resync_s=self._agree_resync(self._default_resync_s if resync_s is None else resync_s),
                now=self._clock.monotonic(),
                upstream_synced=self._fifo.wait_until_synced,
            )
            for obj in self._indexer.list():
                registration.put(object_key(obj), Added(obj, initial=True))
            self._processor.add(registration)
        return registration

    def remove_event_handler(self, registration: HandlerRegistration[T]) -> None:
        """Stop calling the handler. A call under way continues; a foreign or removed handler is no error."""
        self._processor.remove(registration)

    def shut_down_event_handler(self, registration: HandlerRegistration[T], timeout_s: float | None = None) -> bool:
        """Remove a handler as `remove_event_handler`, and wait for it, at most *timeout_s*.

        Returns: whether it has ended."""
        self._processor.remove(registration)
        return registration.join(timeout_s)

    def start(self) -> None:
        """Start to list, watch and call handlers, in threads. Again, or after `stop`, it only logs a warning."""
        with self._start_lock, self._deltas_lock:
            if self._threads or self.is_stopped:
                log.warning("The informer of %s was started already", self._resource)
                return
            reflector = self._reflector = self._make_reflector()
            self._threads = [
                threading.Thread(
                    target=self._apply_until_closed, name=f"eventbus-informer-{self._resource}", daemon=True
                ),
                threading.Thread(
                    target=reflector.run, args=(self._stop,), name=f"eventbus-reflector-{self._resource}", daemon=True
                ),
            ]
            self._processor.start()
            for thread in self._threads:
                thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop reading, apply the changes that were read, stop the handlers and join the threads. May be called again.

        Notifications that wait for a slow handler are dropped. Called by a handler, it does not wait for that one.

        Args:    timeout_s: real seconds to wait for each thread; None without end, also for a handler that hangs.
        Returns: whether every thread has ended.
        """
        with self._deltas_lock:  # a handler is added before, and closed below, or refused
            self._stopped = True
        self._stop.set()
        with self._start_lock:
            controller, reflector = self._threads or (None, None)
        ended = _join(reflector, timeout_s)
        self._fifo.close()
        ended &= _join(controller, timeout_s)
        return self._processor.stop(timeout_s) and ended

    def _make_reflector(self) -> Reflector[T]:
        return Reflector(
            source=self._source,
            store=self._fifo,
            clock=self._clock,
            resource=self._resource,
            resync_s=self._check_s,
            should_resync=self._processor.should_resync,
            on_error=self._on_error,
            expected_type=self._expected_type,
        )

    def _agree_resync(self, wanted_s: float) -> float:
        """Return how often a new handler resyncs.

        Before the start the informer checks as often as any handler wants."""
        if wanted_s <= 0:
            return 0
        if wanted_s < MIN_RESYNC_S:
            log.warning("resync_s: %s is too often; %s instead", wanted_s, MIN_RESYNC_S)
            wanted_s = MIN_RESYNC_S
        if self.has_started and not self._check_s:
            log.warning("The informer of %s runs without resync; start it after adding the handler", self._resource)
            return 0
        if self.has_started or wanted_s >= self._check_s > 0:
            return max(wanted_s, self._check_s)
        self._check_s = wanted_s
        self._processor.limit_resync(wanted_s)
        return wanted_s

    def _apply_until_closed(self) -> None:
        while True:
            try:
                if not self._fifo.pop(self._apply):
                    return
            except Exception:
                log.exception("Cannot apply a change of %s; skipped", self._resource)

    def _apply(self, deltas: Sequence[Delta[T]], initial: bool) -> None:
        with self._deltas_lock:
            for delta in deltas:
                obj = delta.object
                key = key_of(obj)
                old = self._indexer.get_by_key(key)
                if delta.type is DeltaType.DELETED:
                    self._delete(key, obj, old)
                elif not isinstance(obj, DeletedFinalStateUnknown):
                    self._put(key, delta.type, obj, old, initial)

    def _put(self, key: str, delta_type: DeltaType, obj: T, old: T | None, initial: bool) -> None:
        if old is None:
            self._indexer.add(obj)
            self._processor.distribute(key, Added(obj, initial), sync=False)
            return
        version, old_version = obj.metadata.resource_version, old.metadata.resource_version
        same = version == old_version != ""
        if delta_type in (DeltaType.ADDED, DeltaType.UPDATED) and (same or is_older(version, old_version)):
            self.stale += 1
            return
        self._indexer.add(obj)
        self._processor.distribute(key, Updated(old, obj), sync=same or delta_type is DeltaType.SYNC)

    def _delete(self, key: str, obj: T | DeletedFinalStateUnknown[T], old: T | None) -> None:
        if old is None:
            return
        if not isinstance(obj, DeletedFinalStateUnknown) and is_older(
            obj.metadata.resource_version, old.metadata.resource_version
        ):
            self.stale += 1
            return
        self._indexer.delete_key(key)
        self._processor.distribute(key, Deleted(obj, old), sync=False)


def _join(thread: threading.Thread | None, timeout_s: float | None) -> bool:
    if thread is None or thread is threading.current_thread():
        return True
    thread.join(timeout_s)
    return not thread.is_alive()
