"""Runs the consumers of several partitions in one thread: all wait for Redis, one at a time handles deliveries."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping

from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.health.heartbeats import HEARTBEAT_S
from eventbus.broker.wakeable_wait import WakeableWait
from eventbus.clock import Clock
from eventbus.consume.consumer import HUNG_S, Consumer
from eventbus.consume.health import LoopHealth
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.log import log

#: Seconds between two looks whether a partition's former worker has given it up.
LOOK_EVERY_S = 0.2


class Lane:
    """The consumers that `take` gives it, until `give_up` or `stop`. Start it in a thread of its own: `run`.

    Events of one partition keep their order. A slow handler delays the other partitions of this lane only.

    Args: lock: held while heartbeats are sent, and while a partition is removed from those that get one.
          on_stop: called by `stop`.
    """

    def __init__(self, *, clock: Clock, block_ms: int, lock: threading.Lock, on_stop: Callable[[], None]) -> None:
        self._clock = clock
        self._reply_s = block_ms / 1000 + REPLY_S
        self._lock = lock
        self._on_stop = on_stop
        self._inbox: deque[Callable[[], None]] = deque()
        self._waiting: deque[_Seat] = deque()  #: their partition still has another seat in this lane
        self._seats: dict[int, _Seat] = {}
        self._worked: frozenset[int] = frozenset()
        self._stop = self._died = False
        self.runs = False  #: `run` has begun, and has not ended
        self._rounds = 0
        self._waited_at = clock.monotonic()
        self._seen: object = None
        self._seen_at = clock.monotonic()
        self._wait: WakeableWait | None = None

    def take(self, consumer: Consumer, shared: Collection[str] = ()) -> None:
        """Run *consumer* once the partition's former worker has given it up. *shared*: workers that work it as well."""
        seat = _Seat(consumer, HandOver(self._clock, shared))
        self._tell(lambda: self._waiting.append(seat))

    def give_up(self, partition: int) -> None:
        """Give *partition* up after the current read and its deliveries."""
        self._tell(lambda: self._leave(partition))

    def stop(self) -> None:
        """Give all partitions up and end; returns at once."""
        self._stop = True
        self._tell(lambda: None)
        self._on_stop()

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each consumer. Safe to call from any thread."""
        return [seat.consumer.loop_health() for seat in list(self._seats.values())]

    def beating(self) -> frozenset[int]:
        """Return the partitions that get a heartbeat: none if this lane hangs. For one thread, under *lock*."""
        now = self._clock.monotonic()
        progress = (self._rounds, *(seat.consumer.steps for seat in list(self._seats.values())))
        if progress != self._seen:
            self._seen, self._seen_at = progress, now
        return frozenset() if self.hangs else self._worked - self.withdrawn

    @property
    def withdrawn(self) -> frozenset[int]:
        """Return the partitions whose consumer lacks a function or a right. Safe to call from any thread."""
        return frozenset(partition for partition, seat in list(self._seats.items()) if seat.consumer.withdrawn)

    @property
    def hangs(self) -> bool:
        """Return True if it has made no progress for HUNG_S, or has ended without `stop`."""
        return self._died or self._clock.monotonic() - self._seen_at >= HUNG_S

    def run(self) -> None:
        """Run the loop. Blocks until `stop`; then every handled delivery has been acknowledged."""
        self.runs = True
        self._wait = wait = WakeableWait()
        try:
            while not self._stop or self._seats:
                self._rounds += 1
                while self._inbox:
                    self._inbox.popleft()()
                self._sit_down()
                for seat in list(self._seats.values()):
                    self._go_on(seat)
                ready = self._look(wait)
                for seat in ready:
                    seat.finish(self._clock.monotonic())
                self._give_up_waiting(ready)
        finally:
            self._died = not self._stop
            for seat in [*self._seats.values(), *self._waiting]:
                seat.consumer.abandon()
            self._set_worked(frozenset())
            wait.close()
            self.runs = False

    def _tell(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        if self._wait is not None:  # else `run` has not begun: it reads its inbox first
            self._wait.wake()

    def _leave(self, partition: int) -> None:
        for seat in [seat for seat in self._waiting if seat.consumer.partition == partition]:
            self._waiting.remove(seat)
            seat.consumer.abandon()
        if partition in self._seats:
            self._seats[partition].leave()

    def _sit_down(self) -> None:
        """Start waiting seats. A name may work a partition once only: its `close` would drop the pending entries."""
        for seat in list(self._waiting):
            if self._stop or seat.consumer.partition not in self._seats:
                self._waiting.remove(seat)
                if self._stop:
                    seat.consumer.abandon()
                else:
                    self._seats[seat.consumer.partition] = seat

    def _go_on(self, seat: _Seat) -> None:
        now = self._clock.monotonic()
        if self._stop:
            seat.leave()
        if seat.reads_until is not None:
            return
        if seat.leaves:
            self._get_up(seat)
        elif now >= seat.due:
            if seat.hand_over and not self._is_handed_over(seat, seat.hand_over):
                seat.due = now + LOOK_EVERY_S
            else:
                seat.begin(now, self._reply_s)

    def _give_up_waiting(self, ready: Collection[_Seat]) -> None:
        """Fail reads that timed out, after a look at the sockets: a reply may have come during another's work."""
        now = self._waited_at
        for seat in self._seats.values():
            if seat.reads_until is not None and seat not in ready and now >= seat.reads_until:
                seat.fail(now)

    def _is_handed_over(self, seat: _Seat, hand_over: HandOver) -> bool:
        try:
            if not hand_over.is_over(seat.consumer.others()):
                return False
            seat.consumer.announce()
        except EventBusError as error:  # the consumer meets the same error, and logs it
            log.debug("partition %d begins unseen: %s", seat.consumer.partition, error)
        seat.hand_over = None
        self._set_worked(self._worked | {seat.consumer.partition})
        return True

    def _get_up(self, seat: _Seat) -> None:
        partition = seat.consumer.partition
        self._set_worked(self._worked - {partition})  # a later heartbeat would leave a name that nothing removes
        try:
            if seat.hand_over:
                seat.consumer.abandon()
            else:
                seat.consumer.close(moved=not self._stop)
        finally:
            del self._seats[partition]

    def _set_worked(self, partitions: frozenset[int]) -> None:
        with self._lock:
            self._worked = partitions

    def _look(self, wait: WakeableWait) -> list[_Seat]:
        """Wait for a reply, a due time or a message. Return the seats whose read has ended."""
        now = self._clock.monotonic()
        dues = [seat.due if seat.reads_until is None else seat.reads_until for seat in self._seats.values()]
        leaving = any(seat.leaves and seat.reads_until is None for seat in self._seats.values())
        free = any(seat.consumer.partition not in self._seats for seat in self._waiting)
        if self._inbox or leaving or free or (self._stop and not self._seats):
            dues.append(now)
        reading = [seat for seat in self._seats.values() if seat.reads_until is not None]
        ready = wait.wait(reading, min(dues) - now if dues else None)
        self._waited_at = self._clock.monotonic()
        return ready


