"""Heartbeats: sends a worker's from a thread of its own, and measures how long those of its peers have stood still.

A slow handler is not taken for a dead worker. `LoopHealth` reports the health of a loop.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from eventbus.errors import EventBusError
from eventbus.util.clock import Clock
from eventbus.util.log import log

EVERY_S = 1.0


class Heartbeat:
    """Calls *sign* every second inside `working`, until there was no progress for *hung_s* of *clock*.

    It calls *sign* inside `working` only, so *sign* may use the working thread's connection. The thread starts with
    the first work; `stop` ends it.

    Args: sign: sends one heartbeat; its errors are ignored, because the worker meets the same ones.
          progress: a value that changes with the work. A worker that hangs sends no heartbeats, and is taken over.
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
        self._since: float | None = None  #: when the current work last made progress; None: there is none
        self._seen: object = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Send heartbeats until the body ends. One thread at a time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventbus-heartbeat", daemon=True)
            self._thread.start()
        with self._lock:
            self._since, self._seen = self._clock.monotonic(), self._progress()
        try:
            yield
        finally:
            with self._lock:  # wait for a heartbeat that is under way
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
            pass  # the worker meets the same error, and logs it
        except Exception:  # without heartbeats another worker would take over in the middle
            log.exception("signs of life go on after an unexpected error")


class LivenessObserver:
    """One observer's record of the counters of its peers, by name. Not thread-safe.

    A pause of the machine stops the observer and its peers alike, so a gap between two looks counts for at most
    *longest_gap_s*.
    """

    def __init__(self, clock: Clock, *, longest_gap_s: float) -> None:
        self._clock = clock
        self._longest_gap_s = longest_gap_s
        self._looked_at = -math.inf
        self._seen: dict[str, tuple[str, float]] = {}  # the counter, and for how many seconds it stood still

    def observe(self, counters: Mapping[str, str]) -> Mapping[str, float]:
        """Take the current counters of all peers. Return for each how many seconds it has stood still."""
        now = self._clock.monotonic()
        watched_s = min(now - self._looked_at, self._longest_gap_s)
        self._looked_at, before = now, self._seen
        self._seen = {}
        for name, counter in counters.items():
            last, still_s = before.get(name, (None, 0.0))
            self._seen[name] = (counter, still_s + watched_s if counter == last else 0.0)
        return {name: still_s for name, (_, still_s) in self._seen.items()}


class LoopHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One loop, at one moment.

    *group* is a consumer group or `export:<sink>`. *last_progress*: when the loop last completed a round, or
    waited on purpose, seconds, monotonic. *ready*: Redis answers, and entries are delivered. *counts* only grow while
    the loop runs; *gauges* may go both ways.
    """

    group: str
    partition: int
    last_progress: float
    ready: bool
    counts: Mapping[str, float]
    gauges: Mapping[str, float] = {}
