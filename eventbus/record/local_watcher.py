"""Calls a handler with the events of this process's recorders, without Redis."""

from __future__ import annotations

import threading

from eventbus.consume.handler import Handler, call_handler
from eventbus.event import Event
from eventbus.record.mux import Mux
from eventbus.record.packing import Pending


class LocalWatcher:
    """Calls *handler* with each event of the mux, one at a time, in a thread of its own."""

    def __init__(self, mux: Mux[Pending | Event], handler: Handler, queue_length: int) -> None:
        self.handler = handler
        self.stopped = False
        self._watch = mux.watch(queue_length)
        self._thread = threading.Thread(target=self._run, name="eventbus-local-watcher", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LocalWatcher: {'stopped' if self.stopped else 'running'}, {self.missed} missed>"

    @property
    def missed(self) -> int:
        """Return how many events its queue had no room for."""
        return self._watch.dropped

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self.stopped and not self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the event that is being handled; waits at most *timeout_s*, in the handler not at all."""
        self.stopped = True
        self._watch.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            for event in self._watch:
                assert isinstance(event, Event)
                call_handler(self.handler, event)
        except SystemExit:  # of the handler
            self.stop()