class _Seat:
    """A consumer in a lane: it waits until it is *due*, or for a reply until *reads_until*."""

    def __init__(self, consumer: Consumer, hand_over: HandOver) -> None:
        self.consumer = consumer
        self.hand_over: HandOver | None = hand_over
        self.due = 0.0
        self.reads_until: float | None = None
        self.leaves = False

    def fileno(self) -> int:
        return self.consumer.fileno()

    def begin(self, now: float, reply_s: float) -> None:
        if pause_s := self.consumer.begin():
            self.due = now + pause_s
        else:
            self.reads_until = now + reply_s

    def finish(self, now: float) -> None:
        self.reads_until = None
        self.due = now + self.consumer.finish()

    def fail(self, now: float) -> None:
        self.reads_until = None
        self.due = now + self.consumer.fail(BusUnavailable("no reply to a read: wait and call again"))

    def leave(self) -> None:
        self.leaves = True
        self.consumer.stop()


#: The longest wait for a worker that lives and does not give the partition up: its handler is slow.
HAND_OVER_S = 15.0


class HandOver:
    """Watches the heartbeats of a partition's workers until only those it is *shared* with remain.

    A worker whose counter does not move is dead.
    """

    def __init__(self, clock: Clock, shared: Collection[str]) -> None:
        self._clock = clock
        self._shared = shared
        self._until = clock.monotonic() + HAND_OVER_S
        self._noted: dict[str, str] = {}
        self._noted_at = clock.monotonic()

    def is_over(self, counters: Mapping[str, str]) -> bool:
        """Take the current counters of the other workers. True: begin."""
        now = self._clock.monotonic()
        others = {name: counter for name, counter in counters.items() if name not in self._shared}
        if not others or now >= self._until:
            return True
        if any(self._noted.get(name) != counter for name, counter in others.items()):
            self._noted, self._noted_at = others, now
        return now - self._noted_at >= HEARTBEAT_S
