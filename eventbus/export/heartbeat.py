"""Beats while a sink is being called: such a call may take longer than others wait for a dead worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventbus.clock import Clock

log = logging.getLogger("eventbus")

EVERY_S = 1.0
#: A call that takes longer hangs, and another worker shall have the partition: PostgreSQL's tables may take ten minutes
#: to migrate, and nothing that is known takes more.
LONGEST_CALL_S = 900.0


class Heartbeater:
    """Calls *sign* every second from a thread of its own while a call is under way.

    It does so for at most LONGEST_CALL_S of *clock*, and never between calls, so that *sign* may use what belongs to
    the thread that calls.
    """

    def __init__(self, sign: Callable[[], None], *, clock: Clock) -> None:
        self._sign = sign
        self._clock = clock
        self._begun: float | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def during_a_call(self) -> Iterator[None]:
        """Give signs until the body ends. One at a time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventbus-export-pulse", daemon=True)
            self._thread.start()
        with self._lock:
            self._begun = self._clock.monotonic()
        try:
            yield
        finally:
            with self._lock:  # a sign that is under way ends first
                self._begun = None

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            with self._lock:
                if self._begun is not None and self._clock.monotonic() - self._begun < LONGEST_CALL_S:
                    self._give_sign()

    def _give_sign(self) -> None:
        try:
            self._sign()
        except Exception:  # without signs the lease is lost in the middle of the call
            log.exception("signs of life go on after an unexpected error")
