"""One partition's numbered line of batches: what is sent, what is in doubt, and the ring that repairs a hole.

Pure bookkeeping, no I/O: the outbox sends what `unsent` gives and tells what was answered.
"""

from __future__ import annotations

import math
import os
from collections import deque

import msgspec

from eventbus.broker.publish import PRODUCER_LIFE_MS, Accepted, Published
from eventbus.clock import Clock
from eventbus.record.doubt import Doubt
from eventbus.record.losses import Losses
from eventbus.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, pack_batch


class NumberedBatch(msgspec.Struct, frozen=True, gc=False):
    """Events with their sequence numbers; borders never change, so that a repeat is recognised."""

    first: int
    events: list[bytes]
    size: int
    losses: tuple[tuple[str, int], ...] = ()  #: told with this batch: (cause, events)

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


class Producer:
    """A producer id and everything that was said under it. Used by the flusher's thread alone.

    Sequences are given out when events are packed into a batch. A batch stays *waiting* until Redis has answered OK or
    DUP for it, then joins the *ring*. A GAP moves what the ring still has back to waiting, with the same borders.
    """

    def __init__(self, *, clock: Clock, losses: Losses, ring_bytes: int) -> None:
        self._clock = clock
        self._losses = losses
        self.doubt = Doubt(clock)
        self._ring_limit = ring_bytes
        self._ring: deque[NumberedBatch] = deque()
        self._ring_bytes = 0
        self._open: list[bytes] = []
        self._open_bytes = 0
        self.waiting: deque[NumberedBatch] = deque()
        self.added = 0  #: events ever given to `add`
        self.pending = 0  #: events not yet accepted; what a GAP brought back included
        self._start_anew()

    def add(self, event: bytes) -> None:
        """Number *event* behind all others."""
        if len(self._open) == MAX_BATCH_EVENTS or self._open_bytes + len(event) > MAX_BATCH_BYTES - 512:
            self.seal()
        self._open.append(event)
        self.added += 1
        self.pending += 1
        self._open_bytes += len(event) + 3

    def seal(self) -> None:
        """Close the batch that is being filled: from now on it can be sent."""
        if not self._open:
            return
        if self.idle and self.maybe_forgotten:
            self._start_anew()
        losses = self._losses.take_unreported()
        self.waiting.append(NumberedBatch(self._next, self._open, self._open_bytes, losses))
        self._next += len(self._open)
        self._open, self._open_bytes = [], 0

    @property
    def idle(self) -> bool:
        """Nothing waits for its acknowledgement."""
        return not self.waiting

    @property
    def silent_ms(self) -> int:
        """Since Redis last accepted something."""
        return int((self._clock.monotonic() - self._accepted_at) * 1000)

    @property
    def maybe_forgotten(self) -> bool:
        """Redis may soon know nothing of this id. It then takes any batch, so that only one may be on its way."""
        return self.silent_ms > PRODUCER_LIFE_MS // 2

    @property
    def remembered(self) -> bool:
        """Redis should know the last sequence of this id."""
        return self._next > 1 and not self.maybe_forgotten

    def asks_in_s(self, wanted_at: float = -math.inf) -> float:
        """Until Redis is to be asked for what it acknowledged, by who wants to be sure since then; 0 or less: now."""
        if not self.idle or not self.remembered:
            return math.inf
        return 0.0 if self.doubt.since(wanted_at) else self.doubt.due_in_s

    def found(self, last: int) -> bool:
        """Take the last sequence that Redis has, asked while nothing was waiting. False: what it lost waits again."""
        if last >= self._next - 1:
            self.doubt.answered()
            return True
        self._rewind(last)
        return False

    def body(self, batch: NumberedBatch) -> bytes:
        """What goes into the stream entry."""
        return pack_batch(self.id, batch.first, batch.events)

    def settle(self, answer: Published) -> bool:
        """Take the answer to the oldest waiting batch. False: what was sent after it must be sent again."""
        if answer.answer in (Accepted.OK, Accepted.LOST, Accepted.DUP):
            self._accepted(answer)
            return True
        if answer.answer is Accepted.GAP:
            self._rewind(answer.last)
        return False

    def _accepted(self, answer: Published) -> None:
        if answer.answer is Accepted.LOST:
            self._losses.count("destroyed", len(self._ring) and 1, "the stream was destroyed; what it held is lost")
        elif answer.answer is Accepted.OK and self.silent_ms > PRODUCER_LIFE_MS and self.waiting[0].first > 1:
            self._losses.count("uncertain", len(self.waiting[0].events), "in doubt for longer than Redis remembers")
        self.generation = answer.generation
        self._accepted_at = self._clock.monotonic()
        self.doubt.heard()
        batch = self.waiting.popleft()
        self.pending -= len(batch.events)
        self._ring.append(batch)
        self._ring_bytes += batch.size
        while self._ring_bytes > self._ring_limit:
            self._ring_bytes -= self._ring.popleft().size

    def _rewind(self, last: int) -> None:
        """Redis has forgotten everything after *last*: send it again, as far as the ring reaches back."""
        while self._ring and self._ring[-1].first > last:
            batch = self._ring.pop()
            self._ring_bytes -= batch.size
            self.pending += len(batch.events)
            self.waiting.appendleft(batch)
        missing = (self.waiting[0].first if self.waiting else self._next) - last - 1
        if missing > 0:
            self._losses.count("lost", missing, "Redis lost them and the ring no longer has them")
            self._renumber()

    def _renumber(self) -> None:
        """A hole that cannot be repaired: the rest goes on under a fresh id."""
        batches = list(self.waiting)
        self._start_anew()
        self.waiting.clear()
        for batch in batches:
            self.waiting.append(NumberedBatch(self._next, batch.events, batch.size, batch.losses))
            self._next += len(batch.events)

    def _start_anew(self) -> None:
        self.id = os.urandom(8).hex()
        self.generation = ""
        self._next = 1
        self._ring.clear()
        self._ring_bytes = 0
        self._accepted_at = self._clock.monotonic()
