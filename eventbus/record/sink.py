"""The store's sink worker: opens batches, and has `record` correlate and write them, whole calls at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from eventbus.broker.bus import SINK_GROUP, Bus
from eventbus.broker.functions import Sent, letters
from eventbus.broker.stream import Delivery, GroupReader
from eventbus.clock import Clock
from eventbus.errors import PoisonBatch
from eventbus.faults import crash_point
from eventbus.record.consumer import Consumer, Handle
from eventbus.record.correlator import CallBuilder, Correlator, KeyedEvent
from eventbus.wire import Batch, unpack_batch, unpack_wire

log = logging.getLogger("eventbus")

#: The events of a batch with their keys; and (cause, deaths, the event as a batch of its own) of what cannot be read.
Opened = tuple[list[KeyedEvent], list[tuple[str, int, bytes]]]

#: After so many deaths of workers holding it, a batch is worked one event at a time.
ISOLATE_AFTER_DEATHS = 3


#: The bounds are looked at after so many events.
RELIEVE_EVERY = 1_000

Relieve = Callable[[GroupReader], None]


def sink_consumer(
    *, bus: Bus, partition: int, name: str, clock: Clock, relieve: Relieve = lambda _reader: None, **options: object
) -> Consumer:
    """A consumer of the store's own group. *relieve* is called now and then, to keep the store within its bounds."""
    handle: Handle = StoreSink(bus, partition, relieve).handle
    return Consumer(
        bus=bus,
        partition=partition,
        group=SINK_GROUP,
        name=name,
        handle=handle,
        clock=clock,
        policy="WAIT",
        **options,  # type: ignore[arg-type]
    )


class StoreSink:
    """Turns deliveries into calls of record. `record` acknowledges by itself, so nothing is returned to acknowledge."""

    def __init__(self, bus: Bus, partition: int, relieve: Relieve = lambda _reader: None) -> None:
        self._relieve = relieve
        self._recorded = 0
        self._sent: Sent | None = None  #: the call of record that is under way
        self._options = bus.options
        self._keys = bus.keys[partition]
        self._correlator = Correlator(bus.options)

    def handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> Sequence[bytes]:
        """Record every delivery, in calls as large as the batch rule allows."""
        try:
            self._handle(reader, deliveries)
        finally:
            if self._sent:
                self._sent.abandon()
                self._sent = None
        return ()

    def _handle(self, reader: GroupReader, deliveries: Sequence[Delivery]) -> None:
        builder = CallBuilder(self._keys)
        for delivery in deliveries:
            if delivery.deaths >= ISOLATE_AFTER_DEATHS:
                self._isolate(reader, delivery)
                continue
            events, burials = self._open(delivery)
            if not builder.fits(events):
                self._send(reader, builder)
                builder = CallBuilder(self._keys)
            builder.add(delivery.id, delivery.clock_ms, events, burials)
        if len(builder):
            self._send(reader, builder)
        self._settle(reader)

    def _record(self, reader: GroupReader, builder: CallBuilder) -> None:
        self._send(reader, builder)
        self._settle(reader)

    def _send(self, reader: GroupReader, builder: CallBuilder) -> None:
        """Begin a call, after the one under way: while Redis works on it, the next is prepared."""
        call = builder.call()
        self._settle(reader)
        crash_point("record")
        self._sent = reader.functions.begin_record(reader.group, reader.consumer, self._options, call)
        self._recorded += builder.events

    def _settle(self, reader: GroupReader) -> None:
        """Wait for the call under way, if there is one."""
        sent, self._sent = self._sent, None
        if sent is None:
            return
        replies = letters(sent.reply())
        crash_point("recorded")
        if self._recorded >= RELIEVE_EVERY:
            self._recorded = 0
            self._relieve(reader)
        for reply in replies:
            if reply == "-":
                log.warning("group %s: a batch was taken over by another worker; left to it", reader.group)

    def _isolate(self, reader: GroupReader, delivery: Delivery) -> None:
        """One event at a time, so that the one that kills is found, and only it is buried."""
        start, trying = reader.isolation(delivery.id)
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch as poison:
            reader.functions.bury(
                reader.group, reader.consumer, delivery.id, poison.cause, delivery.deaths, delivery.body
            )
            return
        for position in range(start, len(batch.events)):
            last = position == len(batch.events) - 1
            builder = CallBuilder(self._keys)
            if trying == position:
                opened: Opened = ([], [("killed-worker", delivery.deaths, batch.alone(position))])
            else:
                reader.try_alone(delivery.id, position)
                crash_point("decoded", batch.events[position])
                opened = self._open_events(batch, [position])
            builder.add(delivery.id, delivery.clock_ms, *opened, next_position=None if last else position + 1)
            self._record(reader, builder)

    def _open(self, delivery: Delivery) -> Opened:
        try:
            batch = unpack_batch(delivery.body)
        except PoisonBatch as poison:
            return [], [(poison.cause, delivery.deaths, delivery.body)]
        crash_point("decoded", delivery.body)
        return self._open_events(batch, range(len(batch.events)))

    def _open_events(self, batch: Batch, positions: Iterable[int]) -> Opened:
        opened: Opened = ([], [])
        for position in positions:
            packed = batch.events[position]
            try:
                opened[0].append(self._correlator.keyed(batch.uid(position), unpack_wire(packed), packed))
            except PoisonBatch as poison:
                opened[1].append((poison.cause, 0, batch.alone(position)))
        return opened
