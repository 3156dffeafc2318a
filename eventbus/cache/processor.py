"""The handlers of one informer: each has a buffer of notifications and a thread; the processor distributes to all."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, assert_never

import msgspec

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown
from eventbus.errors import ConfigError
from eventbus.model.list_watch import HasMetadata
from eventbus.util.clock import Clock
from eventbus.util.log import log

T = TypeVar("T", bound=HasMetadata)

#: Waiting notifications of one handler that are not folded. client-go's ring starts with this size and grows.
FOLD_BEYOND: Final = 1_024


class Added(msgspec.Struct, Generic[T], frozen=True):
    """The object is new to the handler; *initial* if it was there before the handler."""

    object: T
    initial: bool = False


class Updated(msgspec.Struct, Generic[T], frozen=True):
    """The object has changed, or is sent again unchanged (resync)."""

    old: T
    new: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """The object is gone. *last* is the state that handlers last received; *object* may be a later one."""

    object: T | DeletedFinalStateUnknown[T]
    last: T


Notification: TypeAlias = Added[T] | Updated[T] | Deleted[T]


class EventHandler(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The functions of one handler; one that is None is not called.

    *filter* selects objects: one that begins to pass calls *on_add*, one that ceases to pass *on_delete*.
    Source: client-go's ResourceEventHandler and FilteringResourceEventHandler. Departure: *on_delete* depends on the
            state that the handler has got, not on the last one, so that it is called iff *on_add* was.
    """

    on_add: Callable[[T, bool], object] | None = None  #: object, whether it was there before the handler
    on_update: Callable[[T, T], object] | None = None  #: old, new
    on_delete: Callable[[T | DeletedFinalStateUnknown[T]], object] | None = None
    filter: Callable[[T], bool] | None = None

    def __post_init__(self) -> None:
        """Raise if a function could not be called by a thread. Raises: ConfigError."""
        for name in self.__struct_fields__:
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigError(f"{name} must be callable; a {type(function).__name__} is not")
            if any(_is_async(each) for each in (function, type(function).__call__)):
                cure = "give a plain function; in an event loop: async for change in eventbus.aio.watch(reader)"
                raise ConfigError(f"{name} is `async def`, and would never run: {cure}")

    def handle(self, notification: Notification[T]) -> None:
        """Call the function for *notification*. Raises: any error of it."""
        match notification:
            case Added(obj, initial):
                if self._passes(obj):
                    self._add(obj, initial)
            case Updated(old, new):
                self._update(old, new)
            case Deleted(obj, last):
                # Use the state that the handler has: an object may begin or cease to pass with its last change.
                if self._passes(last):
                    self._delete(obj)
            case _:
                assert_never(notification)

    def _update(self, old: T, new: T) -> None:
        match self._passes(old), self._passes(new):
            case True, True:
                if self.on_update is not None:
                    self.on_update(old, new)
            case False, True:
                self._add(new, False)
            case True, False:
                self._delete(old)

    def _add(self, obj: T, initial: bool) -> None:
        if self.on_add is not None:
            self.on_add(obj, initial)

    def _delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        if self.on_delete is not None:
            self.on_delete(obj)

    def _passes(self, obj: T) -> bool:
        return self.filter is None or self.filter(obj)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class NotificationBuffer(Generic[T]):
    """First in, first out, for one reader; `put` never blocks.

    Beyond *fold_beyond* waiting notifications an update is folded into the last one that waits for its object, if
    that is an update too: the reader then sees one step from the older state to the newest. So at most *fold_beyond*
    notifications wait, plus the additions and deletions, and an update after each. The order of each object is kept.
    """

    def __init__(self, fold_beyond: int = FOLD_BEYOND) -> None:
        self.folded = 0
        self._fold_beyond = fold_beyond
        self._changed = threading.Condition()
        self._numbers: deque[int] = deque()
        self._waiting: dict[int, tuple[str, Notification[T]]] = {}
        self._last: dict[str, int] = {}  # number of the last that waits, by key
        self._next = 0
        self._closed = False

    def put(self, key: str, notification: Notification[T]) -> None:
        """Add *notification* about the object *key*; after `close` it is dropped."""
        with self._changed:
            if self._closed or self._fold(key, notification):
                return
            number, self._next = self._next, self._next + 1
            self._numbers.append(number)
            self._waiting[number] = key, notification
            self._last[key] = number
            self._changed.notify()

    def get(self) -> Notification[T] | None:
        """Take the oldest; blocks until there is one. None after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._numbers or self._closed)
            if self._closed:
                return None
            number = self._numbers.popleft()
            key, notification = self._waiting.pop(number)
            if self._last[key] == number:
                del self._last[key]
            return notification

    def close(self) -> None:
        """Drop the waiting notifications and end the reader. Idempotent."""
        with self._changed:
            self._closed = True
            self._numbers.clear()
            self._waiting.clear()
            self._last.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return the number of notifications that wait."""
        return len(self._numbers)

    def _fold(self, key: str, notification: Notification[T]) -> bool:
        if len(self._numbers) < self._fold_beyond or not isinstance(notification, Updated) or key not in self._last:
            return False
        number = self._last[key]
        before = self._waiting[number][1]
        if not isinstance(before, Updated):
            return False
        self._waiting[number] = key, Updated(before.old, notification.new)
        self.folded += 1
        return True


