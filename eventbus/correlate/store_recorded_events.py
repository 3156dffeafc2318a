"""The store's sink worker: stores recorded events.

It decodes batches, and calls `correlate_and_store`, which writes and acknowledges them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from eventbus.broker.bus import Bus
from eventbus.broker.calls import PendingCalls
from eventbus.broker.functions import CorrelateCall
from eventbus.broker.keys import SINK_GROUP
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.consume.consumer import TAKE_OVER_S, Handle, HandleAlone
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.housekeeper import Housekeeper
from eventbus.correlate.keys import CallBuilder, Correlator, OpenedBatch
from eventbus.errors import DeadCause, EventBusError, PoisonBatch
from eventbus.model.encoding.wire import Batch, unpack_batch
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

#: Events between two checks of the bounds of the store.
ENFORCE_BOUNDS_EVERY = 1_000

#: One call that Redis executes, and one queued after it, so that Redis never waits for this worker.
CALLS_UNDER_WAY = 2


def sink_worker(
    *,
    bus: Bus,
    clock: Clock,
    block_ms: int,
    name: str = "",
    take_over_s: float = TAKE_OVER_S,
    on_change: Callable[[str, str], None] | None = None,
) -> GroupRunner:
    """Make a worker of the group `sink`, with its housekeeping. See `GroupRunner`."""

    def handlers(partition: int) -> tuple[Handle, HandleAlone]:
        sink = StoreSink(bus, partition, housekeeper)
        return sink.handle, sink.handle_alone

    housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change, partitions=lambda: worker.partitions)
    worker = GroupRunner(
        bus=bus,
        group=SINK_GROUP,
        name=name,
        clock=clock,
        block_ms=block_ms,
        handlers=handlers,
        housekeeper=housekeeper,
        trial=store_nothing,
        take_over_s=take_over_s,
        on_change=on_change,
    )
    return worker


def store_nothing(reader: GroupReader) -> None:
    """Call `correlate_and_store` without batches, to test the worker's rights. Raises: as a real call."""
    call = CallBuilder(reader.keys, reader.options).call()
    reader.functions.correlate_and_store(reader.group, reader.consumer, reader.options, call)


class StoreSink:
    """Stores deliveries. The Lua call acknowledges them, so `handle` returns nothing to acknowledge.

    Args: housekeeper: enforces the bounds of the store every `ENFORCE_BOUNDS_EVERY` events; None: nothing does.
    """

    def __init__(self, bus: Bus, partition: int, housekeeper: Housekeeper | None = None) -> None:
        self._housekeeper = housekeeper
        self._partition = partition
        self._recorded = 0
        self._sent: deque[tuple[PendingCalls, CorrelateCall]] = deque()  #: the calls under way, in order
        self._options = bus.options
        self._keys = bus.keys[partition]
        self._correlator = Correlator(bus.options)

    def handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        """Record every delivery, in calls of `MAX_CALL_WEIGHT` at most."""
        try:
            self._handle(reader, deliveries)
        finally:
            while self._sent:
                self._sent.popleft()[0].abandon()
        return ()

    def handle_alone(self, reader: GroupReader, delivery: Delivery, batch: Batch, position: int) -> bool:
        """Record one event of a batch. False: another worker has taken it over."""
        last = position == len(batch.events) - 1
        builder = CallBuilder(self._keys, self._options)
        builder.add(
            delivery.id,
            delivery.clock_ms,
            self._correlator.open_events(batch, [position]),
            start=position,
            next_position=None if last else position + 1,
        )
        self._recorded += builder.events
        failpoint("record")
        call = builder.call()
        replies = reader.functions.correlate_and_store(reader.group, reader.consumer, self._options, call)
        failpoint("recorded")
        return self._are_done(reader, call, replies)

    def _handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> None:
        builder = CallBuilder(self._keys, self._options)
        for delivery in deliveries:
            opened = self._open(reader, delivery)
            if not builder.fits(opened.events):
                self._send(reader, builder)
                builder = CallBuilder(self._keys, self._options)
            builder.add(delivery.id, delivery.clock_ms, opened)
        if len(builder):
            self._send(reader, builder)
        while self._sent:
            self._settle(reader)

    def _send(self, reader: GroupReader, builder: CallBuilder) -> None:
        """Send a call after the pending one, so that Redis is busy while this worker reads and prepares."""
        call = builder.call()
        while len(self._sent) >= CALLS_UNDER_WAY:
            self._settle(reader)
        failpoint("record")
        after = self._sent[-1][0] if self._sent else None
        pending = reader.functions.begin_correlate_and_store(reader.group, reader.consumer, self._options, call, after)
        self._sent.append((pending, call))
        self._recorded += builder.events

    def _settle(self, reader: GroupReader) -> None:
        """Wait for the first of the calls under way."""
        pending, call = self._sent.popleft()
        replies = reader.functions.end_correlate_and_store(pending, reader.group, reader.consumer, self._options, call)
        failpoint("recorded")
        reader.steps += 1
        if self._recorded >= ENFORCE_BOUNDS_EVERY:
            self._recorded = 0
            if self._housekeeper is not None:
                self._housekeeper.enforce_bounds(reader.client, self._partition)
        self._are_done(reader, call, replies)

    def _are_done(self, reader: GroupReader, call: CorrelateCall, replies: Sequence[str]) -> bool:
        """Count the dead letters. Return False if another worker has taken over one of the batches."""
        reader.buried += sum(n for reply, n in zip(replies, call.burials, strict=True) if reply not in ("-", "<"))
        for _ in range(replies.count("-")):
            log.warning("group %s: a batch was taken over by another worker; left to it", reader.group)
        if "<" in replies:  # the consumer then reads its pending batches and their positions again
            raise EventBusError("another worker has handled more of a batch than its position here says")
        return "-" not in replies

    def _open(self, reader: GroupReader, delivery: Delivery) -> OpenedBatch:
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch as poison:
            reader.check_poison(poison.cause)
            return unreadable_batch(poison.cause, delivery.deaths, delivery.body)
        failpoint("decoded", delivery.body)
        return self._correlator.open_events(batch, range(len(batch.events)))


def unreadable_batch(cause: DeadCause, deaths: int, body: bytes) -> OpenedBatch:
    """Return a batch without events, which is buried as a whole."""
    opened = OpenedBatch([], [(cause, deaths, body)], lambda: opened)
    return opened
