"""The outbox: takes events from any thread without waiting, and one flusher thread sends them.

There is no timer. The first event wakes an idle flusher, which sends it at once; during a call more events collect, so
batches grow with the load.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from eventbus.backoff import Backoff
from eventbus.broker.transport import Transport
from eventbus.clock import Clock
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError
from eventbus.log import log
from eventbus.record.buffer import SPOOL_FULL, Buffer
from eventbus.record.flush_mark import FlushMark
from eventbus.record.latch import Latch
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending
from eventbus.record.producer import ANSWER_S
from eventbus.record.sender import Sender
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.record.spool.keeper import SpoolKeeper

BACKOFF = Backoff(first_s=0.05, last_s=5.0, at_least=0.25)
#: The longest `Retry-After` that is honored: with a longer pause the return of the API would go unnoticed.
LONGEST_ASKED_S = 60.0
#: seconds between two attempts to send while a close waits
CLOSING_BACKOFF_S = 0.05
#: seconds that a flusher has to end after its transport is closed
HANG_UP_S = 0.5
#: longest pause while all waiting events are for partitions that back off
HELD_S = 0.05


class Outbox:
    """A `Buffer`, a `Sender`, and the flusher: a thread that has the sender send what the buffer holds.

    `put` never blocks on the network and never raises. Events that cannot be sent are counted in *losses*: `dropped`
    (buffer full), `refused` (bad input), `lost`, `unsent` (closed before Redis came back).

    Args:   connect: opens the bus; called by the flusher when there are events to send.
            on_start: called in the thread that puts the first event, before the flusher starts.
            on_foreign_fork: called in a child that C code has forked without telling Python; it has to call `reset` of
            all outboxes of the process, and then `count_forgotten`.
            make_keeper: makes the keeper of the spool; called by each `reset`. It returns None without a spool.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Transport],
        settings: Settings,
        clock: Clock,
        losses: Losses,
        on_start: Callable[[], None] = lambda: None,
        on_foreign_fork: Callable[[], None] | None = None,
        make_keeper: Callable[[], SpoolKeeper | None] = lambda: None,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._on_start = on_start
        self._on_foreign_fork = on_foreign_fork or self.reset
        self._make_keeper = make_keeper
        self._keeper: SpoolKeeper | None = None
        self._buffer = Buffer(settings=settings, clock=clock, losses=losses)
        self.reset()

    def reset(self) -> None:
        """Empty the outbox and forget the thread.

        Called by the constructor, and in a child after fork, which must not send its parent's events."""
        self._pid = os.getpid()
        #: events that the last `reset` forgot, and whether a flush has to report that they are lost
        self._forgotten, self._lost_by_fork = self._buffer.events, False
        if self._keeper is not None:
            self._keeper.forget()
        self._keeper = self._make_keeper()
        self._buffer = Buffer(settings=self._settings, clock=self._clock, losses=self._losses)
        self._items = self._buffer.items
        self._limit, self._small = self._buffer.limit, self._buffer.small
        self._sender = Sender(
            connect=self._connect,
            buffer=self._buffer,
            settings=self._settings,
            clock=self._clock,
            losses=self._losses,
            spool=None if self._keeper is None else self._keeper.spool,
        )
        # All are reentrant: a signal handler may need a lock that its own thread holds.
        self._start_lock = threading.RLock()
        self._drive_lock = threading.RLock()
        self._round_lock = threading.RLock()
        self._turnstile = threading.RLock()
        self._count_lock = threading.RLock()
        self._parked: list[threading.RLock] = []
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        #: Set while a flusher sends what `put` takes.
        self._thread: threading.Thread | None = None
        self._flusher: threading.Thread | None = None
        self._closing, self._ended = Latch(), Latch()
        self._closed_at, self._deadline = -math.inf, math.inf
        self._discarded = self._unsent = 0
        self._failures = 0

    def put(self, pending: Pending) -> None:
        """Take one event. Any thread; the order of one thread's calls is kept."""
        items = self._items
        full = len(items) >= self._limit or len(pending.message) > self._small
        if full and not self._make_room(pending):
            return
        items.append(pending)
        if self._asleep:
            self._wake_for(pending)
        elif self._thread is None:
            self._start()

    def flush(self, timeout_s: float) -> bool:
        """Wait until Redis has everything that was put before. False: not within *timeout_s*.

        Also False, once, in a child that C code has forked, if events were put before this process noticed the fork.
        They are counted as `lost`.

        If Redis acknowledged a batch more than a second ago, this asks whether it still has it; without an answer
        within a second, it counts as there.
        """
        self._look_for_foreign_fork()
        lost, self._lost_by_fork = self._lost_by_fork, False
        if self._thread is None and not self._items:
            return not lost
        mark = FlushMark(self._clock.monotonic())
        self._items.append(mark)
        self._work_on()
        if self._thread is None or not self._wait(mark.done, self._clock.monotonic() + timeout_s):
            return False
        return not lost and (mark.accepted or not mark.done.happened)

    def begin_close(self, timeout_s: float) -> None:
        """Tell the flusher to send what is there, for at most *timeout_s*, and to end. Does not wait, takes no lock.

        After several calls the earliest deadline counts.
        """
        self._look_for_foreign_fork()
        now = self._clock.monotonic()
        if not self._closing.happened:
            self._closed_at = now
        self._deadline = min(self._deadline, now + timeout_s)
        self._closing.set()
        self._wake_up()

    def close(self, timeout_s: float) -> bool:
        """Send what is there, for at most *timeout_s*, and stop. The rest is counted as `unsent`. Idempotent."""
        self.begin_close(timeout_s)
        self.finish()
        return not self._count_unsent() and not self._lost_by_fork

    def finish(self) -> None:
        """After `begin_close`, wait until the flusher has ended, or do its work if there is none. Idempotent.

        Every caller waits for the flusher and not for another caller: a signal handler that waits here may have
        interrupted the other call in its own thread.
        """
        with self._start_lock:
            self._thread = None  # from now on `put` comes to `_start`, which refuses
        self._buffer.close()
        flusher = self._flusher
        if flusher is threading.current_thread():
            self._deadline = -math.inf  # called by a logging handler of this thread: it cannot wait for itself
        elif flusher is not None and flusher.ident is not None:
            self._wait(self._ended, self._deadline)
            if not self._ended.happened:
                self._deadline = -math.inf
                self._sender.hang_up()
            flusher.join(HANG_UP_S)
            if self._ended.happened and not self.closed:
                self._drive_here()  # it ended too early
        else:
            self._drive_here()  # the interpreter no longer let a thread start
        if self._keeper is not None:
            self._keeper.stop()

    def send(self, pending: Pending) -> None:
        """Send one event after `close`, for components that end later; blocks until the deadline of the close."""
        self._items.append(pending)
        self._drive_here()
        self._count_unsent()

    @property
    def closed(self) -> bool:
        """Return True if no more will be sent: everything was, or the deadline of a `close` is over."""
        return self._closing.happened and (self._overdue() or self._finished())

    @property
    def waiting(self) -> int:
        """Return about how many events are not yet accepted."""
        return self._buffer.events + self._sender.pending

    # -- forks ---------------------------------------------------------------------------------------------------

    def park(self, timeout_s: float) -> None:
        """Wait until the flusher is between two rounds, at most *timeout_s*, and keep it there, before a fork.

        Then no lock in the child is held by a thread that exists in the parent only. A flusher that waits for a reply
        holds none.
        """
        deadline = self._clock.monotonic() + timeout_s
        for lock in (self._turnstile, self._round_lock, self._sender.lock):
            if lock.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
                self._parked.append(lock)

    def unpark(self) -> None:
        """Resume the flusher in the parent, after a fork."""
        while self._parked:
            self._parked.pop().release()

    def count_forgotten(self) -> None:
        """Count the events that the last `reset` forgot as lost, after a fork that Python did not see.

        Some may be the parent's, which sends them: the two cannot be told apart.
        """
        forgotten, self._forgotten = self._forgotten, 0
        if forgotten:
            self._lost_by_fork = True
            self._losses.count("lost", forgotten, "waiting when this process, forked by C code, noticed the fork")

    def _look_for_foreign_fork(self) -> None:
        """Begin anew if this process is a child that C code has forked without telling Python."""
        if self._pid != os.getpid():
            self._on_foreign_fork()
            self.count_forgotten()

    # -- the caller's side ---------------------------------------------------------------------------------------

    def _make_room(self, pending: Pending) -> bool:
        self._look_for_foreign_fork()
        return self._buffer.make_room(pending, self._work_on)

    def _work_on(self) -> None:
        self._start()
        self._wake_up()

    def _wake_for(self, pending: Pending) -> None:
        if self._pid == os.getpid():
            self._wake_up()
            return
        with suppress(ValueError, IndexError):  # another thread of this child has found it out first
            self._items.remove(pending)
        self._look_for_foreign_fork()
        self.put(pending)

    def _wake_up(self) -> None:
        self._asleep = False
        try:  # noqa: SIM105  # `suppress` would cost the caller half a microsecond
            self._wake.release()
        except RuntimeError:
            pass  # another thread has woken it

    def _start(self) -> None:
        with self._start_lock:
            if self._closing.happened:
                if late := self._buffer.clear():
                    self._losses.count("refused", late, "the broadcaster is shut down")
            elif self._thread is None:
                self._on_start()
                self._thread = self._flusher = threading.Thread(target=self._run, name="eventbus-outbox", daemon=True)
                try:
                    self._thread.start()
                    if self._keeper is not None:
                        self._keeper.start(self._sender, on_kept=self._on_kept)
                except RuntimeError:
                    self._thread = self._flusher = None  # the interpreter is shutting down: `close` sends

    def _wait(self, until: Latch, deadline: float) -> bool:
        """Poll *until*; return True early when only an ack check is outstanding. False: not by *deadline*."""
        while not until.wait(min(ANSWER_S, deadline - self._clock.monotonic())):
            if self._only_checks():
                return True
            if self._clock.monotonic() >= deadline:
                return False
        return True

    def _only_checks(self) -> bool:
        """Return True if all is acknowledged, and the flusher only waits for an ack check."""
        check = self._sender.ack_check
        token = check.under_way
        return token is not None and not self.waiting and check.under_way is token

    def _drive_here(self) -> None:
        """Do the flusher's work in this thread until all is sent or the deadline over."""
        if self.closed:
            return  # a caller that holds the lock may be a frame that waits for this one
        if not self._drive_lock.acquire(timeout=max(0.0, self._deadline - self._clock.monotonic())):
            return
        try:
            # A signal handler may have interrupted the same work: batches on their way go again, as duplicates.
            self._sender.close()
            self._drive()
        finally:
            self._sender.close()
            self._drive_lock.release()

    def _count_unsent(self) -> int:
        with self._count_lock:
            kept = self._sender.keep_rest()
            self._discarded += self._buffer.clear()
            waiting = self._discarded + self._sender.pending
            unsent = max(0, waiting - kept)
            more, self._unsent = unsent - self._unsent, unsent  # first: a logging handler may close again
            if more > 0:
                cause = "spool_full" if self._buffer.why_full is SPOOL_FULL else "unsent"
                self._losses.count(cause, more, "closed before Redis had them")
            return waiting

    # -- the flusher's side --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._drive_lock:
                self._drive()
        finally:
            self._sender.close()
            self._ended.set()

    def _drive(self) -> None:
        """Send round after round until it is closed, and all is sent or the deadline over."""
        while True:
            self._sleep_until_work()
            if self.closed:
                return
            try:
                with self._turnstile:
                    pass  # a thread that is about to fork goes first
                if self._keeper is not None:
                    self._sender.begin_round()
                    self._keeper.watch()
                with self._round_lock:
                    sent = self._sender.round(self._closed_at)
                self._failures = 0
                self._take_limit()
                if not sent and (self._items or not self._sender.idle):
                    self._pause()
            except EventBusError as error:
                self._wait_after(error)
                never_will_do = not self._sender.connected and isinstance(error, (ConfigError, BusRefused))
                if never_will_do and self._closing.happened:
                    self._deadline = -math.inf
            except Exception as error:
                if self._closing.happened and (self._overdue() or sys.is_finalizing()):
                    return  # hung up, or the interpreter is ending: a later try would fail, too
                log.exception("the outbox goes on after an unexpected error")
                self._wait_after(EventBusError(f"{type(error).__name__}: {error}"))

    def _take_limit(self) -> None:
        self._limit = self._buffer.limit

    def _on_kept(self) -> None:
        """Note that the spool's keeper has taken events from the buffer. Called in the keeper's thread."""
        self._take_limit()
        if self._asleep and self._sender.can_send:  # it fell asleep while these were neither in the buffer nor numbered
            self._wake_up()

    def _overdue(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def _finished(self) -> bool:
        return not self._items and self._sender.idle and self._sender.check_in_s(self._closed_at) > 0

    def _sleep_until_work(self) -> None:
        if self._has_work():
            return
        self._asleep = True
        if self._has_work():  # put in between, and perhaps taken by the spool's keeper
            self._asleep = False
            return
        work_in_s = min(self._sender.check_in_s(self._closed_at), self._sender.due_in_s())
        self._wake.acquire(timeout=-1 if work_in_s == math.inf else max(0.0, work_in_s))
        self._asleep = False

    def _has_work(self) -> bool:
        return bool(self._items) or self._sender.can_send or self._closing.happened

    def _pause(self) -> None:
        """Wait for partitions that back off: all other events have been sent."""
        pause_s = min(HELD_S, self._sender.due_in_s())
        if self._closing.happened:
            self._clock.sleep(pause_s)
        else:
            self._closing.wait(pause_s)

    def _wait_after(self, error: EventBusError) -> None:
        """Back off, and log how many events wait."""
        self._failures += 1
        self._losses.tell("unavailable", f"{error} ({self.waiting} events wait)")
        if self._closing.happened:
            self._clock.sleep(CLOSING_BACKOFF_S)
        else:
            asked_s = error.retry_after_s if isinstance(error, BusUnavailable) else None
            self._closing.wait(max(BACKOFF.pause_s(self._failures), min(asked_s or 0.0, LONGEST_ASKED_S)))
