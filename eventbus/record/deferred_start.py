"""Runs a worker as soon as the bus can be opened, for programs that may start before Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from eventbus.backoff import Backoff
from eventbus.errors import BusUnavailable, EventBusError, GroupMissing
from eventbus.record.losses import Losses

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.consume.group_runner import Runner

BACKOFF = Backoff(first_s=0.1, last_s=5.0, at_least=0.5)


class DeferredStart:
    """Runs the result of *make*, called with the bus: at once, or from a thread that waits while Redis is away.

    Args: give_up: called by the waiting thread if it is stopped before the bus is open.
    """

    def __init__(
        self,
        what: str,
        *,
        open_bus: Callable[[], Bus],
        make: Callable[[Bus], Runner],
        losses: Losses,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._open_bus = open_bus
        self._make = make
        self._losses = losses
        self._give_up = give_up
        self._runner: Runner | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, or begin to wait. Raises: BusRefused, ConfigError: a later try would fail, too."""
        try:
            self._run()
        except (BusUnavailable, GroupMissing) as error:
            self._tell(error)
            self._thread = threading.Thread(target=self._wait_and_run, name="eventbus-patient", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the waiting or the worker; waits at most *timeout_s* (0: not at all). Idempotent."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._stop.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        if self._runner:
            self._runner.stop(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        bus = self._open_bus()
        with self._lock:  # `stop` comes before, and nothing is started, or after, and finds the runner
            if not self._stop.is_set():
                runner = self._make(bus)
                runner.start()
                self._runner = runner

    def _wait_and_run(self) -> None:
        tries = 0
        while self._runner is None:
            tries += 1
            if self._stop.wait(BACKOFF.pause_s(tries)):
                self._give_up()
                return
            try:
                self._run()
            except EventBusError as error:  # also a refusal: Redis may have started, and not be configured yet
                self._tell(error)

    def _tell(self, error: EventBusError) -> None:
        self._losses.tell(self._what, f"{self._what} waits for Redis: {error}")
