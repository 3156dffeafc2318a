"""The sender: takes events from the buffer, packs and numbers them, and publishes round by round.

A round is one round trip for everything that waits. One thread at a time drives it, usually the flusher.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING

from eventbus.broker.keys import partition_of
from eventbus.broker.publish_call import SPOOLED_LIFE_MS, PublishReply, PublishStatus
from eventbus.broker.transport import BusDescription, PublishRequest, Transport
from eventbus.clock import Clock
from eventbus.encoding.wire import MAX_BATCH_EVENTS
from eventbus.errors import BusUnavailable, EventBusError, InvalidEvent
from eventbus.event import ObjectReference
from eventbus.failpoints import failpoint
from eventbus.log import log
from eventbus.record.buffer import OUTBOX_FULL, SPOOL_FULL, Buffer
from eventbus.record.flush_mark import FlushMark
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, pack
from eventbus.record.partition_waits import PartitionWaits
from eventbus.record.producer import AckCheck, Producer
from eventbus.record.unlocked import UnlockedTransport, released
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.record.spool.spool import Spool

#: seconds after which batches that Redis has not acknowledged are written to the spool
LATE_S = 0.1
#: seconds that the end of a process waits for a write under way
KEEP_S = 1.0


class Sender:
    """One `Producer` a partition, and the transport, which is opened by the first round.

    With a *spool*, batches that are not acknowledged in time are written to disk. While a round waits for the network
    *lock* is free, and a `SpoolKeeper` does this.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Transport],
        buffer: Buffer,
        settings: Settings,
        clock: Clock,
        losses: Losses,
        spool: Spool | None = None,
    ) -> None:
        self._connect = connect
        self._buffer = buffer
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._transport: Transport | None = None
        self._bus = BusDescription(0, 0)
        self._marks: deque[FlushMark] = deque()
        self.producers: list[Producer] = []
        self.ack_check = AckCheck()
        self._waits = PartitionWaits(clock)
        self._spool = spool
        self.lock = RLock()
        #: since when a round is due and not done; None: nothing waits
        self.busy_since: float | None = None
        self._unplaced: deque[tuple[ObjectReference, bytes] | FlushMark] = deque()  # until the partitions are known
        self._kept = 0

    @property
    def connected(self) -> bool:
        """Return True while it has a transport."""
        return self._transport is not None

    @property
    def pending(self) -> int:
        """Return the number of events that were packed and are not acknowledged."""
        return sum(producer.pending for producer in self.producers) + len(self._unplaced)

    @property
    def idle(self) -> bool:
        """Return True if no event waits for its acknowledgement."""
        return not self._unplaced and all(producer.idle for producer in self.producers)

    @property
    def can_send(self) -> bool:
        """Return True while events wait for a partition that does not back off, or for the number of partitions."""
        return bool(self._unplaced) or any(
            not producer.idle and not self._waits.holds(i) for i, producer in enumerate(self.producers)
        )

    def due_in_s(self) -> float:
        """Return the seconds until a partition that backs off is tried again; inf: none does."""
        return self._waits.due_in_s()

    def check_in_s(self, closed_at: float) -> float:
        """Return the seconds until the next ack check, counting flushes and a close at *closed_at*; inf: none."""
        wanted_at = self._wanted_at(closed_at)
        return min((producer.check_in_s(wanted_at) for producer in self.producers), default=math.inf)

    def begin_round(self) -> None:
        """Note that a round is to be done, before the keeper of the spool is woken: it sleeps only if none is."""
        if self.busy_since is None:
            self.busy_since = self._clock.monotonic()

    def round(self, closed_at: float = -math.inf) -> bool:
        """Connect if needed, pack the buffer's events, do ack checks that are due, publish all that waits.

        Returns: False if nothing was sent because all that waits is for partitions that back off.
        Raises: BusUnavailable, BusRefused, ConfigError: events without acknowledgement wait; call again.
        """
        self.begin_round()
        with self.lock:
            if self._transport is None:
                self.open()
            sent = self._round(closed_at)
            self.busy_since = None if self.idle and not self._buffer.items else self._clock.monotonic()
            return sent

    def open(self) -> BusDescription:
        """Connect, and number the events that were packed before the partitions were known. The lock is held.

        Raises: BusUnavailable, BusRefused, ConfigError.
        """
        with released(self.lock):
            transport = self._connect()
        self._bus = transport.describe()
        self._transport = transport if self._spool is None else UnlockedTransport(transport, self.lock)
        if not self.producers:
            self._make_producers()
        if self._spool is not None:
            self._spool.know(self._bus.epoch, self._bus.partitions)
        self.place()
        return self._bus

    def _round(self, closed_at: float) -> bool:
        assert self._transport is not None
        self._fill(self._room_in_producers())
        wanted_at = self._wanted_at(closed_at)
        if due := [each for each in enumerate(self.producers) if each[1].check_in_s(wanted_at) <= 0]:
            self.ack_check.run(self._transport, due)
        self._keep(self._clock.monotonic() - LATE_S)
        sent = self._send(self._transport, closing=closed_at > -math.inf)
        if self._spool is not None:
            self._spool.settle(self.producers)
        self._release_marks()
        return sent

    # -- the spool -----------------------------------------------------------------------------------------------

    def keep_waiting(self) -> None:
        """Write all waiting events to the spool, in another thread than that of `round`."""
        with self.lock:
            self._fill(self._room_in_memory())
            self._keep(math.inf)

    def keep_rest(self) -> int:
        """At the end, write all waiting events to the spool and release it. Returns how many events it keeps."""
        if self._spool is None or not self.lock.acquire(timeout=KEEP_S):
            return self._kept
        try:
            if not self.idle or self._buffer.items:
                self._fill(len(self._buffer.items))
                self._keep(math.inf)
            kept = self._spool.kept(self.producers)
            if folder := self._spool.release():
                log.warning(
                    "%d events are kept in %s: a process with the same spool, or `eventbus spool send`, sends them",
                    kept,
                    folder,
                )
                self._kept = max(self._kept, kept)
        finally:
            self.lock.release()
        return self._kept

    def forget(self) -> None:
        """In a child after fork, close the files of its parent."""
        if self._spool is not None:
            self._spool.forget()

    def _keep(self, sealed_before: float) -> None:
        if self._spool is None:
            return
        unplaced = [each[1] for each in self._unplaced if type(each) is tuple]
        all_kept = self._spool.keep(self.producers, unplaced, sealed_before=sealed_before)
        self._buffer.why_full = OUTBOX_FULL if all_kept else SPOOL_FULL

    def place(self, more: Sequence[tuple[ObjectReference, bytes]] = ()) -> None:
        """Number the events that were packed before the partitions were known, and *more*."""
        self._unplaced.extend(more)
        while self._unplaced:
            each = self._unplaced.popleft()
            if isinstance(each, FlushMark):
                self._mark(each)
            else:
                self.producers[partition_of(each[0], len(self.producers))].add(each[1])
        for producer in self.producers:
            producer.seal()

    # -- connection ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the transport and free the callers that wait in a flush. A later round opens another."""
        for mark in (*self._marks, *(each for each in self._unplaced if type(each) is FlushMark)):
            mark.done.set()
        if self._spool is not None and self._transport is not None and self.idle:
            self._transport.shorten_life([each for each in enumerate(self._secrets()) if each[1]])
        self.hang_up()
        self._transport = None

    def hang_up(self) -> None:
        """Close the transport from any thread: a round trip under way ends with an error."""
        if self._transport is not None:
            with suppress(Exception):  # another thread may be using it
                self._transport.close()

    def _secrets(self) -> list[str]:
        """Return the secret of each partition's producer; empty where Redis knows none."""
        return [producer.secret if producer.remembered else "" for producer in self.producers]

    def _wanted_at(self, closed_at: float) -> float:
        return max(closed_at, self._marks[-1].put_at if self._marks else -math.inf)

    def _make_producers(self) -> None:
        ring_bytes = self._settings.ring_bytes // self._bus.partitions
        self.producers = [
            Producer(
                clock=self._clock,
                losses=self._losses,
                ring_bytes=ring_bytes,
                life_ms=0 if self._spool is None else SPOOLED_LIFE_MS,
                codecs=self._codecs,
            )
            for _ in range(self._bus.partitions)
        ]

    def _codecs(self) -> tuple[int, ...]:
        """Return the codecs that producers may use, as far as the transport knows."""
        return self._transport.describe().codecs if self._transport else self._bus.codecs

    def _fill(self, room: int) -> None:
        """Pack events until the buffer is empty, or *room* events are."""
        buffer, pack_one = self._buffer, pack
        items, small = buffer.items, buffer.small
        adds = [producer.add for producer in self.producers]
        partitions = len(adds)
        while room > 0 and items:
            item = items.popleft()
            if type(item) is not Pending:
                assert isinstance(item, FlushMark)
                self._mark(item)
                continue
            if len(item.message) > small:
                buffer.give_back(len(item.message))
            try:
                packed = pack_one(item)
            except InvalidEvent as error:
                self._losses.count("refused", 1, str(error), mistake=error.kind)
                continue
            except Exception as error:  # a field of an unexpected type must not stop the flusher
                name = type(error).__name__
                self._losses.count("refused", 1, f"{name}: {error}", mistake=name)
                continue
            if partitions == 1:
                adds[0](packed)
            elif partitions:
                adds[partition_of(item.reference, partitions)](packed)
            else:
                self._unplaced.append((item.reference, packed))
            room -= 1
        for producer in self.producers:
            producer.seal()
        buffer.tell_room()

    def _fill_ahead(self, sent: Sequence[PublishRequest]) -> None:
        """Pack the next round trip's events while *sent* is on its way: full batches only.

        Events that do not fill a batch stay in the buffer, so that batches grow with the load.
        """
        full = len(self._buffer.items) // MAX_BATCH_EVENTS * MAX_BATCH_EVENTS
        if full:
            # Batches for a partition that has failed stay in memory.
            leaving = sum(request.events for request in sent if not self._waits.has_failed(request.partition))
            self._fill(min(full, self._room_in_producers(leaving)))

    def _mark(self, mark: FlushMark) -> None:
        if self.producers:
            mark.added = [producer.added for producer in self.producers]
            self._marks.append(mark)
        else:
            self._unplaced.append(mark)

    def _room_in_memory(self) -> int:
        """Return how many events to pack: as many as the buffer may hold, whose limit sinks by so many."""
        room = self._settings.buffer_events - self.pending
        waiting_bytes = sum(batch.size for producer in self.producers for batch in producer.waiting)
        if (
            waiting_bytes + sum(len(each[1]) for each in self._unplaced if type(each) is tuple)
            > self._settings.buffer_bytes
        ):
            room = 0
        self._buffer.limit = max(0, room - len(self._buffer.items))
        return max(0, room)

    def _room_in_producers(self, leaving: int = 0) -> int:
        """Return how many events to pack: a round trip's worth, besides those for partitions that back off and
        *leaving*, which are on their way.

        Partitions that back off may hold as many events as the buffer, whose limit sinks by these. Only if they hold as
        many do the other partitions wait.
        """
        held = [producer for i, producer in enumerate(self.producers) if self._waits.has_failed(i)]
        events = sum(producer.pending for producer in held)
        if self._spool is not None:  # its keeper may have taken all events from the buffer
            events = max(events, self.pending - self._bus.in_flight * MAX_BATCH_EVENTS)
        self._buffer.limit = max(0, self._settings.buffer_events - events)
        held_bytes = sum(batch.size for producer in held for batch in producer.waiting)
        if self._buffer.limit == 0 or held_bytes > self._settings.buffer_bytes:
            return 0
        return self._bus.in_flight * MAX_BATCH_EVENTS - self.pending + events + leaving

    def _send(self, transport: Transport, *, closing: bool) -> bool:
        """Make one round trip for all partitions' waiting events, and settle the answers. False: none was sent."""
        requests = [
            request
            for partition, producer in enumerate(self.producers)
            if not producer.idle and not self._waits.holds(partition)
            for request in producer.requests(partition, self._bus.in_flight)
        ]
        if not requests:
            return False
        failpoint("publish")
        answers = transport.publish(requests, lambda: self._fill_ahead(requests))
        failpoint("published")
        self._settle(requests, answers, closing)
        return True

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
            self._losses.tell("unavailable", f"{problem} ({self._buffer.events + self.pending} events wait)")

    def _release_marks(self) -> None:
        while self._marks and self._marks[0].reached(self.producers):
            mark = self._marks.popleft()
            mark.accepted = True
            mark.done.set()
