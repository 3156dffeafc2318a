"""One thread serves several partitions: it waits for all their reads and handles one reply at a time.

`Poller` is the wait. Group consumers (`ConsumerPoller`), watchers without a group and exporters use it.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeVar

from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.health.status import HEARTBEAT_S
from eventbus.consume.consumer import HUNG_S, Consumer
from eventbus.consume.heartbeat import LivenessObserver, LoopHealth
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: Threads that work partitions, at most. More threads would only take turns in one Python process. With four, a slow
#: handler delays no more than a fourth of the partitions.
POLLERS = 4
#: Seconds between two checks whether a partition's former worker has given it up.
HAND_OVER_CHECK_S = 0.2
#: The longest wait for a worker that lives and does not give the partition up: its handler is slow.
HAND_OVER_S = 15.0


class Slot:
    """One partition of a poller.

    Without a read it acts at *due*; with one it waits until *reads_until*. Both are monotonic seconds.
    """

    def __init__(self) -> None:
        self.due = 0.0
        self.reads_until: float | None = None  #: None: no read is under way

    def fileno(self) -> int:
        """Return the socket of the read under way."""
        raise NotImplementedError


S = TypeVar("S", bound=Slot)

# `poll` needs no descriptor of its own; not every system has it.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Poller:
    """Waits for the slots of one thread. Any thread may `wake` it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._recv_sock, self._send_sock = socket.socketpair()
        self._recv_sock.setblocking(False)
        self._send_sock.setblocking(False)

    def poll(self, slots: Collection[S], *, at_once: bool = False) -> tuple[list[S], list[S]]:
        """Wait until a read has its reply or has timed out, or a slot without a read is due, or until `wake`.

        A read times out only after a check of its socket: its reply may have come while another slot was handled.

        Args:    at_once: only check.
        Returns: the slots with a reply, and those with a read that has timed out. The read of each of these slots is
        over.
        """
        reading = [slot for slot in slots if slot.reads_until is not None]
        timeout_s: float | None = 0.0
        if not at_once:
            times = [slot.due if slot.reads_until is None else slot.reads_until for slot in slots]
            timeout_s = min(times) - self._monotonic() if times else None
        ready = self._replied(reading, timeout_s)
        now = self._monotonic()
        late = [
            slot for slot in reading if slot not in ready and slot.reads_until is not None and now >= slot.reads_until
        ]
        for slot in (*ready, *late):
            slot.reads_until = None
        return ready, late

    def wake(self) -> None:
        """End the current wait, or else the next one. No effect after `close`."""
        with suppress(OSError):  # full: it will wake; closed: it has ended
            self._send_sock.send(b"\0")

    def close(self) -> None:
        """Close its sockets."""
        self._recv_sock.close()
        self._send_sock.close()

    def _replied(self, reading: Collection[S], timeout_s: float | None) -> list[S]:
        """Wait for a reply, *timeout_s*, or `wake`. Return the slots that have one."""
        with _Selector() as selector:
            selector.register(self._recv_sock, selectors.EVENT_READ)
            for slot in reading:
                selector.register(slot, selectors.EVENT_READ, slot)
            ready = [key.data for key, _ in selector.select(timeout_s if timeout_s is None else max(0.0, timeout_s))]
        if None in ready:
            with suppress(BlockingIOError):
                self._recv_sock.recv(4096)
        return [slot for slot in ready if slot is not None]


