"""Beats for a worker that is at work, from a thread of its own, so that the slow are not taken for dead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.stream import GroupReader
from eventbus.clock import Clock
from eventbus.errors import EventBusError

log = logging.getLogger("eventbus")

#: A worker that has not come one event further for so long hangs: it beats no more, and is taken over. Ten minutes is
#: more than a handler should ever take, and as long as the entries of one that hangs are kept from the others.
HUNG_S = 600.0


class Heartbeater:
    """Beats for *reader* every *every_s* inside `working`. Start it once; it ends with `stop`."""

    def __init__(self, *, reader: GroupReader, clock: Clock, every_s: float) -> None:
        self._reader = reader
        self._clock = clock
        self._every_s = every_s
        self._working = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventbus-pulse", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; a beat that gets no answer is not waited for."""
        self._stop.set()
        self._thread.join(1.0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work is under way. Between two works the worker beats by itself, when it reads."""
        self._reader.steps += 1
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def _run(self) -> None:
        steps, since = -1, 0.0
        while not self._stop.wait(self._every_s):
            now = self._clock.monotonic()
            if self._reader.steps != steps:
                steps, since = self._reader.steps, now
            if now - since >= HUNG_S or not self._working:
                continue
            try:
                self._reader.beat()
            except EventBusError:
                pass  # the worker will find out, and say so
            except Exception:
                log.exception("group %s: the heartbeat goes on after an unexpected error", self._reader.group)
