"""A function that its own thread calls at a fixed interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from eventbus.util.log import log


class Periodic:
    """Calls *work* at once and then every *every_s* seconds, from `start` until `stop`.

    If a call takes longer than that, the next one follows at once; missed calls are skipped. Exceptions of *work* are
    logged, and the calls continue. *last_round*: the end of the last call, monotonic.
    """

    def __init__(self, work: Callable[[], object], *, every_s: float, name: str) -> None:
        self.last_round = time.monotonic()
        self._work = work
        self._every_s = every_s
        self._name = name
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Start the next call now. Thread-safe."""
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Start no further call, and wait for the current one. Return False if it still runs. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._work()
            except Exception:
                log.exception("%s goes on after an unexpected error", self._name)
            self.last_round = time.monotonic()
            due = max(due + self._every_s, self.last_round)
            if not self._stop.is_set():  # a `stop` since `clear` has set both
                self._wake.wait(due - self.last_round)
            if self._wake.is_set():
                due = time.monotonic()
