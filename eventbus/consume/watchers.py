"""Watches the whole bus: calls a handler with each event, in order, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from eventbus.broker.blocking_read import BlockingRead
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import Delivery, GroupReader, Position
from eventbus.consume.consumer import BEAT_EVERY_S
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.handler import Handler, call_handler
from eventbus.consume.poller import POLLERS, Poller, Slot
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

    The stream does not wait for it: events that were trimmed before it could read them are counted in `missed`. An
    event is skipped if the handler raised three times or it cannot be decoded. It is and counted in `skipped`.
    """

    def __init__(self, *, bus: Bus, handler: Handler, clock: Clock, since_ms: int | None, block_ms: int) -> None:
        self._handler = handler
        self._stop = threading.Event()
        self.skipped = 0
        self._clients = [bus.client(block_ms=block_ms, name="eventbus-watch") for _ in range(bus.partitions)]
        self._positions = [
            Position(bus=bus, client=client, partition=partition) for partition, client in enumerate(self._clients)
        ]
        for position in self._positions:
            if since_ms is None:
                position.at_end()
            else:
                position.at_time(since_ms)
        positions = list(zip(self._clients, self._positions, strict=True))
        pollers = min(POLLERS, bus.partitions)
        self._pollers = [
            PositionPoller(
                positions[number::pollers], self._deliver, block_ms=block_ms, name=f"eventbus-watch-{number}"
            )
            for number in range(pollers)
        ]

    def __repr__(self) -> str:
        state = "stopped" if self._stop.is_set() else "running"
        return f"<StreamWatcher: {state}, {self.missed} missed, {self.skipped} skipped>"

    @property
    def missed(self) -> int:
        """Return how many events were trimmed before this watcher could read them."""
        return sum(position.missed for position in self._positions)

    def start(self) -> None:
        for poller in self._pollers:
            poller.thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the pollers and wait at most *timeout_s* for their threads; 0: do not wait."""
        self._stop.set()
        for poller in self._pollers:
            poller.stop()
        if not timeout_s:
            return
        deadline = time.monotonic() + timeout_s
        for poller in self._pollers:
            if poller.thread.ident is not None and poller.thread is not threading.current_thread():
                poller.thread.join(max(0.0, deadline - time.monotonic()))
        for client in self._clients:
            client.close()

    @property
    def ended(self) -> bool:
        """Return True if it was stopped and its last handler has returned."""
        return self._stop.is_set() and not any(poller.thread.is_alive() for poller in self._pollers)

    def _deliver(self, delivery: Delivery) -> None:
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch:
            self.skipped += max(1, delivery.events)
            return
        for packed, uid in zip(batch.events, batch.uids(), strict=True):
            if self._stop.is_set():
                return
            try:
                event = unpack_event(packed, uid)
            except PoisonBatch:
                self.skipped += 1
                continue
            try:
                handled = call_handler(self._handler, event)
            except SystemExit:  # of the handler
                self.stop(0)
                raise
            if not handled:
                self.skipped += 1


class PositionPoller:
    """Calls *handle* with each delivery of *positions*, in the order of each, in one thread, until `stop`.

    A slow handler delays the other partitions of this poller only.
    """

    def __init__(
        self,
        positions: Sequence[tuple[Client, Position]],
        handle: Callable[[Delivery], None],
        *,
        block_ms: int,
        name: str,
    ) -> None:
        self._slots = [_PositionSlot(client, position) for client, position in positions]
        self._handle = handle
        self._block_ms = block_ms
        self._stop = False
        self._poller = Poller(time.monotonic)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        """End after the delivery that is being handled; returns at once. Idempotent."""
        self._stop = True
        self._poller.wake()
        if self.thread.ident is None:
            self._close()

    def _run(self) -> None:
        try:
            while not self._stop:
                for slot in self._slots:
                    if slot.reads_until is None and time.monotonic() >= slot.due:
                        self._attempt(slot, partial(slot.send, self._block_ms))
                replied, late = self._poller.poll(self._slots)
                for slot in replied:
                    self._attempt(slot, partial(self._take, slot))
                for slot in late:
                    self._attempt(slot, slot.time_out)
        except SystemExit:
            pass  # of the handler: its watcher stops
        finally:
            self._close()

    def _take(self, slot: _PositionSlot) -> None:
        for delivery in slot.take():
            if self._stop:
                return
            self._handle(delivery)

    def _attempt(self, slot: _PositionSlot, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            if self._stop:
                return
            slot.fail()
            if slot.failures == 1:
                unforeseen = None if isinstance(error, EventBusError) else error
                log.warning("watcher waits: %s", error, exc_info=unforeseen)

    def _close(self) -> None:
        for slot in self._slots:
            slot.read.close()
        self._poller.close()


class _PositionSlot(Slot):
    """One partition of a `PositionPoller`."""

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
