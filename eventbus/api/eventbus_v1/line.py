"""The API worker's own numbered line: events of those who number nothing themselves, of many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from eventbus.api.eventbus_v1.intake import Packed
from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import PublishReply, PublishStatus, Transport
from eventbus.errors import BusFull, BusUnavailable, EventBusError
from eventbus.record.losses import Losses
from eventbus.record.producer import Producer
from eventbus.util.clock import Clock

#: Batches of one partition in one round trip.
IN_FLIGHT = 64
#: Round trips for one lot: one answer that was lost, one partition that had to be made, one state that Redis lost.
ROUNDS = 4


class _Job:
    """One request's events, and, when it is *done*, what of it was not taken, by index, and why."""

    def __init__(self, packed: Sequence[Packed], done: asyncio.Future[None]) -> None:
        self.packed = packed
        self.failed: dict[int, EventBusError] = {}
        self.done = done


class Line:
    """Publishes for all requests of a worker, in one thread: those that come during a round trip join the next one.

    Requests wait in the loop and not in threads, which reads need. All but `_publish_all` lives in the loop.

    An answer that is lost is asked for again under the same numbers, so no round trip doubles anything. What could
    not be settled in *ROUNDS* has failed, and its numbers are thrown away: it may still have arrived.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses = Losses(clock)
        self._waiting: list[_Job] = []
        self._publishing: asyncio.Task[None] | None = None
        self._producers: dict[int, Producer] = {}

    async def publish(self, pool: BlockingPool, packed: Sequence[Packed]) -> dict[int, EventBusError]:
        """Publish, and wait for it. It goes on to its end though the caller is cancelled.

        Returns: by index what was not taken, and why; BusFull: certainly not.
        """
        job = _Job(packed, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish_waiting(pool))
        await job.done
        return job.failed

    async def _publish_waiting(self, pool: BlockingPool) -> None:
        try:
            while self._waiting:
                jobs, self._waiting = self._waiting, []
                failure: Exception | None = None
                try:
                    await pool.run(partial(self._publish_jobs, jobs))
                except Exception as error:
                    failure = error
                for job in jobs:
                    if job.done.done():  # its client is gone
                        continue
                    if failure is None:
                        job.done.set_result(None)
                    else:
                        job.done.set_exception(failure)
        finally:
            self._publishing = None

    def _publish_jobs(self, jobs: Sequence[_Job], context: ThreadContext) -> None:
        self._publish_all(RedisTransport(context.bus, context.client), jobs)

    def _publish_all(self, transport: Transport, jobs: Sequence[_Job]) -> None:
        targets: list[tuple[_Job, Packed, int]] = []
        for job in jobs:
            for one in job.packed:
                producer = self._producer(one.partition)
                producer.add(one.body)
                targets.append((job, one, producer.added))
        used = {one.partition: self._producer(one.partition) for _, one, _ in targets}
        for producer in used.values():
            producer.seal()
        problems = self._rounds(transport, used)
        for job, one, target in targets:
            producer = used[one.partition]
            if target > producer.added - producer.pending:
                job.failed[one.index] = problems.get(one.partition, _UNSETTLED)
        for partition, producer in used.items():
            if not producer.idle:  # numbers that nobody knows the fate of are never used again
                del self._producers[partition]

    def _rounds(self, transport: Transport, used: dict[int, Producer]) -> dict[int, EventBusError]:
        """Send until all is settled. Returns: by partition why it is not."""
        problems: dict[int, EventBusError] = {}
        for _ in range(ROUNDS):
            open_ = {p: producer for p, producer in used.items() if not producer.idle and not _is_full(problems.get(p))}
            if not open_:
                break
            requests = [request for p, producer in open_.items() for request in producer.requests(p, IN_FLIGHT)]
            try:
                answers = transport.publish(requests)
            except EventBusError as error:
                problems |= dict.fromkeys(open_, error)
                continue
            stopped: set[int] = set()
            for request, answer in zip(requests, answers, strict=True):
                if request.partition not in stopped and not self._settle(used, problems, request.partition, answer):
                    stopped.add(request.partition)
        return problems

    def _settle(
        self,
        used: dict[int, Producer],
        problems: dict[int, EventBusError],
        partition: int,
        answer: PublishReply | EventBusError,
    ) -> bool:
        """False: what was sent behind it says nothing."""
        if isinstance(answer, EventBusError):
            problems[partition] = answer
            return False
        if answer.status is PublishStatus.FULL:
            held = f"group {answer.group!r} holds it" if answer.group else "no group reads it"
            problems[partition] = BusFull(f"the stream of partition {partition} is full: {held}; start its workers")
            return False
        return used[partition].settle(answer)

    def _producer(self, partition: int) -> Producer:
        found = self._producers.get(partition)
        if found is None:
            found = self._producers[partition] = Producer(clock=self._clock, losses=self._losses, ring_bytes=0)
        return found


def _is_full(problem: EventBusError | None) -> bool:
    return isinstance(problem, BusFull)


_UNSETTLED = BusUnavailable("Redis did not settle it; it may still have arrived")
