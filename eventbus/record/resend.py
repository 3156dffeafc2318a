"""The numbered batches of one partition. Batches that Redis has acknowledged and then lost are sent again.

Acknowledged batches stay in a ring. After a loss Redis answers the next batch with GAP; an idle producer checks now and
then whether Redis still has its batches. The lost batches then move from the ring back to the waiting ones.
"""

from __future__ import annotations

import math
import os
import secrets
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice

import msgspec

from eventbus.broker.transport import PRODUCER_LIFE_MS, PublishReply, PublishRequest, PublishStatus
from eventbus.model.encoding.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, PackedEvents, pack_events
from eventbus.model.formats import BASELINE_CODECS
from eventbus.record.losses import Losses
from eventbus.util.clock import Clock

#: Bytes that a batch takes besides its packed events, measured with CPython 3.11.
BATCH_OVERHEAD = 190
#: 96 random bits, 16 base64 characters.
SECRET_BYTES = 12
#: Seconds from an acknowledgement to the first check. Each later pause is twice as long, at most LAST_S. So a
#: loss is found within a minute, and a thousand idle processes cost Redis seventeen small reads a second.
FIRST_S, LAST_S = 1.0, 60.0
#: seconds that a flush or close waits for the answer, at most
ANSWER_S = 1.0


class NumberedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch of events with their sequence numbers. Its first and last sequence never change, so Redis recognizes a
    batch that is sent twice."""

    first: int
    packed: PackedEvents
    losses: tuple[tuple[str, int], ...] = ()  #: reported with this batch: (cause, events)
    sealed_at: float = 0.0  #: monotonic seconds; 0: counts as late at once

    @property
    def last(self) -> int:
        """Return the sequence number of its last event."""
        return self.first + self.packed.count - 1

    @property
    def size(self) -> int:
        """Return the bytes of memory that it takes."""
        return len(self.packed.content) + BATCH_OVERHEAD


class Producer:
    """A producer id and everything that was sent under it. Used by the flusher's thread alone.

    *id* is part of the uid of every event. Redis keeps its state of this producer under *secret*, which is in no event:
    a client with the right to publish could overwrite the state if it knew the key.

    Sequences are given out when events are packed into a batch. A batch stays *waiting* until Redis has answered OK or
    DUP for it, then joins the *ring*. A GAP moves lost batches from the ring back to waiting, with the same borders.

    Args: ring_bytes: the most memory that the ring takes; 0: there is none.
          life_ms: how long Redis is to remember this producer; 0: `PRODUCER_LIFE_MS`.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        losses: Losses,
        ring_bytes: int,
        life_ms: int = 0,
    ) -> None:
        self._clock = clock
        self._losses = losses
        self._life_ms = life_ms or PRODUCER_LIFE_MS
        #: those that the bus lets producers use
        self.codecs: Collection[int] = BASELINE_CODECS
        #: up to this sequence, Redis may have stored batches and no longer know it; see `take_over`
        self._uncertain_to = 0
        self.check = AckCheckSchedule(clock)
        self._ring_limit = ring_bytes
        self._ring: deque[NumberedBatch] = deque()
        self._ring_bytes = 0
        self._open: list[bytes] = []
        #: appends one event; the next `seal` numbers it
        self.add: Callable[[bytes], None] = self._open.append
        self.waiting: deque[NumberedBatch] = deque()
        self._sealed = 0  # events ever put into a batch
        self._waiting_events = 0
        self.waiting_revision = 0  #: grows whenever the waiting batches change other than by new ones at the end
        self._start_again()

    @property
    def added(self) -> int:
        """Return the number of events ever given to `add`."""
        return self._sealed + len(self._open)

    @property
    def pending(self) -> int:
        """Return the number of events not yet accepted, with those that a GAP has queued again."""
        return self._waiting_events + len(self._open)

    def seal(self) -> None:
        """Number the added events and close their batches: from now on they can be sent."""
        if self._open and self.idle and self.maybe_forgotten:
            self._start_again()
        while self._open:
            events = _as_many_as_fit(self._open[:MAX_BATCH_EVENTS])
            losses = self._losses.take_unreported()
            self.waiting.append(
                NumberedBatch(self._next, pack_events(events, self.codecs), losses, self._clock.monotonic())
            )
            del self._open[: len(events)]
            self._next += len(events)
            self._sealed += len(events)
            self._waiting_events += len(events)

    def take_over(
        self, *, id: str, secret: str, generation: str, silent_ms: int, batches: Sequence[NumberedBatch]
    ) -> None:
        """Continue as another producer: send its *batches*, at least one, under its *id* and *secret*.

        *generation*, *silent_ms*: of the last batch that Redis is known to have accepted under that id. If that is
        longer ago than Redis remembers, the batches are counted as `uncertain`: they may be stored twice.
        """
        self._start_again()
        self.id = id
        self.secret = secret
        self.generation = generation
        self._accepted_at -= silent_ms / 1000
        self.waiting.extend(batches)
        self._waiting_events = sum(batch.packed.count for batch in batches)
        self._next = batches[-1].last + 1
        if silent_ms > self._life_ms:
            self._uncertain_to = batches[-1].last

    def forget(self) -> None:
        """Forget all events, and continue under a fresh id: the spool of another process has them."""
        self._open.clear()
        self.waiting.clear()
        self._waiting_events = 0
        self._start_again()

    @property
    def acknowledged(self) -> int:
        """Return the last sequence of this id that Redis is known to have; 0: none."""
        return (self.waiting[0].first if self.waiting else self._next) - 1

    @property
    def idle(self) -> bool:
        """Return True if no batch waits for its acknowledgement."""
        return not self.waiting

    @property
    def silent_ms(self) -> int:
        """Return the ms since Redis last accepted a batch."""
        return int((self._clock.monotonic() - self._accepted_at) * 1000)

    @property
    def maybe_forgotten(self) -> bool:
        """Return True if Redis may soon have forgotten this id.

        It then accepts any batch, so only one may be sent at a time."""
        return self.silent_ms > self._life_ms // 2

    @property
    def remembered(self) -> bool:
        """Return True if Redis should know the last sequence of this id."""
        return self._next > 1 and not self.maybe_forgotten

    def check_in_s(self, wanted_at: float = -math.inf) -> float:
        """Return the seconds until the next ack check, with a flush or close at *wanted_at*.

        0 or less: now; inf: none."""
        if not self.idle or not self.remembered:
            return math.inf
        return 0.0 if self.check.is_unconfirmed(wanted_at) else self.check.due_in_s

    def check_answered(self, last: int) -> bool:
        """Take the answer to an ack check: the last sequence that Redis has. False: lost batches are queued again."""
        if last >= self.acknowledged:
            self.check.confirmed()
            return True
        self._rewind(last)
        return False

    def requests(self, partition: int, most: int) -> list[PublishRequest]:
        """Make requests for up to *most* waiting batches, or one while the bus may have forgotten this id."""
        silent_ms = self.silent_ms
        return [
            PublishRequest(
                partition,
                self.secret,
                batch.first,
                batch.packed.count,
                batch.packed.body(self.id, batch.first),
                self.generation,
                silent_ms,
                batch.losses,
                self._life_ms,
            )
            for batch in islice(self.waiting, 1 if self.maybe_forgotten else most)
        ]

    def settle(self, answer: PublishReply) -> bool:
        """Take the answer to the oldest waiting batch. False: the batches after it must be sent again."""
        if answer.status in (PublishStatus.OK, PublishStatus.LOST, PublishStatus.DUP):
            self._accepted(answer)
            return True
        if answer.status is PublishStatus.GAP:
            self._rewind(answer.last)
        elif answer.status is PublishStatus.REFUSED:
            self._drop(dict(answer.refused))
        return False

    def _accepted(self, answer: PublishReply) -> None:
        is_other = answer.generation != self.generation != ""
        if answer.status is PublishStatus.LOST or (answer.status is PublishStatus.DUP and is_other):
            # DUP: the reply LOST to this batch did not arrive.
            # The reply has no number of lost events: count 1, or 0 if the ring has no acknowledged batch.
            self._losses.count("destroyed", len(self._ring) and 1, "the stream was destroyed, and its entries are lost")
        elif answer.status is PublishStatus.OK and self._is_uncertain(self.waiting[0]):
            self._losses.count("uncertain", self.waiting[0].packed.count, "in doubt for longer than Redis remembers")
        self.generation = answer.generation
        self._accepted_at = self._clock.monotonic()
        self.check.acknowledged()
        batch = self.waiting.popleft()
        self._waiting_events -= batch.packed.count
        self._ring.append(batch)
        self._ring_bytes += batch.size
        while self._ring_bytes > self._ring_limit:
            self._ring_bytes -= self._ring.popleft().size

    def _is_uncertain(self, batch: NumberedBatch) -> bool:
        return batch.last <= self._uncertain_to or (self.silent_ms > self._life_ms and batch.first > 1)

    def _rewind(self, last: int) -> None:
        """Queue again all batches after *last*, which Redis has lost, as far as the ring reaches back."""
        self.waiting_revision += 1
        while self._ring and self._ring[-1].first > last:
            batch = self._ring.pop()
            self._ring_bytes -= batch.size
            self._waiting_events += batch.packed.count
            self.waiting.appendleft(batch)
        missing = (self.waiting[0].first if self.waiting else self._next) - last - 1
        if missing > 0:
            self._losses.count("lost", missing, "Redis lost them and the ring no longer has them")
            self._renumber()

    def _drop(self, refused: dict[int, str]) -> None:
        """Drop events of the oldest waiting batch that the API refuses for good, and continue with the rest.

        The borders of batches never change under one id, so the rest gets a fresh id. Batches that were acknowledged
        under the old id cannot be sent again if the server loses them.
        """
        batch = self.waiting.popleft()
        events = batch.packed.events()
        # *refused* is empty if the API has refused the whole batch.
        kept = [event for position, event in enumerate(events) if refused and position not in refused]
        dropped = len(events) - len(kept)
        self._losses.count("refused", dropped, next(iter(refused.values()), "the API refused the whole batch"))
        self._waiting_events -= dropped
        if kept:
            self.waiting.appendleft(NumberedBatch(batch.first, pack_events(kept, self.codecs), batch.losses))
        else:
            self._losses.report_again(batch.losses)
        self._renumber()

    def _renumber(self) -> None:
        """Continue with the rest under a fresh id, because a gap in the sequence cannot be repaired."""
        batches = list(self.waiting)
        self._start_again()
        self.waiting.clear()
        for batch in batches:
            self.waiting.append(NumberedBatch(self._next, batch.packed, batch.losses, batch.sealed_at))
            self._next += batch.packed.count

    def _start_again(self) -> None:
        self.id = os.urandom(8).hex()
        self.secret = secrets.token_urlsafe(SECRET_BYTES)
        self.waiting_revision += 1
        self.generation = ""
        self._next = 1
        self._uncertain_to = 0
        self._ring.clear()
        self._ring_bytes = 0
        self._accepted_at = self._clock.monotonic()


