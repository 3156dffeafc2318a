"""Works a batch that workers died of one event at a time, so that only the event that kills is found and buried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.encoding.wire import Batch, unpack_batch
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.failpoints import failpoint

#: After so many deaths of workers holding it. Fewer would slow a batch that was only there when somebody pulled a plug.
ISOLATE_AFTER_DEATHS = 3

#: Works the event at a position of a batch, and nothing else of it. False: the batch is another worker's by now.
HandleAlone: TypeAlias = Callable[[GroupReader, Delivery, Batch, int], bool]


def must_be_isolated(delivery: Delivery) -> bool:
    """Return True if workers died of the delivery, or it was begun one event at a time.

    What lies before `next` is done."""
    return delivery.deaths >= ISOLATE_AFTER_DEATHS or delivery.next is not None


def isolate(reader: GroupReader, delivery: Delivery, handle: HandleAlone) -> Sequence[bytes]:
    """Work *delivery* one event at a time with *handle*, from where others have come to; bury the one that killed.

    Returns: its id, to be acknowledged; nothing if it was taken over meanwhile, or buried whole.
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