class HandlerRegistration(Generic[T]):
    """A handler that was added to an informer. Made by `SharedInformer.add_event_handler`.

    Its notifications wait in a buffer of its own, and one thread delivers them, one at a time, in order for each
    object. If the handler raises, this notification is lost and logged, and the next one follows. If it raises
    SystemExit or KeyboardInterrupt, that is logged, and the handler gets no further notifications.
    """

    def __init__(
        self,
        *,
        handler: EventHandler[T],
        name: str,
        resync_s: float,
        now: float,
        upstream_synced: Callable[[float | None], bool],
    ) -> None:
        self.failed = 0  #: notifications for which the handler raised
        self.requested_resync_s = resync_s
        self.resync_s = resync_s
        self._next_resync = now + resync_s
        self._wants_sync = resync_s > 0
        self._handler = handler
        self._name = name
        self._upstream_synced = upstream_synced
        self._buffer: NotificationBuffer[T] = NotificationBuffer()
        self._initial = 0  # of the initial list, not handled
        self._handled = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def folded(self) -> int:
        """Return how many updates were folded into a waiting update, because the handler is slow."""
        return self._buffer.folded

    @property
    def pending(self) -> int:
        """Return how many notifications wait for the handler."""
        return len(self._buffer)

    @property
    def has_synced(self) -> bool:
        """Return True if the informer has its first list, and the handler has got all of it."""
        return self.wait_for_sync(timeout_s=0)

    def wait_for_sync(self, timeout_s: float | None = None) -> bool:
        """Block until `has_synced`, at most about *timeout_s* real seconds for each half. False if removed before."""
        if not self._upstream_synced(timeout_s):
            return False
        with self._handled:
            self._handled.wait_for(lambda: not self._initial or self._closed, timeout_s)
            return not self._initial

    def start(self) -> None:
        """Start to deliver."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def put(self, key: str, notification: Notification[T]) -> None:
        """Buffer *notification* for the handler. Never blocks."""
        if isinstance(notification, Added) and notification.initial:
            with self._handled:
                self._initial += 1
        self._buffer.put(key, notification)

    def close(self) -> None:
        """Stop delivering, and drop the waiting notifications. A call of the handler under way is finished."""
        with self._handled:
            self._closed = True
            self._handled.notify_all()
        self._buffer.close()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait, after `close`, for the handler to return. Returns: whether the thread has ended, or is this one."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        """Return True while its thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def wants_sync(self) -> bool:
        """Return True if it was due for a resync at the last check. Then it is sent unchanged objects too."""
        return self._wants_sync

    def check_resync(self, now: float) -> bool:
        """Return True if a resync is due, and schedule the next one *resync_s* later."""
        self._wants_sync = self.resync_s > 0 and now >= self._next_resync
        if self._wants_sync:
            self._next_resync = now + self.resync_s
        return self._wants_sync

    def set_resync(self, resync_s: float, now: float) -> None:
        """Set the period of its resyncs from now on."""
        self.resync_s = resync_s
        self._next_resync = now + resync_s

    def _run(self) -> None:
        while (notification := self._buffer.get()) is not None:
            try:
                self._handler.handle(notification)
            except (SystemExit, KeyboardInterrupt) as end:
                self.failed += 1
                log.error("A handler raised %r (%s): it gets no more notifications", end, self._name, exc_info=True)
                self.close()
                return
            except BaseException:  # also a cancelled task: it must not end the thread without a log line
                self.failed += 1
                log.exception("A handler failed (%s); it goes on with the next notification", self._name)
            if isinstance(notification, Added) and notification.initial:
                with self._handled:
                    self._initial -= 1
                    self._handled.notify_all()


class Processor(Generic[T]):
    """Gives every notification to every handler. Thread-safe; only `stop` and `remove` with a wait block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._registrations: list[HandlerRegistration[T]] = []
        self._removed: list[HandlerRegistration[T]] = []  # their threads may still be in their handlers
        self._started = False

    def __contains__(self, registration: object) -> bool:
        with self._lock:
            return registration in self._registrations

    def __len__(self) -> int:
        return len(self._registrations)

    def add(self, registration: HandlerRegistration[T]) -> None:
        """Include the handler from the next notification on."""
        with self._lock:
            self._registrations.append(registration)
            if self._started:
                registration.start()

    def remove(self, registration: HandlerRegistration[T]) -> bool:
        """Remove the handler and its waiting notifications. Returns: whether it was registered."""
        with self._lock:
            if registration not in self._registrations:
                return False
            self._registrations.remove(registration)
            self._removed = [old for old in self._removed if old.is_running] + [registration]
        registration.close()
        return True

    def start(self) -> None:
        """Start to deliver waiting notifications."""
        with self._lock:
            self._started = True
            for registration in self._registrations:
                registration.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Close all and wait for their threads, also of those removed. Returns: whether all have ended."""
        with self._lock:
            registrations = self._registrations + self._removed
        for registration in registrations:
            registration.close()
        return all([registration.join(timeout_s) for registration in registrations])

    def distribute(self, key: str, notification: Notification[T], *, sync: bool) -> None:
        """Pass the notification to all handlers; with *sync* only to those that are due for a resync."""
        with self._lock:
            for registration in self._registrations:
                if not sync or registration.wants_sync():
                    registration.put(key, notification)

    def should_resync(self) -> bool:
        """Return True if any handler is due; called when the informer's check period is over."""
        now = self._clock.monotonic()
        with self._lock:
            # A list: each has to be asked.
            return any([registration.check_resync(now) for registration in self._registrations])

    def limit_resync(self, check_s: float) -> None:
        """Limit the resyncs of each handler to the informer's check period."""
        with self._lock:
            for registration in self._registrations:
                wanted = registration.requested_resync_s
                registration.set_resync(max(wanted, check_s) if wanted else 0, self._clock.monotonic())
