"""Distributes notifications to the handlers of one informer."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from eventbus.cache.notifications import Notification
from eventbus.cache.registration import HandlerRegistration
from eventbus.model.list_watch import HasMetadata
from eventbus.util.clock import Clock

T = TypeVar("T", bound=HasMetadata)


class Processor(Generic[T]):
    """Gives every notification to every handler. Thread-safe; only `stop` and `remove` with a wait block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._registrations: list[HandlerRegistration[T]] = []
        self._removed: list[HandlerRegistration[T]] = []  # whose thread may still be in its handler
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
                    registration.tell(key, notification)

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
