"""Watches the whole bus: calls a handler with each event, in order, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import BlockingRead, Delivery, GroupReader, Position
from eventbus.consume.consumer import BEAT_EVERY_S
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.handler import Handler, call_handler
from eventbus.consume.poller import Poller, Slot
from eventbus.errors import BusUnavailable, DeadCause, EventBusError, PoisonBatch
from eventbus.model.encoding.wire import Batch, unpack_batch, unpack_event
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: pauses of a watcher without a group after failed reads of one partition
BACKOFF = Backoff(first_s=0.1, last_s=10.0)


class GroupWatcher:
    """A worker of a named group: every event of the bus reaches one worker of the group, at least once.

    An event is acknowledged after its handler. If the handler raises three times, or the event kills its workers, the
    event alone is buried in the dead letter. A handler may take up to 10 minutes an event (`consumer.HUNG_S`);
    after that the worker counts as hung, and its events go to the group's other workers. `stop` ends after the batch
    (1 to 64 events) that is being handled; the other workers get the rest of the read. A handler that raises
    SystemExit stops its watcher: the other workers get the batch, as from a worker that died.
    """

    def __init__(
        self, *, bus: Bus, group: str, handler: Handler, clock: Clock, policy: GroupPolicy, start: str, block_ms: int
    ) -> None:
        self._group = group
        self._handler = handler
        self.buried = 0
        self._stop = threading.Event()
        self._runner = GroupRunner(
            bus=bus,
            group=group,
            clock=clock,
            block_ms=block_ms,
            handlers=lambda _partition: (self._handle, self._handle_alone),
            policy=policy,
            start=start,
        )

    def __repr__(self) -> str:
        state = "stopped" if self._stop.is_set() else "running"
        return f"<GroupWatcher of the group {self._group!r}: {state}, {self.buried} buried>"

    def start(self, timeout_s: float = 5.0) -> None:
        """Start the threads; returns once the group exists, or after *timeout_s*."""
        self._runner.start()
        self._runner.ready.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the batch that is being handled; waits at most *timeout_s*. Idempotent."""
        self._stop.set()
        self._runner.stop(timeout_s)

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self._stop.is_set() and self._runner.ended

    def _handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        done: list[bytes] = []
        acknowledged = time.monotonic()
        for delivery in deliveries:
            if self._stop.is_set():
                break
            if self._handle_batch(reader, delivery):
                done.append(delivery.id)
            if time.monotonic() - acknowledged > BEAT_EVERY_S:
                reader.ack(done)
                done, acknowledged = [], time.monotonic()
        return done

    def _handle_batch(self, reader: GroupReader, delivery: Delivery) -> bool:
        """Handle one batch. False: it was buried whole, which acknowledges it."""
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch as poison:
            self._bury(reader, delivery, poison.cause, delivery.body, whole=True)
            return False
        self._handle_events(reader, delivery, batch, range(len(batch.events)))
        return True

    def _handle_alone(self, reader: GroupReader, delivery: Delivery, batch: Batch, position: int) -> bool:
        return self._handle_events(reader, delivery, batch, range(position, position + 1))

    def _handle_events(self, reader: GroupReader, delivery: Delivery, batch: Batch, positions: range) -> bool:
        """Handle the events at *positions*, in one loop: a call for each would cost a tenth. False: taken over."""
        events, uids, handler, ours = batch.events, batch.uids(), self._handler, True
        for position in positions:
            cause = DeadCause.HANDLER_FAILED
            try:
                handled = call_handler(handler, unpack_event(events[position], uids[position]))
            except SystemExit:  # of the handler: the batch is not acknowledged, and this worker counts as dead
                self.stop(0)
                raise
            except PoisonBatch as poison:
                handled, cause = False, poison.cause
            if not handled:
                ours = self._bury(reader, delivery, cause, batch.alone(position))
            reader.steps += 1
        return ours

    def _bury(
        self, reader: GroupReader, delivery: Delivery, cause: DeadCause, body: bytes, *, whole: bool = False
    ) -> bool:
        self.buried += 1
        return reader.bury(delivery, cause, body, whole=whole)


