"""The sender: numbers packed events, publishes those of all partitions, and keeps unacknowledged ones in the spool.

The outbox and the adopter of spools drive it, one thread at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING

from eventbus.broker.keys import partition_of
from eventbus.broker.transport import (
    SPOOLED_LIFE_MS,
    BusDescription,
    PublishReply,
    PublishRequest,
    PublishStatus,
    Transport,
)
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS
from eventbus.model.event import ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.resend import Producer
from eventbus.settings import Settings
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.record.spool.spool import Spool

#: seconds after which batches that Redis has not acknowledged are written to the spool
LATE_S = 0.1
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.05, 1.0
BACKOFF = Backoff(first_s=FIRST_BACKOFF_S, last_s=LAST_BACKOFF_S, at_least=0.25)


class Sender:
    """One `Producer` a partition, and the transport.

    `open` opens the transport and makes the producers. Events that are packed before, because the spool needs them, are
    *unplaced*: they get a partition and a number when the number of partitions is known.

    With a *spool*, batches that are not acknowledged in time are written to disk. While a round waits for the network
    *lock* is free, so that another thread can do this.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Transport],
        settings: Settings,
        clock: Clock,
        losses: Losses,
        spool: Spool | None = None,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._spool = spool
        self._transport: Transport | None = None
        self._bus = BusDescription(0, 0)
        #: those that the bus lets producers use; none before the first connection
        self.codecs: tuple[int, ...] = ()
        self._waits = PartitionWaits(clock)
        #: events in the spool when it was released
        self.left_in_spool = 0
        self.lock = RLock()
        self.producers: list[Producer] = []
        self.unplaced: deque[tuple[ObjectReference, bytes]] = deque()
        #: the spool takes no more events
        self.spool_full = False
        #: a unique token during an ack check, else None
        self.check_under_way: object | None = None

    @property
    def connected(self) -> bool:
        """Return True while it has a transport."""
        return self._transport is not None

    @property
    def pending(self) -> int:
        """Return the number of events that were packed and are not acknowledged."""
        return sum(producer.pending for producer in self.producers) + len(self.unplaced)

    @property
    def pending_bytes(self) -> int:
        """Return about how many bytes these events take."""
        batches = sum(batch.size for producer in self.producers for batch in producer.waiting)
        return batches + sum(len(event) for _, event in self.unplaced)

    @property
    def idle(self) -> bool:
        """Return True if no event waits for its acknowledgement."""
        return not self.unplaced and all(producer.idle for producer in self.producers)

    @property
    def can_send(self) -> bool:
        """Return True while events wait for a partition that does not back off, or for the bus to be opened."""
        return bool(self.unplaced) or any(
            not producer.idle and not self._waits.backs_off(i) for i, producer in enumerate(self.producers)
        )

    @property
    def round_events(self) -> int:
        """Return how many events of one partition a round can publish."""
        return self._bus.in_flight * MAX_BATCH_EVENTS

    def blocked(self) -> tuple[int, int]:
        """Return how many events wait for partitions that have failed, and about their bytes."""
        failed = [self.producers[partition] for partition in self._waits.failed_partitions]
        return (
            sum(producer.pending for producer in failed),
            sum(batch.size for producer in failed for batch in producer.waiting),
        )

    def due_in_s(self) -> float:
        """Return the seconds until a partition that backs off is tried again; inf: none does."""
        return self._waits.due_in_s()

    def check_in_s(self, wanted_at: float) -> float:
        """Return the seconds until the next ack check, with a flush or close at *wanted_at*; inf: none."""
        return min((producer.check_in_s(wanted_at) for producer in self.producers), default=math.inf)

    def open(self) -> BusDescription:
        """Connect, and number the unplaced events. Call with *lock* held; it is released while connecting.

        Raises: BusUnavailable, BusRefused, ConfigError.
        """
        with _released(self.lock):
            transport = self._connect()
        self._bus = transport.describe()
        self._transport = transport
        if not self.producers:
            self._make_producers()
        self._use_codecs(self._bus.codecs)
        if self._spool is not None:
            self._spool.know(self._bus.epoch, self._bus.partitions)
        self.place()
        return self._bus

    def place(self, more: Iterable[tuple[ObjectReference, bytes]] = ()) -> None:
        """Number the unplaced events, and *more*."""
        self.unplaced.extend(more)
        while self.unplaced:
            about, event = self.unplaced.popleft()
            self.producers[partition_of(about, len(self.producers))].add(event)
        for producer in self.producers:
            producer.seal()

    def round(
        self,
        pack_ahead: Callable[[int], object] | None = None,
        *,
        wanted_at: float = -math.inf,
        closing: bool = False,
    ) -> bool:
        """Do ack checks that are due, and publish all that waits in one round trip. *lock* is held.

        Args:    pack_ahead: called while the events are on their way, unless there is a spool, with their number.
                 wanted_at: when the last flush or close wanted an ack check.  closing: back off for a short time only.
        Returns: False if nothing was sent because all that waits is for partitions that back off.
        Raises:  BusUnavailable, BusRefused, ConfigError: events without acknowledgement wait; call again.
        """
        assert self._transport is not None
        if due := [each for each in enumerate(self.producers) if each[1].check_in_s(wanted_at) <= 0]:
            self._check(self._transport, due)
        self.write_to_spool(self._clock.monotonic() - LATE_S)
        sent = self._send(self._transport, pack_ahead, closing)
        if self._spool is not None:
            self._spool.settle(self.producers)
        return sent

    def write_to_spool(self, sealed_before: float) -> None:
        """Write the batches that were sealed before that moment, and unplaced events, to the spool. *lock* is held."""
        if self._spool is not None:
            unplaced = [event for _, event in self.unplaced]
            self.spool_full = not self._spool.keep(self.producers, unplaced, sealed_before=sealed_before)

    def release_spool(self) -> int:
        """Release the spool at the end of the process, and forget the events: another process sends them.

        *lock* is held. Returns how many events it could not keep.
        """
        if self._spool is None:
            return 0
        left = self._spool.count(self.producers)
        folder = self._spool.release()
        if folder is None:
            return 0
        cure = "a process with the same spool, or `eventbus spool send`, sends them"
        log.warning("%d events are kept in %s: %s", left, folder, cure)
        self.left_in_spool += left
        rest = self.pending - left
        self.unplaced.clear()
        for producer in self.producers:
            producer.forget()
        return rest

    def close(self) -> None:
        """Close the transport. `open` opens another."""
        if self._spool is not None and self._transport is not None and self.idle:
            self._transport.shorten_life(
                [(i, producer.secret) for i, producer in enumerate(self.producers) if producer.remembered]
            )
        self.hang_up()
        self._transport = None

    def hang_up(self) -> None:
        """Close the transport from any thread: a round trip under way ends with an error."""
        if self._transport is not None:
            with suppress(Exception):  # another thread may be using it
                self._transport.close()

    def _make_producers(self) -> None:
        ring_bytes = self._settings.ring_bytes // self._bus.partitions
        self.producers = [
            Producer(
                clock=self._clock,
                losses=self._losses,
                ring_bytes=ring_bytes,
                life_ms=0 if self._spool is None else SPOOLED_LIFE_MS,
            )
            for _ in range(self._bus.partitions)
        ]

    def _use_codecs(self, codecs: tuple[int, ...]) -> None:
        """Let the producers use these *codecs* for the events that they number from now on."""
        if codecs is not self.codecs:
            self.codecs = codecs
            for producer in self.producers:
                producer.codecs = codecs

    def _check(self, transport: Transport, producers: Sequence[tuple[int, Producer]]) -> None:
        """Check idle producers, by partition, in one round trip; batches that the bus has lost are queued again."""
        for _, producer in producers:
            producer.check.sent()
        secrets = [(partition, producer.secret) for partition, producer in producers]
        self.check_under_way = object()
        try:
            if self._spool is None:
                lasts = transport.last(secrets)
            else:
                with _released(self.lock):
                    lasts = transport.last(secrets)
        except EventBusError:
            return  # no caller waits for this check, and the next publish meets the same error
        finally:
            self.check_under_way = None
        for (_, producer), last in zip(producers, lasts, strict=True):
            if last is not None and not producer.check_answered(last):
                log.warning("Redis has lost events that it had acknowledged; those in the ring are sent again")

    def _send(self, transport: Transport, pack_ahead: Callable[[int], object] | None, closing: bool) -> bool:
        """Make one round trip for all partitions' waiting events, and settle the answers. False: none was sent."""
        requests = [
            request
            for partition, producer in enumerate(self.producers)
            if not producer.idle and not self._waits.backs_off(partition)
            for request in producer.requests(partition, self._bus.in_flight)
        ]
        if not requests:
            return False
        failpoint("publish")
        left = self.left_in_spool
        if self._spool is not None:
            with _released(self.lock):
                answers = transport.publish(requests)
        elif pack_ahead is None:
            answers = transport.publish(requests)
        else:
            answers = transport.publish(requests, lambda: pack_ahead(self._will_free(requests)))
        failpoint("published")
        if self.left_in_spool != left:
            return True  # the process ends, and `release_spool` has forgotten these events
        self._use_codecs(transport.describe().codecs)  # an answer may bring new codecs
        self._settle(requests, answers, closing)
        return True

    def _will_free(self, sent: Sequence[PublishRequest]) -> int:
        """Return how many events leave memory if this round is acknowledged, without those for failed partitions."""
        failed = self._waits.failed_partitions
        return sum([request.events for request in sent if request.partition not in failed])

    def _settle(
        self, requests: Sequence[PublishRequest], answers: Sequence[PublishReply | EventBusError], closing: bool
    ) -> None:
        """Give the answers to the producers.

        The batches after a refused one are sent again, so their answers are ignored."""
        problems: dict[int, EventBusError] = {}
        refused: set[int] = set()
        for request, answer in zip(requests, answers, strict=True):
            partition = request.partition
            if partition in refused:
                continue
            if isinstance(answer, EventBusError):
                problems[partition] = answer
                refused.add(partition)
            elif not self.producers[partition].settle(answer):
                refused.add(partition)
                if answer.status is PublishStatus.FULL:
                    holder = f"group {answer.group!r} holds it" if answer.group else "no group reads it"
                    problems[partition] = BusUnavailable(
                        f"the stream of partition {partition} is full: {holder}; start its workers"
                    )
        for partition in {request.partition for request in requests} - problems.keys():
            self._waits.succeeded(partition)
        for partition, problem in problems.items():  # raised after the other partitions are settled
            if len(problems) == len(self.producers):
                raise problem
            self._waits.failed(partition, soon=closing)
            self._losses.log("unavailable", f"{problem} (events waiting: {self.pending})")


class PartitionWaits:
    """A back-off with jitter for each partition that fails: its node is away, or its stream is full.

    The other partitions are not affected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def failed(self, partition: int, *, soon: bool = False) -> None:
        """Note a failure of *partition*, which is tried again later. *soon*: after the first back-off at most."""
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        self._until[partition] = self._clock.monotonic() + BACKOFF.pause_s(1 if soon else failures)

    def succeeded(self, partition: int) -> None:
        """Note a success of *partition*: it does not back off any more."""
        if partition in self._failures:
            del self._failures[partition], self._until[partition]

    @property
    def failed_partitions(self) -> Collection[int]:
        """Return the partitions that have failed, and not succeeded since."""
        return self._failures.keys()

    def backs_off(self, partition: int) -> bool:
        """Return True while *partition* backs off."""
        return bool(self._until) and self._until.get(partition, -math.inf) > self._clock.monotonic()

    def due_in_s(self) -> float:
        """Return the seconds until the next partition is to be tried again, 0 or more; inf: none waits."""
        return max(0.0, min(self._until.values(), default=math.inf) - self._clock.monotonic())


@contextmanager
def _released(lock: RLock) -> Iterator[None]:
    """Release *lock*, which this thread holds, during the block."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
