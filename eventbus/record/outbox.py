"""The outbox: takes events from any thread without waiting, and one flusher thread sends them.

There is no timer. The first event wakes an idle flusher, which sends it at once; during a call more events collect, so
batches grow with the load. With a spool, a second thread writes events to disk while the flusher waits for Redis.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from eventbus.broker.keys import partition_of
from eventbus.broker.transport import Transport
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError, InvalidEvent
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS
from eventbus.model.formats import CODEC_SERIES
from eventbus.record.latch import Latch
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, pack, pack_counted
from eventbus.record.resend import ANSWER_S, Producer
from eventbus.record.sender import LATE_S, Sender
from eventbus.settings import FullBuffer, Settings
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.record.spool.adopter import Adopter
    from eventbus.record.spool.spool import Spool

BACKOFF = Backoff(first_s=0.05, last_s=5.0, at_least=0.25)
#: The longest `Retry-After` that is honored: with a longer pause the return of the API would go unnoticed.
LONGEST_RETRY_AFTER_S = 60.0
#: seconds between two attempts to send while a close waits
CLOSING_BACKOFF_S = 0.05
#: seconds that a flusher has to end after its transport is closed
HANG_UP_S = 0.5
#: longest pause while all waiting events are for partitions that back off
BLOCKED_S = 0.05
#: seconds between two checks of the spool's writer whether a round is late
CHECK_S = 0.05
#: seconds between two syncs of the spool to the disk: a power cut loses at most about this much of it
SYNC_S = 1.0
#: seconds that the end of a process waits for a write to the spool, and for the spool's threads
KEEP_S = STOP_S = 1.0


class FlushMark:
    """A mark in the buffer: *done* once everything before it is *accepted*, or given up."""

    __slots__ = ("accepted", "added", "done", "put_at")

    def __init__(self, put_at: float) -> None:
        self.put_at = put_at
        self.done = Latch()
        self.accepted = False
        #: how many events each producer had been given before it; empty: the producers are not made yet
        self.added: list[int] = []

    def reached(self, producers: Sequence[Producer]) -> bool:
        """Return True if all waiting events were added after the mark."""
        return all(
            producer.pending <= producer.added - added for producer, added in zip(producers, self.added, strict=True)
        )


class Outbox:
    """A bounded buffer, a `Sender`, and the flusher: a thread that packs the buffered events and has them sent.

    `put` never blocks on the network and never raises. Events that cannot be sent are counted in *losses*: `dropped`
    (buffer full), `refused` (bad input), `lost`, `unsent` (closed before Redis came back).

    Args:   connect: opens the bus; called by the flusher when there are events to send.
            on_start: called in the thread that puts the first event, before the flusher starts.
            on_foreign_fork: called in a child that C code has forked without notice to Python; it has to call
            `reset` of all outboxes of the process, and then `count_forgotten`.
            make_spool: makes the spool and the adopter of other processes' events; called by each `reset`.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Transport],
        settings: Settings,
        clock: Clock,
        losses: Losses,
        on_start: Callable[[], None] | None = None,
        on_foreign_fork: Callable[[], None] | None = None,
        make_spool: Callable[[], tuple[Spool, Adopter]] | None = None,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._on_start = on_start
        self._on_foreign_fork = on_foreign_fork or self.reset
        self._make_spool = make_spool
        #: Below this an event is small enough that *buffer_events* of them fit into *buffer_bytes* anyway.
        self._small = settings.buffer_bytes // settings.buffer_events - 512
        self._items: deque[Pending | FlushMark] = deque()
        self._spool_writer: SpoolWriter | None = None
        self.reset()

    def reset(self) -> None:
        """Empty the outbox and forget the threads.

        Called by the constructor, and in a child after fork, which must not send its parent's events."""
        self._pid = os.getpid()
        #: events that the last `reset` forgot, and whether a flush has to report that they are lost
        self._forgotten, self._lost_by_fork = self._buffered(), False
        if self._spool_writer is not None:
            self._spool_writer.forget()
        spool, adopter = (None, None) if self._make_spool is None else self._make_spool()
        self._sender = Sender(
            connect=self._connect, settings=self._settings, clock=self._clock, losses=self._losses, spool=spool
        )
        self._spool_writer = None
        if spool is not None and adopter is not None:
            self._spool_writer = SpoolWriter(self, spool, adopter, self._clock)
        # All are reentrant: a signal handler may need a lock that its own thread holds.
        self._start_lock = threading.RLock()  # the flusher is started once, and not after `finish`
        self._drive_lock = threading.RLock()  # held by the thread that does the flusher's work
        self._round_lock = threading.RLock()  # held during a round; `park` takes it
        self._turnstile = threading.RLock()  # held by `park`; the flusher passes it before a round
        self._count_lock = threading.RLock()  # guards `_count_unsent`
        self._room_lock = threading.RLock()  # protects *_large_bytes* and *_waiters*
        self._room = threading.Condition(self._room_lock)  # callers wait for room
        self._parked: list[threading.RLock] = []
        # -- the buffer, from any thread to the flusher
        self._items = deque()
        self._limit = self._settings.buffer_events
        self._large_bytes = 0
        self._waiters = 0
        # -- the flusher
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        #: The flusher while `put` may rely on it; None: `put` must call `_start`.
        self._accepting_thread: threading.Thread | None = None
        self._flusher_thread: threading.Thread | None = None
        self._failures = 0
        self._marks: deque[FlushMark] = deque()  # taken from the buffer, and not reached
        self._flushed_at = -math.inf  # when the last of them was put
        #: when the oldest unfinished round became due; None: nothing waits
        self.busy_since: float | None = None
        # -- the end
        self._closing, self._ended = Latch(), Latch()
        self._finishing = False
        self._closed_at, self._deadline = -math.inf, math.inf
        self._discarded = self._unsent = 0

    def put(self, pending: Pending) -> None:
        """Take one event. Any thread; the order of one thread's calls is kept."""
        items = self._items
        full = len(items) >= self._limit or len(pending.message) > self._small
        if full and not self._make_room(pending):
            return
        items.append(pending)
        if self._asleep:
            self._wake_for(pending)
        elif self._accepting_thread is None:
            self._start()

    def flush(self, timeout_s: float) -> bool:
        """Wait until Redis has everything that was put before. False: not within *timeout_s*.

        Also False, once, in a child that C code has forked, if events were put before this process noticed the fork.
        They are counted as `lost`.

        If Redis acknowledged a batch more than a second ago, this asks whether it still has it; without an answer
        within a second, it counts as there.
        """
        self._detect_foreign_fork()
        lost, self._lost_by_fork = self._lost_by_fork, False
        if self._accepting_thread is None and not self._items:
            return not lost
        mark = FlushMark(self._clock.monotonic())
        self._items.append(mark)
        self._ensure_flusher_works()
        if self._accepting_thread is None or not self._wait(mark.done, self._clock.monotonic() + timeout_s):
            return False
        return not lost and (mark.accepted or not mark.done.happened)

    def begin_close(self, timeout_s: float) -> None:
        """Have the flusher send the waiting events, for at most *timeout_s*, and end. Does not wait, takes no lock.

        After several calls the earliest deadline counts.
        """
        self._detect_foreign_fork()
        now = self._clock.monotonic()
        if not self._closing.happened:
            self._closed_at = now
        self._deadline = min(self._deadline, now + timeout_s)
        self._closing.set()
        self._wake_up()

    def close(self, timeout_s: float) -> bool:
        """Send the waiting events, for at most *timeout_s*, and stop. The rest is counted as `unsent`. Idempotent."""
        self.begin_close(timeout_s)
        self.finish()
        return not self._count_unsent() and not self._lost_by_fork

    def finish(self) -> None:
        """After `begin_close`, wait until the flusher has ended, or do its work if there is none. Idempotent.

        Every caller waits for the flusher and not for another caller: a signal handler that waits here may have
        interrupted the other call in its own thread.
        """
        with self._start_lock:
            self._accepting_thread = None  # from now on `put` comes to `_start`, which refuses
        self._finishing = True
        self._notify_room(all_waiters=True)
        flusher = self._flusher_thread
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
        if self._spool_writer is not None:
            self._spool_writer.stop()

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
        return self._buffered() + self._sender.pending

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

        Some may be the parent's, which sends them: the two cannot be distinguished.
        """
        forgotten, self._forgotten = self._forgotten, 0
        if forgotten:
            self._lost_by_fork = True
            self._losses.count("lost", forgotten, "waiting when this process, forked by C code, noticed the fork")

    def _detect_foreign_fork(self) -> None:
        """Start again if this process is a child that C code has forked without notice to Python."""
        if self._pid != os.getpid():
            self._on_foreign_fork()
            self.count_forgotten()

    # -- the caller's side ---------------------------------------------------------------------------------------

    def _make_room(self, pending: Pending) -> bool:
        """Find room for a large event, or one that comes when the buffer is full. False: it was counted as lost.

        With `wait` it blocks for at most *buffer_wait_s*.
        """
        self._detect_foreign_fork()
        size = len(pending.message)
        if self._has_room(size):
            return True
        if self._settings.buffer_full is FullBuffer.WAIT and self._wait_for_room(size):
            return True
        cause, detail = self._why_full()
        self._losses.count(cause, 1, detail)
        return False

    def _has_room(self, size: int) -> bool:
        if len(self._items) >= self._limit:
            return False
        if size > self._small:
            with self._room_lock:
                if self._large_bytes + size > self._settings.buffer_bytes:
                    return False
                self._large_bytes += size
        return True

    def _wait_for_room(self, size: int) -> bool:
        deadline = self._clock.monotonic() + self._settings.buffer_wait_s
        with self._room_lock:
            self._waiters += 1
        try:
            while not self._finishing:
                self._ensure_flusher_works()  # without the lock: the start of the flusher takes others, and may log
                with self._room_lock:
                    if self._has_room(size):
                        return True
                    if not self._finishing and not self._room.wait(deadline - self._clock.monotonic()):
                        return self._has_room(size)
            return self._has_room(size)
        finally:
            with self._room_lock:
                self._waiters -= 1

    def _notify_room(self, *, all_waiters: bool = False) -> None:
        """Wake callers that wait for room: one while the buffer is more than half full, else all.

        One caller fills the room of a round by itself. More would only compete for the interpreter, and find no room.
        """
        if self._waiters:
            with self._room_lock:
                if all_waiters or 2 * len(self._items) <= self._limit:
                    self._room.notify_all()
                else:
                    self._room.notify()

    def _why_full(self) -> tuple[str, str]:
        """Return the cause to count for an event without room, and its message."""
        if self._sender.spool_full:
            return "spool_full", "the outbox is full, and the spool takes no more"
        return "dropped", "the outbox is full"

    def _buffered(self) -> int:
        """Return about how many events wait in the buffer."""
        return sum(type(item) is Pending for item in list(self._items))

    def _clear(self) -> int:
        """Empty the buffer, and free the callers that wait in a flush. Returns the number of events removed."""
        events = 0
        while self._items:
            try:
                item = self._items.popleft()
            except IndexError:
                break  # another thread clears it as well
            if type(item) is FlushMark:
                item.done.set()
            else:
                events += 1
        return events

    def _ensure_flusher_works(self) -> None:
        self._start()
        self._wake_up()

    def _wake_for(self, pending: Pending) -> None:
        if self._pid == os.getpid():
            self._wake_up()
            return
        with suppress(ValueError, IndexError):  # another thread of this child has found it out first
            self._items.remove(pending)
        self._detect_foreign_fork()
        self.put(pending)

    def _wake_up(self) -> None:
        self._asleep = False
        try:  # noqa: SIM105  # `suppress` would cost the caller half a microsecond
            self._wake.release()
        except RuntimeError:
            pass  # another thread has woken it

    def _start(self) -> None:
        # Without the lock: both may log, and a logging handler of another thread may wait for the lock.
        if self._accepting_thread is None and not self._closing.happened and self._on_start is not None:
            self._on_start()
        late = 0
        with self._start_lock:
            if self._closing.happened:
                late = self._clear()
            elif self._accepting_thread is None:
                thread = threading.Thread(target=self._run, name="eventbus-outbox", daemon=True)
                self._accepting_thread = self._flusher_thread = thread
                try:
                    thread.start()
                    if self._spool_writer is not None:
                        self._spool_writer.start()
                except RuntimeError:
                    # The interpreter is shutting down: `close` sends.
                    self._accepting_thread = self._flusher_thread = None
        if late:
            self._losses.count("refused", late, "the broadcaster is shut down")

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
        token = self._sender.check_under_way
        return token is not None and not self.waiting and self._sender.check_under_way is token

    def _drive_here(self) -> None:
        """Do the flusher's work in this thread until all is sent or the deadline over."""
        if self.closed:
            return  # a caller that holds the lock may be a frame that waits for this one
        if not self._drive_lock.acquire(timeout=max(0.0, self._deadline - self._clock.monotonic())):
            return
        try:
            # A signal handler may have interrupted the same work: batches that were being sent are sent again; Redis
            # recognizes the repeats.
            self._hang_up()
            self._drive()
        finally:
            self._hang_up()
            self._drive_lock.release()

    def _count_unsent(self) -> int:
        with self._count_lock:
            self._discarded += self._keep_rest()
            self._discarded += self._clear()
            unsent = self._discarded + self._sender.pending
            more, self._unsent = unsent - self._unsent, unsent  # before logging: a handler may call `close`
            if more > 0:
                cause = "spool_full" if self._sender.spool_full else "unsent"
                self._losses.count(cause, more, "closed before Redis had them")
            return unsent + self._sender.left_in_spool

    # -- the flusher's side --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._drive_lock:
                self._drive()
        finally:
            self._hang_up()
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
                self._begin_round()
                with self._round_lock:
                    sent = self._round()
                self._failures = 0
                if not sent and (self._items or not self._sender.idle):
                    self._pause()
            except EventBusError as error:
                self._wait_after(error)
                permanent = not self._sender.connected and isinstance(error, (ConfigError, BusRefused))
                if permanent and self._closing.happened:
                    self._deadline = -math.inf
            except Exception as error:
                if self._closing.happened and (self._overdue() or sys.is_finalizing()):
                    return  # hung up, or the interpreter is ending: a later try would fail, too
                log.exception("the outbox goes on after an unexpected error")
                self._wait_after(EventBusError(f"{type(error).__name__}: {error}"))

    def _begin_round(self) -> None:
        """Note that a round is due, then wake the spool's writer, which sleeps only while none is due."""
        if self.busy_since is None:
            self.busy_since = self._clock.monotonic()
        if self._spool_writer is not None:
            self._spool_writer.watch()

    def _round(self) -> bool:
        """Connect if needed, pack the buffer's events, and publish all that waits.

        Returns: False if nothing was sent because all that waits is for partitions that back off.
        Raises: BusUnavailable, BusRefused, ConfigError: events without acknowledgement wait; call again.
        """
        sender = self._sender
        with sender.lock:
            if not sender.connected:
                sender.open()
                for mark in self._marks:
                    mark.added = mark.added or [producer.added for producer in sender.producers]
            self._pack(self._room_in_producers())
            self._notify_room()
            closing = self._closed_at > -math.inf
            sent = sender.round(self._pack_ahead, wanted_at=self._wanted_at(), closing=closing)
            while self._marks and self._marks[0].reached(sender.producers):
                mark = self._marks.popleft()
                mark.accepted = True
                mark.done.set()
            if self._limit < self._settings.buffer_events:  # partitions that had failed may work again
                self._lower_limit()
                self._notify_room()
            self.busy_since = None if sender.idle and not self._items else self._clock.monotonic()
            return sent

    def _pack(self, room: int) -> int:
        """Pack events until the buffer is empty, or *room* events are. Returns the room that is left."""
        items, small, sender = self._items, self._small, self._sender
        pack_one = pack if CODEC_SERIES in sender.codecs else self._pack_counted
        adds = [producer.add for producer in sender.producers]
        partitions, add = len(adds), adds[0] if len(adds) == 1 else None
        while room > 0 and items:
            item = items.popleft()
            if type(item) is not Pending:
                assert isinstance(item, FlushMark)
                item.added = [producer.added for producer in sender.producers]
                self._marks.append(item)
                self._flushed_at = max(self._flushed_at, item.put_at)
                continue
            if len(item.message) > small:
                with self._room_lock:
                    self._large_bytes -= len(item.message)
            try:
                packed = pack_one(item)
            except InvalidEvent as error:
                self._losses.count("refused", 1, str(error), mistake=error.kind)
                continue
            except Exception as error:  # a field of an unexpected type must not stop the flusher
                name = type(error).__name__
                self._losses.count("refused", 1, f"{name}: {error}", mistake=name)
                continue
            if add is not None:
                add(packed)
            elif partitions:
                adds[partition_of(item.reference, partitions)](packed)
            else:
                sender.unplaced.append((item.reference, packed))
            room -= 1
        for producer in sender.producers:
            producer.seal()
        return room

    def _pack_counted(self, pending: Pending) -> bytes:
        """Pack an event for a bus that does not allow series; say so once in a while."""
        if pending.action and self._sender.connected:
            cure = "repeats are counted instead; run `eventbus format upgrade` when all workers are upgraded"
            self._losses.log("series", f"the bus does not allow series of events.k8s.io yet: {cure}")
        return pack_counted(pending)

    def _pack_ahead(self, leaving: int) -> None:
        """Pack the next round's events while *leaving* events are on their way: full batches only.

        Events that do not fill a batch stay in the buffer, so that batches grow with the load.
        """
        full = len(self._items) // MAX_BATCH_EVENTS * MAX_BATCH_EVENTS
        if full:
            self._pack(min(full, self._room_in_producers(leaving)))
            self._notify_room()

    def _room_in_producers(self, leaving: int = 0) -> int:
        """Return how many events to pack: up to a round's worth, not counting blocked and *leaving* events.

        Partitions that back off may keep up to *buffer_events*; each kept event takes a place in the buffer. Other
        partitions wait only when no place is left.
        """
        blocked, blocked_bytes = self._lower_limit()
        if self._limit == 0 or blocked_bytes > self._settings.buffer_bytes:
            return 0
        return self._sender.round_events - self._sender.pending + blocked + leaving

    def _lower_limit(self) -> tuple[int, int]:
        """Lower the buffer's limit by the blocked events, which wait outside it. Returns how many, and their bytes."""
        blocked, blocked_bytes = self._sender.blocked()
        if self._spool_writer is not None:  # it may have taken all events from the buffer
            blocked = max(blocked, self._sender.pending - self._sender.round_events)
        self._limit = max(0, self._settings.buffer_events - blocked)
        return blocked, blocked_bytes

    def _wanted_at(self) -> float:
        """Return when the last flush or close wanted an ack check."""
        return max(self._closed_at, self._flushed_at)

    def _hang_up(self) -> None:
        """Close the transport, and free the callers that wait in a flush. A later round opens another."""
        for mark in self._marks:
            mark.done.set()
        self._sender.close()

    def keep_waiting(self) -> None:
        """Write all waiting events to the spool. Called by the spool's writer when a round is late."""
        with self._sender.lock:
            room = self._settings.buffer_events - self._sender.pending
            if self._sender.pending_bytes > self._settings.buffer_bytes:
                room = 0
            self._limit = max(0, self._pack(room))
            self._notify_room()
            self._sender.write_to_spool(math.inf)
        if self._asleep and self._sender.can_send:  # it fell asleep while these were neither in the buffer nor numbered
            self._wake_up()

    def _keep_rest(self) -> int:
        """At the end, write all waiting events to the spool and release it. Returns how many it could not keep."""
        if self._spool_writer is None or not self._sender.lock.acquire(timeout=KEEP_S):
            return 0
        try:
            if not self._sender.idle or self._items:
                self._pack(len(self._items))
                self._sender.write_to_spool(math.inf)
            return self._sender.release_spool()
        finally:
            self._sender.lock.release()

    def _overdue(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def _finished(self) -> bool:
        return not self._items and self._sender.idle and self._sender.check_in_s(self._wanted_at()) > 0

    def _sleep_until_work(self) -> None:
        if self._has_work():
            return
        self._asleep = True
        if self._has_work():  # put in between, and perhaps taken by the spool's writer
            self._asleep = False
            return
        work_in_s = min(self._sender.check_in_s(self._wanted_at()), self._sender.due_in_s())
        self._wake.acquire(timeout=-1 if work_in_s == math.inf else max(0.0, work_in_s))
        self._asleep = False

    def _has_work(self) -> bool:
        return bool(self._items) or self._sender.can_send or self._closing.happened

    def _pause(self) -> None:
        """Wait for partitions that back off: all other events have been sent."""
        pause_s = min(BLOCKED_S, self._sender.due_in_s())
        if self._closing.happened:
            self._clock.sleep(pause_s)
        else:
            self._closing.wait(pause_s)

    def _wait_after(self, error: EventBusError) -> None:
        """Back off, and log how many events wait."""
        self._failures += 1
        self._losses.log("unavailable", f"{error} (events waiting: {self.waiting})")
        if self._closing.happened:
            self._clock.sleep(CLOSING_BACKOFF_S)
        else:
            retry_after_s = error.retry_after_s if isinstance(error, BusUnavailable) else None
            self._closing.wait(max(BACKOFF.pause_s(self._failures), min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)))