class StreamWatcher:
    """A watcher without a group: it reads from a position, from now on or from a time, and stores nothing in Redis.

    One thread reads all partitions and calls the handler. The stream does not wait for it: events that were trimmed
    before it could read them are counted in `missed`. An event is skipped, and counted in `skipped`, if the handler
    raised three times or it cannot be decoded.
    """

    def __init__(self, *, bus: Bus, handler: Handler, since_ms: int | None, block_ms: int) -> None:
        self._handler = handler
        self._block_ms = block_ms
        self._stop = threading.Event()
        self.skipped = 0
        self._client = bus.client(block_ms=block_ms, name="eventbus-watch")
        self._slots = [
            _PositionSlot(self._client, Position(bus=bus, client=self._client, partition=partition))
            for partition in range(bus.partitions)
        ]
        for slot in self._slots:
            if since_ms is None:
                slot.position.at_end()
            else:
                slot.position.at_time(since_ms)
        self._poller = Poller(time.monotonic)
        self._thread = threading.Thread(target=self._run, name="eventbus-watch", daemon=True)

    def __repr__(self) -> str:
        state = "stopped" if self._stop.is_set() else "running"
        return f"<StreamWatcher: {state}, {self.missed} missed, {self.skipped} skipped>"

    @property
    def missed(self) -> int:
        """Return how many events were trimmed before this watcher could read them."""
        return sum(slot.position.missed for slot in self._slots)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the event that is being handled; waits at most *timeout_s*, in the handler not at all."""
        self._stop.set()
        self._poller.wake()
        if timeout_s and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self._stop.is_set() and not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for slot in self._slots:
                    if slot.reads_until is None and time.monotonic() >= slot.due:
                        self._attempt(slot, partial(slot.send, self._block_ms))
                replied, late = self._poller.poll(self._slots)
                for slot in replied:
                    self._attempt(slot, partial(self._take, slot))
                for slot in late:
                    self._attempt(slot, slot.time_out)
        except SystemExit:  # of the handler
            self._stop.set()
        finally:
            for slot in self._slots:
                slot.read.close()
            self._poller.close()
            self._client.close()

    def _attempt(self, slot: _PositionSlot, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            if self._stop.is_set():
                return
            slot.fail()
            if slot.failures == 1:
                unforeseen = None if isinstance(error, EventBusError) else error
                log.warning("watcher waits: %s", error, exc_info=unforeseen)

    def _take(self, slot: _PositionSlot) -> None:
        for delivery in slot.take():
            try:
                batch = unpack_batch(delivery.body)
            except PoisonBatch:
                self.skipped += max(1, delivery.events)
                continue
            for packed, uid in zip(batch.events, batch.uids(), strict=True):
                if self._stop.is_set():
                    return
                self.skipped += not self._handle(packed, uid)

    def _handle(self, packed: bytes, uid: str) -> bool:
        try:
            return call_handler(self._handler, unpack_event(packed, uid))
        except PoisonBatch:
            return False


class _PositionSlot(Slot):
    """One partition of a `StreamWatcher`."""

    def __init__(self, client: Client, position: Position) -> None:
        super().__init__()
        self.position = position
        self.read = BlockingRead(client, position.key)
        self.failures = 0

    def fileno(self) -> int:
        return self.read.fileno()

    def send(self, block_ms: int) -> None:
        self.read.send(*self.position.command(block_ms))
        self.reads_until = time.monotonic() + block_ms / 1000 + REPLY_S

    def take(self) -> list[Delivery]:
        deliveries = self.position.take(self.read.reply())
        self.failures = 0
        return deliveries

    def time_out(self) -> None:
        raise BusUnavailable("no reply to a read: wait and try again")

    def fail(self) -> None:
        self.read.close()
        self.reads_until = None
        self.failures += 1
        self.due = time.monotonic() + BACKOFF.pause_s(self.failures)