class ConsumerPoller:
    """The consumers that `take` gives it, until `give_up` or `stop`. Start it in a thread of its own: `run`.

    Events of one partition keep their order. A slow handler delays the other partitions of this poller only.

    Args: lock: held while heartbeats are sent, and while a partition is removed from those that get one.
          on_stop: called by `stop`.
    """

    def __init__(self, *, clock: Clock, block_ms: int, lock: threading.Lock, on_stop: Callable[[], None]) -> None:
        self._clock = clock
        self._reply_s = block_ms / 1000 + REPLY_S
        self._lock = lock
        self._on_stop = on_stop
        self._inbox: deque[Callable[[], None]] = deque()
        self._waiting: deque[_ConsumerSlot] = deque()  #: their partition still has another slot here
        self._slots: dict[int, _ConsumerSlot] = {}
        self._worked: frozenset[int] = frozenset()
        self._stop = self._died = False
        self.runs = False  #: `run` has begun, and has not ended
        self._rounds = 0
        self._seen: object = None
        self._seen_at = clock.monotonic()
        self._poller: Poller | None = None

    def take(self, consumer: Consumer, shared: Collection[str] = ()) -> None:
        """Run *consumer* once the partition's former worker has given it up. *shared*: workers that work it as well."""
        slot = _ConsumerSlot(consumer, HandOver(self._clock, shared))
        self._send(lambda: self._waiting.append(slot))

    def give_up(self, partition: int) -> None:
        """Give *partition* up after the current read and its deliveries."""
        self._send(lambda: self._leave(partition))

    def stop(self) -> None:
        """Give all partitions up and end; returns at once."""
        self._stop = True
        self._send(lambda: None)
        self._on_stop()

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each consumer. Safe to call from any thread."""
        return [slot.consumer.loop_health() for slot in list(self._slots.values())]

    def beating(self) -> frozenset[int]:
        """Return the partitions that get a heartbeat: none if it hangs.

        Only one thread may call it, holding the *lock* of the constructor.
        """
        now = self._clock.monotonic()
        progress = (self._rounds, *(slot.consumer.steps for slot in list(self._slots.values())))
        if progress != self._seen:
            self._seen, self._seen_at = progress, now
        return frozenset() if self.hangs else self._worked - self.withdrawn

    @property
    def withdrawn(self) -> frozenset[int]:
        """Return the partitions with a consumer that lacks a function or a right. Safe to call from any thread."""
        return frozenset(partition for partition, slot in list(self._slots.items()) if slot.consumer.withdrawn)

    @property
    def hangs(self) -> bool:
        """Return True if it has made no progress for HUNG_S, or has ended without `stop`."""
        return self._died or self._clock.monotonic() - self._seen_at >= HUNG_S

    def run(self) -> None:
        """Run the loop. Blocks until `stop`; then every handled delivery has been acknowledged."""
        self.runs = True
        self._poller = poller = Poller(self._clock.monotonic)
        try:
            while not self._stop or self._slots:
                self._rounds += 1
                while self._inbox:
                    self._inbox.popleft()()
                self._start_waiting()
                for slot in list(self._slots.values()):
                    self._advance(slot)
                replied, late = poller.poll(self._slots.values(), at_once=self._has_more_to_do())
                for slot in replied:
                    slot.finish(self._clock)
                for slot in late:
                    slot.fail(self._clock)
        finally:
            self._died = not self._stop
            for slot in [*self._slots.values(), *self._waiting]:
                slot.consumer.abandon()
            self._set_worked(frozenset())
            poller.close()
            self.runs = False

    def _send(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        if self._poller is not None:  # else `run` has not begun: it reads its inbox first
            self._poller.wake()

    def _leave(self, partition: int) -> None:
        for slot in [slot for slot in self._waiting if slot.consumer.partition == partition]:
            self._waiting.remove(slot)
            slot.consumer.abandon()
        if partition in self._slots:
            self._slots[partition].leave()

    def _start_waiting(self) -> None:
        """Start the waiting slots that can begin.

        One consumer name must not have two slots of a partition: the first slot's `close` would drop the second's
        pending entries.
        """
        for slot in list(self._waiting):
            if self._stop or slot.consumer.partition not in self._slots:
                self._waiting.remove(slot)
                if self._stop:
                    slot.consumer.abandon()
                else:
                    self._slots[slot.consumer.partition] = slot

    def _advance(self, slot: _ConsumerSlot) -> None:
        now = self._clock.monotonic()
        if self._stop:
            slot.leave()
        if slot.reads_until is not None:
            return
        if slot.leaves:
            self._end(slot)
        elif now >= slot.due:
            if slot.hand_over and not self._is_handed_over(slot, slot.hand_over):
                slot.due = now + HAND_OVER_CHECK_S
            else:
                slot.begin(now, self._reply_s)

    def _is_handed_over(self, slot: _ConsumerSlot, hand_over: HandOver) -> bool:
        try:
            if not hand_over.is_over(slot.consumer.others()):
                return False
            slot.consumer.announce()
        except EventBusError as error:  # the consumer meets the same error, and logs it
            log.debug("partition %d begins unseen: %s", slot.consumer.partition, error)
        slot.hand_over = None
        self._set_worked(self._worked | {slot.consumer.partition})
        return True

    def _end(self, slot: _ConsumerSlot) -> None:
        partition = slot.consumer.partition
        # A heartbeat after `close` would add this worker's name again, and nothing would remove it.
        self._set_worked(self._worked - {partition})
        try:
            if slot.hand_over:
                slot.consumer.abandon()
            else:
                slot.consumer.close(moved=not self._stop)
        finally:
            del self._slots[partition]

    def _set_worked(self, partitions: frozenset[int]) -> None:
        with self._lock:
            self._worked = partitions

    def _has_more_to_do(self) -> bool:
        """Return True if the next round must not wait for a reply or a due time."""
        leaving = any(slot.leaves and slot.reads_until is None for slot in self._slots.values())
        free = any(slot.consumer.partition not in self._slots for slot in self._waiting)
        return bool(self._inbox) or leaving or free or (self._stop and not self._slots)


class _ConsumerSlot(Slot):
    """A consumer in a poller. It begins when the *hand_over* of its partition is over."""

    def __init__(self, consumer: Consumer, hand_over: HandOver) -> None:
        super().__init__()
        self.consumer = consumer
        self.hand_over: HandOver | None = hand_over
        self.leaves = False

    def fileno(self) -> int:
        return self.consumer.fileno()

    def begin(self, now: float, reply_s: float) -> None:
        if pause_s := self.consumer.begin():
            self.due = now + pause_s
        else:
            self.reads_until = now + reply_s

    def finish(self, clock: Clock) -> None:
        now = clock.monotonic()
        self.due = now + self.consumer.finish()

    def fail(self, clock: Clock) -> None:
        self.due = clock.monotonic() + self.consumer.fail(BusUnavailable("no reply to a read: wait and try again"))

    def leave(self) -> None:
        self.leaves = True
        self.consumer.stop()


class HandOver:
    """Watches the heartbeats of a partition's workers until only those it is *shared* with remain.

    A worker is dead if its counter does not move.
    """

    def __init__(self, clock: Clock, shared: Collection[str]) -> None:
        self._clock = clock
        self._shared = shared
        self._until = clock.monotonic() + HAND_OVER_S
        self._liveness = LivenessObserver(clock, longest_gap_s=HEARTBEAT_S)

    def is_over(self, counters: Mapping[str, str]) -> bool:
        """Take the current counters of the other workers. True: begin."""
        others = {name: counter for name, counter in counters.items() if name not in self._shared}
        still = self._liveness.observe(others)
        return not others or self._clock.monotonic() >= self._until or min(still.values()) >= HEARTBEAT_S
