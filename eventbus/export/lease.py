"""Elects the one live worker of a (sink, partition), keeps its lease alive, and takes over from a dead one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TypeVar

from eventbus.broker.exports import ExportHold, ExportStore
from eventbus.consume.heartbeat import Heartbeat, LivenessObserver
from eventbus.errors import EventBusError
from eventbus.util.clock import Clock
from eventbus.util.log import log

T = TypeVar("T")

#: A generator that yields the seconds to wait, so that one thread can run several. If True is sent to it, it ends soon.
Waits = Generator[float, bool | None, T]


def pause(seconds: float) -> Waits[bool]:
    """Wait for *seconds*. Return True if the caller should stop."""
    return bool((yield seconds))


def finish(work: Waits[T], sleep: Callable[[float], bool]) -> T:
    """Run *work* to its end and return its result. *sleep* waits for so many seconds; True: stop."""
    try:
        seconds = next(work)
        while True:
            seconds = work.send(sleep(seconds))
    except StopIteration as end:
        result: T = end.value
        return result


BEAT_EVERY_S = 1.0
#: Twice the time between two checks of a standby worker. After a longer gap, the observation starts again.
LONGEST_GAP_S = 6.0
#: A call that takes longer counts as hung, and another worker takes over the partition. The longest known call is the
#: migration of PostgreSQL's tables: up to ten minutes.
LONGEST_CALL_S = 900.0


class LeaseLost(Exception):
    """Another worker exports this partition now. It repeats writes without a stored result."""


class ExportLease:
    """The lease of one partition, as seen by one worker. One thread, except for heartbeats in `during_a_call`.

    Args: take_over_s: if the holder's heartbeat counter does not change for so long, the holder counts as dead.
    """

    def __init__(self, store: ExportStore, *, clock: Clock, take_over_s: float, title: str) -> None:
        self._store = store
        self._clock = clock
        self._take_over_s = take_over_s
        self._title = title
        self._liveness = LivenessObserver(clock, longest_gap_s=LONGEST_GAP_S)
        self._stands_by = ""  #: the holder that was logged last
        self._next_beat = 0.0
        #: The time of the worker's last loop or intended wait; seconds, monotonic.
        self.last_progress = clock.monotonic()
        self._heartbeat = Heartbeat(self.beat, clock=clock, hung_s=LONGEST_CALL_S)

    def acquire(self) -> ExportHold | None:
        """Acquire the lease if it is free or its holder is dead, else return None. Raises: Redis errors."""
        self.last_progress = now = self._clock.monotonic()
        lease, dead = self._store.acquire(), ""
        if not lease.ours:
            still_s = self._liveness.observe({lease.holder: lease.beats})[lease.holder]
            if still_s >= self._take_over_s:
                dead = lease.holder
                lease = self._store.acquire(lease.holder, lease.beats)  # fails if the holder has sent a heartbeat since
        if not lease.ours:
            if lease.holder != self._stands_by:
                self._stands_by = lease.holder
                log.info("%s stands by: %s writes", self._title, lease.holder)
            return None
        if dead:
            log.warning("%s: took over from %s", self._title, dead)
        elif self._stands_by:
            log.info("%s acquired the lease, which was free", self._title)
        self._stands_by = ""
        self._next_beat = now + BEAT_EVERY_S
        return lease

    def keep(self) -> None:
        """Send a heartbeat if one is due. Raises: LeaseLost, and Redis errors."""
        self.last_progress = now = self._clock.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY_S
            if not self._store.acquire().ours:
                raise LeaseLost

    def wait(self, seconds: float) -> Waits[bool]:
        """Wait and send heartbeats, also while Redis is unavailable. True: stop. Raises: LeaseLost."""
        until = self._clock.monotonic() + seconds
        while True:
            try:
                self.keep()
            except EventBusError as error:
                log.debug("%s: no heartbeat: %s", self._title, error)
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            if (yield min(left, BEAT_EVERY_S)):
                return True
            if left <= BEAT_EVERY_S:
                return False

    def during_a_call(self) -> AbstractContextManager[None]:
        """Send heartbeats while the body waits for the sink. The body must not use Redis."""
        return self._heartbeat.working()

    def close(self) -> None:
        """Stop the heartbeat thread."""
        self._heartbeat.stop()

    def beat(self) -> None:
        """Send a heartbeat from another thread, while the worker does not use Redis. Raises no Redis errors."""
        self.last_progress = now = self._clock.monotonic()
        try:
            if self._store.acquire().ours:
                self._next_beat = now + BEAT_EVERY_S
            else:
                self._next_beat = 0.0  # the worker checks the lease as soon as its call ends
        except EventBusError as error:
            log.debug("%s: no heartbeat: %s", self._title, error)

    def release(self) -> None:
        """Release the lease, so that another worker can acquire it at once."""
        try:
            self._store.release()
        except EventBusError as error:
            log.warning("%s: could not release the lease: %s", self._title, error)
