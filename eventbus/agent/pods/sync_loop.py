"""The agent's loop: takes a message from one of five channels, and passes it to the handler of the channel."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from eventbus.util.clock import Clock
from eventbus.util.log import log

CONFIG, PLEG, SYNC, PROBES, HOUSEKEEPING = "config", "pleg", "sync", "probes", "housekeeping"
CHANNELS: Final = (CONFIG, PLEG, SYNC, PROBES, HOUSEKEEPING)
#: Seconds between two ticks.
SYNC_EVERY_S, HOUSEKEEPING_EVERY_S = 1.0, 2.0
#: The capacity of a channel, messages; `offer` waits when it is full.
ROOM: Final = 1000
#: How long the loop stands still while the runtime cannot be trusted, seconds.
SKIP_S: Final = 5.0
#: A turn that takes longer is unhealthy: the kubelet's two resync intervals. Seconds.
HANGS_AFTER_S: Final = 120.0


class SyncLoop:
    """Passes each message to its handler, exactly one a turn. `run` is for one thread; `offer` for any.

    Each turn starts at the next channel, so that none starves. A handler that raises is
    logged and counted in *failures*, and the loop goes on. While *runtime_problem* returns a text, no message is taken.

    Args:   handlers: by channel; of sync and housekeeping they get None.
    Source: kubelet `syncLoop`, `syncLoopIteration`, where Go's select chooses by chance.
    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[[Any], object]],
        *,
        clock: Clock,
        runtime_problem: Callable[[], str] = str,
        room: int = ROOM,
    ) -> None:
        self.failures: Counter[str] = Counter()
        self.turns = 0
        self._handlers = handlers
        self._clock = clock
        self._runtime_problem = runtime_problem
        self._room = room
        self._queues: dict[str, deque[Any]] = {name: deque() for name in CHANNELS}
        self._changed = threading.Condition()
        self._stopped = False
        self._first = 0
        now = clock.monotonic()
        self._ticks = {SYNC: (SYNC_EVERY_S, now + SYNC_EVERY_S), HOUSEKEEPING: (HOUSEKEEPING_EVERY_S, now)}
        self._turn_began = now

    def offer(self, channel: str, message: Any, *, wait: bool = True) -> bool:
        """Bring a message; waits while the channel is full. Returns: False: it is not taken, the loop has stopped.

        Args: wait: False: a full channel does not take it.
        """
        queue = self._queues[channel]
        with self._changed:
            while wait and len(queue) >= self._room and not self._stopped:
                self._changed.wait()
            if self._stopped or len(queue) >= self._room:
                return False
            queue.append(message)
            self._changed.notify_all()
            return True

    def run(self) -> None:
        """Take turns until `stop`; blocks."""
        while not self._stopped:
            self._turn_began = self._clock.monotonic()
            if not self.turn():
                self._wait()

    def stop(self) -> None:
        """End after the current turn. Any thread. Idempotent."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def turn(self) -> bool:
        """Handle one message, if there is one. Returns: False: no message, or the runtime has a problem."""
        if problem := self._runtime_problem():
            log.error("skipping pod synchronization: %s", problem)
            self._pause()
            return False
        entry = self._take()
        if entry is None:
            return False
        channel, message = entry
        self.turns += 1
        try:
            self._handlers[channel](message)
        except Exception:
            self.failures[channel] += 1
            log.exception("the loop goes on after an unexpected error of %s", channel)
        return True

    @property
    def last_progress(self) -> float:
        """Return when the present turn began, monotonic: more than HANGS_AFTER_S ago, it hangs."""
        return self._turn_began

    def _take(self) -> tuple[str, Any] | None:
        with self._changed:
            self._tick()
            for step in range(len(CHANNELS)):
                place = (self._first + step) % len(CHANNELS)
                if queue := self._queues[CHANNELS[place]]:
                    self._first = (self._first + 1) % len(CHANNELS)
                    self._changed.notify_all()
                    return CHANNELS[place], queue.popleft()
        return None

    def _tick(self) -> None:
        """Add the due ticks, unless the last tick is not handled yet, as with Go's ticker."""
        now = self._clock.monotonic()
        for channel, (every_s, due) in self._ticks.items():
            if now >= due:
                self._ticks[channel] = every_s, due + every_s if due + every_s > now else now + every_s
                if not self._queues[channel]:
                    self._queues[channel].append(None)

    def _wait(self) -> None:
        with self._changed:
            if not self._stopped and not any(self._queues.values()):
                due = min(due for _, due in self._ticks.values())
                self._changed.wait(max(0.0, due - self._clock.monotonic()))

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, SKIP_S)
