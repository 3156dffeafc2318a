"""Runs the loops of one worker, and their companions, as threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from eventbus.consume.health import LoopHealth


class PartitionLoop(Protocol):
    """A loop that works one or several partitions in a thread of its own."""

    def run(self) -> None:
        """Run; blocks until `stop`."""
        ...

    def stop(self) -> None:
        """End after the delivery that is being handled; returns at once."""
        ...


class Runner(Protocol):
    """A component with threads of its own, from `start` until `stop`."""

    def start(self) -> None: ...

    def stop(self, timeout_s: float = 5.0) -> None: ...


def _run(loop: PartitionLoop) -> None:
    with suppress(SystemExit):  # of a handler, whose watcher stops
        loop.run()


class GroupRunner:
    """Starts a thread for each of *loops* and then *beside*, and ends them together, in that order.

    Args: what: names the threads, as `sink` in `eventbus-sink-0`.  loop_health: of each partition.
    """

    def __init__(
        self,
        what: str,
        loops: Sequence[PartitionLoop],
        *,
        beside: Sequence[Runner],
        loop_health: Callable[[], list[LoopHealth]] = list,
    ) -> None:
        self._loops = loops
        self._beside = beside
        self._loop_health = loop_health
        self._threads = [
            threading.Thread(target=_run, args=(loop,), name=f"eventbus-{what}-{number}", daemon=True)
            for number, loop in enumerate(loops)
        ]

    def start(self) -> None:
        """Start the threads; returns at once."""
        for thread in self._threads:
            thread.start()
        for companion in self._beside:
            companion.start()

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each partition's loop. Safe to call from any thread."""
        return self._loop_health()

    @property
    def ended(self) -> bool:
        """Return True if no loop runs: none was started, or all have ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop after the deliveries that are being handled; waits at most *timeout_s* (0: not at all). Idempotent."""
        deadline = time.monotonic() + timeout_s
        for loop in self._loops:
            loop.stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        for companion in self._beside:
            companion.stop(max(0.0, deadline - time.monotonic()))