def _as_many_as_fit(events: list[bytes]) -> list[bytes]:
    """Return the first of *events*, as many as fit into a batch: at least one."""
    room = MAX_BATCH_BYTES - 512
    if sum(map(len, events)) + 3 * len(events) <= room:
        return events
    fitting: list[bytes] = []
    for event in events:
        if fitting and len(event) > room:
            break
        fitting.append(event)
        room -= len(event) + 3
    return fitting


class AckCheckSchedule:
    """The schedule of checks of one idle producer.

    Only idle producers are checked: a busy one finds a loss when it sends its next event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.acknowledged()

    def acknowledged(self) -> None:
        """Note that the bus has acknowledged a batch, and with it all earlier ones."""
        self._confirmed_at = self._sent_at = self._clock.monotonic()
        self._pause_s = FIRST_S

    def sent(self) -> None:
        """Note that a check was sent. If no answer comes, the next check follows."""
        self._sent_at = self._clock.monotonic()
        self._pause_s = min(LAST_S, 2 * self._pause_s)

    def confirmed(self) -> None:
        """Note that the bus still has all that it acknowledged."""
        self._confirmed_at = self._clock.monotonic()

    @property
    def due_in_s(self) -> float:
        """Return the seconds until the next check; 0 or less: now."""
        return self._sent_at + self._pause_s - self._clock.monotonic()

    def is_unconfirmed(self, wanted_at: float) -> bool:
        """Return True if a flush or close at *wanted_at* is unconfirmed and no check was sent since."""
        return wanted_at - self._confirmed_at >= FIRST_S and self._sent_at < wanted_at