class SpoolWriter:
    """A thread that writes the outbox's events to its spool while the flusher waits for Redis.

    It sleeps while nothing is recorded. While the flusher works it checks twice in `LATE_S` whether a round is late. It
    starts and stops the *adopter* of other processes' events.
    """

    def __init__(self, outbox: Outbox, spool: Spool, adopter: Adopter, clock: Clock) -> None:
        self._outbox = outbox
        self.spool = spool
        self._adopter = adopter
        self._clock = clock
        self._stopping = Latch()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._synced_at = clock.monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start both threads."""
        self._thread = threading.Thread(target=self._run, name="eventbus-spool", daemon=True)
        self._thread.start()
        self._adopter.start()

    def watch(self) -> None:
        """Wake the thread, if it sleeps, after `busy_since` of the outbox is set. Called by the flusher at each round.

        1. the flusher sets `busy_since`; 2. it reads `_asleep`. The thread, before it sleeps: 1. sets `_asleep`;
        2. reads `busy_since`. So at least one of the two sees the other's value.
        """
        if self._asleep:
            self._asleep = False
            self._wake_up()

    def stop(self) -> None:
        """End both threads, and wait a second at most. Idempotent."""
        self._stopping.set()
        self._wake_up()
        self._adopter.stop()
        for thread in (self._thread, self._adopter.thread):
            if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
                thread.join(STOP_S)

    def forget(self) -> None:
        """In a child after fork, close the files of its parent."""
        self.spool.forget()
        self._adopter.forget()

    def _wake_up(self) -> None:
        try:  # noqa: SIM105  # a signal handler may call `stop`: `suppress` could be interrupted half-way
            self._wake.release()
        except RuntimeError:
            pass  # it is awake

    def _run(self) -> None:
        while not self._stopping.happened:
            if self._outbox.busy_since is None and not self.spool.unsynced:
                self._asleep = True
                if self._outbox.busy_since is None:  # see `watch`
                    self._wake.acquire()
                self._asleep = False
            self._stopping.wait(CHECK_S)
            try:
                self._look()
            except Exception:
                log.exception("the spool goes on after an unexpected error")

    def _look(self) -> None:
        since, now = self._outbox.busy_since, self._clock.monotonic()
        if since is not None and now - since >= LATE_S:
            self._outbox.keep_waiting()
        if now - self._synced_at >= SYNC_S:
            self._synced_at = now
            self.spool.sync()
