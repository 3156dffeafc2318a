"""One handler of an informer: its buffer, its thread, and its schedule of resyncs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from eventbus.cache.handler import EventHandler
from eventbus.cache.notifications import Added, Notification, NotificationBuffer
from eventbus.model.list_watch import HasMetadata
from eventbus.util.log import log

T = TypeVar("T", bound=HasMetadata)


class HandlerRegistration(Generic[T]):
    """A handler that was added to an informer. Made by `SharedInformer.add_event_handler`.

    Its notifications wait in a buffer of its own, and one thread delivers them, one at a time, in order for each
    object. If the handler raises, this notification is lost and logged, and the next one follows.
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

    def tell(self, key: str, notification: Notification[T]) -> None:
        """Buffer *notification* for the handler. Never blocks."""
        if isinstance(notification, Added) and notification.initial:
            with self._handled:
                self._initial += 1
        self._buffer.put(key, notification)

    def close(self) -> None:
        """Stop delivering and drop what waits; a call of the handler under way is finished."""
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
            except BaseException:  # SystemExit too: it would end this thread, and the rest would wait for ever
                self.failed += 1
                log.exception("A handler failed (%s); it goes on with the next notification", self._name)
            if isinstance(notification, Added) and notification.initial:
                with self._handled:
                    self._initial -= 1
                    self._handled.notify_all()
