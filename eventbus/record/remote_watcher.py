"""A watcher without a group over HTTP: it calls a handler with each event of the raw stream, in order."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from eventbus.consume.handler import Handler, call_handler
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.util.backoff import Backoff
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.client.stream import RemoteStream

#: Pauses between two attempts to connect.
BACKOFF = Backoff(first_s=0.1, last_s=10.0, at_least=0.25)


class RemoteWatcher:
    """A `StreamWatcher` over HTTP. It reconnects by itself, and continues after the last event it has received."""

    def __init__(self, *, stream: RemoteStream, handler: Handler) -> None:
        self._stream = stream
        self._handler = handler
        self._stop = threading.Event()
        self.skipped = 0
        self._thread = threading.Thread(target=self._run, name="eventbus-watch-http", daemon=True)

    def __repr__(self) -> str:
        state = "stopped" if self._stop.is_set() else "running"
        return f"<RemoteWatcher: {state}, {self.missed} missed, {self.skipped} skipped>"

    @property
    def missed(self) -> int:
        """Return how many events were trimmed before this watcher could read them."""
        return self._stream.missed

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the event that is being handled; waits at most *timeout_s*, in the handler not at all."""
        self._stop.set()
        self._stream.close()
        if timeout_s and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self._stop.is_set() and not self._thread.is_alive()

    def _run(self) -> None:
        ends = 0  # in a row: streams that ended without an event and before the longest pause
        logged = False
        while not self._stop.is_set():
            began_s, retry_after_s = time.monotonic(), 0.0
            try:
                for event in self._stream.read():
                    ends, logged = 0, False
                    if self._stop.is_set():
                        return
                    if not call_handler(self._handler, event):
                        self.skipped += 1
            except SystemExit:  # of the handler
                self.stop()
                return
            except Exception as error:
                if self._stop.is_set():
                    return
                if not logged:
                    unforeseen = None if isinstance(error, EventBusError) else error
                    log.warning("watcher waits: %s", error, exc_info=unforeseen)
                logged = True
                retry_after_s = (error.retry_after_s or 0.0) if isinstance(error, BusUnavailable) else 0.0
            if time.monotonic() - began_s >= BACKOFF.last_s:
                ends = 0
            # A regular end counts, too: a worker that stops ends its streams, but so does a proxy that refuses them.
            ends += 1
            self._stop.wait(max(BACKOFF.pause_s(ends), random.uniform(retry_after_s, 1.25 * retry_after_s)))
