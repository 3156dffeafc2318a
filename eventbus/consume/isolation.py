"""Handles a batch that killed workers one event at a time, to find and bury only the event that kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.encoding.wire import Batch, unpack_batch
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.failpoints import failpoint

#: After so many deaths of workers with this batch. With fewer, a power cut would slow an innocent batch.
ISOLATE_AFTER_DEATHS = 3

#: Handles the one event at a position of a batch. False: another worker has taken the batch over.
HandleAlone: TypeAlias = Callable[[GroupReader, Delivery, Batch, int], bool]


def must_be_isolated(delivery: Delivery) -> bool:
    """Return True if the delivery killed workers, or is already handled one event at a time: up to `next`."""
    return delivery.deaths >= ISOLATE_AFTER_DEATHS or delivery.next is not None


def isolate(reader: GroupReader, delivery: Delivery, handle: HandleAlone) -> Sequence[bytes]:
    """Handle *delivery* one event at a time with *handle*, from its noted position; bury the event that killed.

    Returns: its id, to be acknowledged; nothing if another worker has taken it over, or it was buried whole.
    """
    try:
        batch = unpack_batch(delivery.body)
    except PoisonBatch as poison:
        reader.bury(delivery, poison.cause, delivery.body, whole=True)
        return ()
    for position in range(delivery.next or 0, len(batch.events)):
        reader.steps += 1
        if position == delivery.killed:
            event = batch.alone(position)
            ours = reader.bury(delivery, DeadCause.KILLED_WORKER, event, whole=False, next_position=position + 1)
        elif ours := reader.isolate(delivery.id, position):
            failpoint("decoded", batch.events[position])
            ours = handle(reader, delivery, batch, position)
        if not ours:
            return ()
    return (delivery.id,)
