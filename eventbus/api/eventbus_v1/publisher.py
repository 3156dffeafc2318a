"""Publishes events of clients that do not number them, many requests in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventbus.api.eventbus_v1.intake import Packed
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import PublishReply, PublishStatus, Transport
from eventbus.errors import BusFull, BusUnavailable, EventBusError
from eventbus.record.losses import Losses
from eventbus.record.resend import Producer
from eventbus.util.clock import Clock

#: Batches of one partition in one round trip.
IN_FLIGHT: Final = 64
#: Round trips in a row that settle nothing: for a lost reply, a partition that must be created, and lost state of the
#: producer.
ROUNDS: Final = 4


class Publisher:
    """The producers of an API worker, one a partition. Call it from one thread at a time.

    After a lost reply, a batch is sent again with the same numbers, so no round trip doubles an event. If `ROUNDS`
    round trips have settled nothing, the rest has failed, and its numbers are not used again: it may have arrived.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses = Losses(clock)
        self._producers: dict[int, Producer] = {}

    def publish(self, requests: Sequence[Sequence[Packed]], context: ThreadContext) -> list[dict[int, EventBusError]]:
        """Publish the events of all *requests*. Returns: for each the failed events by their index.

        After `BusFull` an event is certainly not stored.
        """
        transport = RedisTransport(context.bus, context.client)
        numbers: list[list[int]] = []
        used: dict[int, Producer] = {}
        for request in requests:
            numbers.append([])
            for event in request:
                producer = used[event.partition] = self._producer(event.partition)
                producer.add(event.body)
                numbers[-1].append(producer.added)
        for producer in used.values():
            producer.seal()
        problems = self._rounds(transport, used)
        settled = {partition: producer.added - producer.pending for partition, producer in used.items()}
        failed = [
            {
                event.index: problems.get(event.partition, _UNSETTLED)
                for event, number in zip(request, ours, strict=True)
                if number > settled[event.partition]
            }
            for request, ours in zip(requests, numbers, strict=True)
        ]
        for partition, producer in used.items():
            if not producer.idle:
                del self._producers[partition]
        return failed

    def _rounds(self, transport: Transport, used: dict[int, Producer]) -> dict[int, EventBusError]:
        """Send until all batches are settled. Returns: by partition the reason why they are not."""
        problems: dict[int, EventBusError] = {}
        most, in_vain = -1, 0
        while in_vain < ROUNDS:
            settled = sum(producer.added - producer.pending for producer in used.values())
            most, in_vain = max(most, settled), 1 if settled > most else in_vain + 1
            unsettled = {
                partition: producer
                for partition, producer in used.items()
                if not producer.idle and not isinstance(problems.get(partition), BusFull)
            }
            if not unsettled:
                break
            requests = [request for p, producer in unsettled.items() for request in producer.requests(p, IN_FLIGHT)]
            try:
                replies = transport.publish(requests)
            except EventBusError as error:
                problems |= dict.fromkeys(unsettled, error)
                continue
            stopped: set[int] = set()
            for request, reply in zip(requests, replies, strict=True):
                if request.partition not in stopped and not self._settle(used, problems, request.partition, reply):
                    stopped.add(request.partition)
        return problems

    def _settle(
        self,
        used: dict[int, Producer],
        problems: dict[int, EventBusError],
        partition: int,
        reply: PublishReply | EventBusError,
    ) -> bool:
        """Settle a batch. False: the replies to later batches of the partition have no meaning."""
        if isinstance(reply, EventBusError):
            problems[partition] = reply
            return False
        if reply.status is PublishStatus.FULL:
            problems[partition] = full(partition, reply)
            return False
        return used[partition].settle(reply)

    def _producer(self, partition: int) -> Producer:
        found = self._producers.get(partition)
        if found is None:
            found = self._producers[partition] = Producer(clock=self._clock, losses=self._losses, ring_bytes=0)
        return found


def full(partition: int, reply: PublishReply) -> BusFull:
    """Return the error for a reply FULL."""
    cause = f"group {reply.group!r} holds it" if reply.group else "no group reads it"
    return BusFull(f"the stream of partition {partition} is full: {cause}; start its workers")


_UNSETTLED: Final = BusUnavailable("Redis did not settle it; it may still have arrived")
