"""Elects the one live worker of a (sink, partition), keeps its lease alive, and takes over from a dead one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from eventbus.broker.exports import ExportHold, ExportStore
from eventbus.clock import Clock
from eventbus.consume.heartbeat import Heartbeat, LivenessObserver
from eventbus.errors import EventBusError
from eventbus.export.pausing import Pausing
from eventbus.log import log

BEAT_EVERY_S = 1.0
#: Twice what lies between two looks of who stands by: in a longer gap he has not watched.
LONGEST_GAP_S = 6.0
#: A call that takes longer hangs, and another worker shall have the partition: PostgreSQL's tables may take ten minutes
#: to migrate, and nothing that is known takes more.
LONGEST_CALL_S = 900.0


class LeaseLost(Exception):
    """Another worker exports this partition now, and writes again what was not kept."""


class ExportLease:
    """The lease as one worker sees it. One thread, but for the signs that its heartbeat gives `during_a_call`.

    Args: take_over_s: a counter that was watched standing still for so long is a dead worker's.
          on_beat: called behind each sign of life; may use the store, and raise what Redis does.
    """

    def __init__(
        self,
        store: ExportStore,
        *,
        clock: Clock,
        take_over_s: float,
        what: str,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._take_over_s = take_over_s
        self._what = what
        self._on_beat = on_beat
        self._liveness = LivenessObserver(clock, longest_gap_s=LONGEST_GAP_S)
        self._stands_by = ""  #: for whom, as was said
        self._next_beat = 0.0
        #: When the worker last came round, or waited on purpose; seconds, monotonic.
        self.last_progress = clock.monotonic()
        self._heartbeat = Heartbeat(self.sign, clock=clock, hung_s=LONGEST_CALL_S)

    def acquire(self) -> ExportHold | None:
        """Take the lease if it is free or its holder is dead; None: it is neither. Raises: what Redis does."""
        self.last_progress = now = self._clock.monotonic()
        lease, dead = self._store.acquire(), ""
        if not lease.ours:
            still_s = self._liveness.observe({lease.holder: lease.beats})[lease.holder]
            if still_s >= self._take_over_s:
                dead = lease.holder
                lease = self._store.acquire(lease.holder, lease.beats)  # unless it has beaten meanwhile
        if not lease.ours:
            if lease.holder != self._stands_by:
                self._stands_by = lease.holder
                log.info("%s stands by: %s writes", self._what, lease.holder)
            return None
        if dead:
            log.warning("%s: took over from %s", self._what, dead)
        elif self._stands_by:
            log.info("%s stands by no more, and writes", self._what)
        self._stands_by = ""
        self._next_beat = now + BEAT_EVERY_S
        return lease

    def keep(self) -> None:
        """Give a sign of life, if one is due. Raises: LeaseLost, and what Redis does."""
        self.last_progress = now = self._clock.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY_S
            if not self._store.acquire().ours:
                raise LeaseLost
            self._on_beat()

    def wait(self, seconds: float) -> Pausing[bool]:
        """Wait with signs of life, also through an absent Redis; True: stop. Raises: LeaseLost."""
        until = self._clock.monotonic() + seconds
        while True:
            try:
                self.keep()
            except EventBusError as error:
                log.debug("%s: no sign of life: %s", self._what, error)
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            if (yield min(left, BEAT_EVERY_S)):
                return True
            if left <= BEAT_EVERY_S:
                return False

    def during_a_call(self) -> AbstractContextManager[None]:
        """Signs of life while the body waits for the sink, and leaves Redis alone."""
        return self._heartbeat.working()

    def close(self) -> None:
        """End its thread."""
        self._heartbeat.stop()

    def sign(self) -> None:
        """Give a sign of life from another thread, while the worker leaves Redis alone. Raises nothing of Redis."""
        self.last_progress = now = self._clock.monotonic()
        try:
            if self._store.acquire().ours:
                self._next_beat = now + BEAT_EVERY_S
                self._on_beat()
            else:
                self._next_beat = 0.0  # whoever is in the call learns of it as soon as it ends
        except EventBusError as error:
            log.debug("%s: no sign of life: %s", self._what, error)

    def release(self) -> None:
        """Let another worker have it at once."""
        try:
            self._store.release()
        except EventBusError as error:
            log.warning("%s: could not leave tidily: %s", self._what, error)
