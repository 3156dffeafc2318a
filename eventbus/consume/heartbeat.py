"""Signs of life of a worker that is at work, from a thread of its own: the slow are not taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventbus.clock import Clock
from eventbus.errors import EventBusError
from eventbus.log import log

EVERY_S = 1.0


class Heartbeat:
    """Calls *sign* every second while there is `working`, until that has stood still for *hung_s* of *clock*.

    Never while nothing is worked, so that *sign* may use what belongs to the thread that works. The thread starts with
    the first work; `stop` ends it.

    Args: sign: gives one sign of life; what it raises is left to the worker to find out.
          progress: what changes as the work gets on. Work that hangs gives no more signs, and is taken over.
    """

    def __init__(
        self,
        sign: Callable[[], object],
        *,
        clock: Clock,
        hung_s: float,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        self._sign = sign
        self._clock = clock
        self._hung_s = hung_s
        self._progress = progress
        self._lock = threading.Lock()
        self._since: float | None = None  #: when the work under way last got on; None: nothing is worked
        self._seen: object = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Give signs until the body ends. One at a time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventbus-heartbeat", daemon=True)
            self._thread.start()
        with self._lock:
            self._since, self._seen = self._clock.monotonic(), self._progress()
        try:
            yield
        finally:
            with self._lock:  # a sign that is under way ends first
                self._since = None

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            with self._lock:
                if self._since is not None and not self._hangs(self._since):
                    self._give_sign()

    def _hangs(self, since: float) -> bool:
        now, progress = self._clock.monotonic(), self._progress()
        if progress != self._seen:
            self._since, self._seen, since = now, progress, now
        return now - since >= self._hung_s

    def _give_sign(self) -> None:
        try:
            self._sign()
        except EventBusError:
            pass  # whoever works will find out, and say so
        except Exception:  # without signs its work would be taken over in the middle
            log.exception("signs of life go on after an unexpected error")
