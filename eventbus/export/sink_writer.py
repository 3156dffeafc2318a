"""Calls a sink with deliveries, with rules for two failures: the sink does not answer, or it refuses one event.

It uses no Redis and no positions: it takes deliveries and returns their outcomes.

Source:   client-go-semantics section 3 (recordToSink, recordEvent). Departures: an outage pauses the export without a
          limit instead of counting attempts; a batch's failures are retried together; failed events are returned, to
          become dead letters; if an event exists already, a count above 1 is patched into it. With `Outage.COUNT`, the
          first and the last are as in client-go.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, StrEnum
from typing import TypeVar

import msgspec

from eventbus.errors import (
    AlreadyExists,
    DeadCause,
    EventBusError,
    EventRejected,
    EventUnbuildable,
    NotFound,
    NotSent,
    SinkGone,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.deliveries import Outcome, SinkDelivery
from eventbus.export.lease import Waits, pause
from eventbus.export.progress import ExportProgress
from eventbus.export.rules import Outage
from eventbus.export.sinks.contract import (
    BatchSink,
    CountingSink,
    EventPatch,
    EventSink,
    OpeningSink,
    OrderedSink,
    SinkAnswer,
    SinkWrite,
    Verb,
    object_of,
)
from eventbus.model.event import Event
from eventbus.store.storage import with_metadata
from eventbus.util.backoff import Backoff
from eventbus.util.log import log

T = TypeVar("T")

#: client-go's maxTriesPerEvent and sleepDuration: an event that fails is given up after 100 to 110 s.
MAX_TRIES = 12
RETRY_S = 10.0
#: Probes of a sink that does not answer: full jitter below 1 s doubling to this.
PROBE_BACKOFF = Backoff(first_s=1.0, last_s=60.0)


class Stopped(Enum):
    """The result of a call that was not made because the exporter stopped."""

    STOPPED = 1


class ExportStopped(Exception):
    """The exporter stopped in the middle of a batch: the next worker writes the unsettled events."""


class _Item(msgspec.Struct):
    """A delivery under way. *follows*: answers that led straight to another call in this try."""

    delivery: SinkDelivery
    verb: Verb
    tries: int = 0
    follows: int = 0


class _Next(StrEnum):
    """The next step for an item."""

    CALL = "call"  #: another call, at once
    RETRY = "retry"  #: another try, after a sleep
    WAIT = "wait"  #: the same call, when the sink answers again


class SinkWriter:
    """Writes deliveries to one sink, without a limit on waits. Its methods are generators: the caller does the waiting.

    Args:     wait: waits for so many seconds; True: stop without writing the remaining deliveries.
              before: called before each call with the number of events, for a rate limit; True: stop.
              rate_per_s: the rate limit of `before`. A call has at most the events of one second. With more, `before`
                would wait for a long time and then send a burst. 0: no limit.
              calling: a context manager that is entered around each call of the sink.
              origin: returns the bus and partition of the deliveries; called before each write.
    """

    def __init__(
        self,
        sink: EventSink,
        *,
        outage: Outage,
        progress: ExportProgress,
        wait: Callable[[float], Waits[bool]] = pause,
        before: Callable[[int], Waits[bool]] | None = None,
        rate_per_s: float = 0.0,
        calling: Callable[[], AbstractContextManager[None]] = nullcontext,
        uniform: Callable[[float, float], float] = random.uniform,
        origin: Callable[[], str] = str,
    ) -> None:
        self._sink = sink
        self._origin = origin
        self._batch = sink if isinstance(sink, BatchSink) else None
        self._counting = sink if isinstance(sink, CountingSink) else None
        self._is_ordered = isinstance(sink, OrderedSink) and sink.ordered
        self._outage = outage
        self._progress = progress
        self._wait = wait
        self._before = before or _at_once
        self._at_once = max(1, int(min(rate_per_s, 1e6))) if rate_per_s > 0 else None
        self._calling = calling
        self._uniform = uniform
        self._probes = 0

    def open(self) -> Waits[bool]:
        """Let a sink connect that wants to, waiting for it. True: stop. Raises: SinkGone."""
        sink = self._sink
        if not isinstance(sink, OpeningSink) or self._outage is Outage.COUNT:
            return False
        return (yield from self.ask(sink.open)) is Stopped.STOPPED

    def ask(self, call: Callable[[], T]) -> Waits[T | Stopped]:
        """Make an idempotent call of the sink, and retry it while the sink does not answer.

        Raises: SinkGone, and the other errors of *call*.
        """
        while True:
            if (yield from self._before(0)):
                return Stopped.STOPPED
            try:
                with self._calling():
                    answer = call()
            except (OSError, SinkUnreachable, Throttled) as error:
                if (yield from self._wait_for_sink(_classified(error))):
                    return Stopped.STOPPED
            else:
                self._answered()
                return answer

    def write(self, deliveries: Sequence[SinkDelivery], settle: Callable[[Outcome], Waits[None]]) -> Waits[None]:
        """Write *deliveries* of different events; *settle* is called with each outcome as soon as it is known.

        Ends early, with unsettled deliveries, only if `wait` or `before` returns True. Raises: SinkGone.
        """
        todo = [_Item(delivery, self._first_verb(delivery)) for delivery in deliveries]
        failed: list[_Item] = []
        while todo or failed:
            if not todo:
                if (yield from self._wait(self._sleep_s(failed))):
                    return
                todo = [_Item(item.delivery, self._first_verb(item.delivery), item.tries) for item in failed]
                failed = []
            chunk = todo[: self._at_once if self._batch else 1]
            if (yield from self._before(len(chunk))):
                return
            # Immediate follow-up writes (patch, not found, create) come before the next event.
            first: list[_Item] = []
            rest, outage, last_error = todo[len(chunk) :], None, None
            retried = answered = 0
            queues: dict[tuple[str, str, str], list[_Item]] = {}  # object → the list with its first unsettled write
            failed_at: dict[tuple[str, str, str], _Item] = {}  # object → its first write that failed
            answers = self._call_each(chunk) if self._batch is None else self._call(self._batch, chunk)
            if self._counting is not None and (rejected := self._counting.take_rejected()):
                self._progress.rejected(rejected)
            for item, answer in zip(chunk, answers, strict=True):
                if isinstance(answer, NotSent):
                    place = queues.get(_about(item), first)
                    if place is failed:
                        _wait_for(item, failed_at[_about(item)])
                    place.append(item)
                    continue
                decision = self._judge(item, answer)
                answered += decision is not _Next.WAIT
                if isinstance(decision, Outcome):
                    yield from settle(decision)
                elif decision is _Next.RETRY:
                    failed.append(item)
                    queues.setdefault(_about(item), failed)
                    failed_at.setdefault(_about(item), item)
                    last_error, retried = answer, retried + 1
                else:
                    first.append(item)
                    queues.setdefault(_about(item), first)
                    if decision is _Next.WAIT:
                        outage = answer
            if self._is_ordered and last_error is not None:
                waits = [item for item in rest if _about(item) in failed_at]
                for item in waits:
                    _wait_for(item, failed_at[_about(item)])
                failed += waits
                rest = [item for item in rest if _about(item) not in failed_at]
            todo = first + rest
            if isinstance(last_error, EventBusError):
                self._progress.retrying(last_error, retried)
            if isinstance(outage, EventBusError):
                if answered:
                    self._probes = 0  # it accepted some writes
                if (yield from self._wait_for_sink(outage)):
                    return
            else:
                self._answered()

    def _first_verb(self, delivery: SinkDelivery) -> Verb:
        if self._outage is Outage.COUNT:
            return Verb.PATCH if delivery.event.occurrences > 1 else Verb.CREATE
        if delivery.known is not None:
            return Verb.PATCH
        return delivery.verb or (Verb.CREATE if delivery.added else Verb.PATCH)

    def _sleep_s(self, failed: Sequence[_Item]) -> float:
        """Return the time to sleep.

        The first is random, so that sinks that failed together are not called all at once. `tools/events` of client-go
        has no short first one.
        """
        if self._outage is Outage.COUNT and all(item.delivery.event.event_time for item in failed):
            return RETRY_S * self._uniform(1, 1.25)
        return RETRY_S * (self._uniform(0, 1) if all(item.tries <= 1 for item in failed) else 1)

    def _call(self, sink: BatchSink, chunk: Sequence[_Item]) -> Sequence[SinkAnswer]:
        origin = self._origin()
        try:
            with self._calling():
                answers = sink.write([SinkWrite.of(item.verb, *_arguments(item), origin) for item in chunk])
        except SinkGone:
            raise
        except (OSError, SinkUnreachable, Throttled) as error:
            return [_classified(error)] * len(chunk)
        except Exception:
            log.exception("sink %s: a batch failed as a whole; its events are written one by one", self._sink.name)
            return self._call_each(chunk)
        wrong = UnexpectedReply(f"{len(answers)} answers to {len(chunk)} writes")
        return answers if len(answers) == len(chunk) else [wrong] * len(chunk)

    def _call_each(self, chunk: Sequence[_Item]) -> Sequence[SinkAnswer]:
        answers: list[SinkAnswer] = []
        for item in chunk:
            stopped = answers and isinstance(answers[-1], SinkUnreachable | Throttled)
            answers.append(answers[-1] if stopped else self._call_one(item))
        return answers

    def _call_one(self, item: _Item) -> SinkAnswer:
        event, patch = _arguments(item)
        try:
            with self._calling():
                if patch is not None:
                    return self._sink.patch(event, patch)
                return self._sink.create(event) if item.verb is Verb.CREATE else self._sink.update(event)
        except SinkGone:
            raise
        except Exception as error:
            if not isinstance(error, EventBusError | OSError) and not item.tries:
                log.warning("sink %s raised an unexpected error", self._sink.name, exc_info=True)
            return _classified(error)

    def _judge(self, item: _Item, answer: SinkAnswer) -> Outcome | _Next:
        """Decide: settled, given up, or the next step, which is noted in *item* too."""
        delivery = item.delivery
        counting = self._outage is Outage.COUNT
        match answer:
            case Event():
                return Outcome(delivery, answer)
            case SinkUnreachable() | Throttled() if not counting:
                return _Next.WAIT
            case SinkUnreachable(status=status) | UnexpectedReply(status=status) if counting and status:
                # client-go does not retry after a StatusError.
                return Outcome(delivery, None, DeadCause.REJECTED, str(answer))
            case EventRejected() | Throttled():
                return Outcome(delivery, None, DeadCause.REJECTED, str(answer))
            case EventUnbuildable():
                return Outcome(delivery, None, DeadCause.UNBUILDABLE, str(answer))
            case NotFound() if item.verb is not Verb.CREATE and item.follows < 2:
                return _follow(item, Verb.CREATE)
            case NotFound() if counting:
                return Outcome(delivery, None, DeadCause.REJECTED, str(answer))
            case AlreadyExists() if counting and delivery.event.series is None:
                return Outcome(delivery)
            case AlreadyExists() if counting:  # of a series: the next try patches it
                return self._failed(item, answer)
            case AlreadyExists() if item.verb is Verb.CREATE and delivery.event.occurrences in (0, 1):
                # The sink has the event, but did not return its version.
                return Outcome(delivery, with_metadata(delivery.event, resource_version=""))
            case AlreadyExists() if item.verb is Verb.CREATE and item.follows < 2:
                return _follow(item, Verb.PATCH)
            case _:
                return self._failed(item, answer)

    def _failed(self, item: _Item, error: EventBusError) -> Outcome | _Next:
        item.tries += 1
        if item.tries >= MAX_TRIES:
            return Outcome(item.delivery, None, DeadCause.RETRIES, str(error))
        return _Next.RETRY

    def _wait_for_sink(self, error: EventBusError) -> Waits[bool]:
        retry_after_s = error.retry_after_s if isinstance(error, Throttled) else None
        self._progress.paused(error, retry_after_s)
        self._probes += 1
        pause_s = PROBE_BACKOFF.pause_s(self._probes, self._uniform) if retry_after_s is None else retry_after_s
        return (yield from self._wait(pause_s))

    def _answered(self) -> None:
        if self._probes:
            self._probes = 0
            self._progress.resumed()


def _at_once(_events: int) -> Waits[bool]:
    yield from ()
    return False


def _about(item: _Item) -> tuple[str, str, str]:
    return object_of(item.delivery.event)


def _wait_for(item: _Item, failed: _Item) -> None:
    """Count the attempts of *failed* for *item* too, but leave it one: else each waiting item would retry in full."""
    item.tries = max(item.tries, min(failed.tries, MAX_TRIES - 1))


def _arguments(item: _Item) -> tuple[Event, EventPatch | None]:
    delivery = item.delivery
    return delivery.event, delivery.patch() if item.verb is Verb.PATCH else None


def _follow(item: _Item, verb: Verb) -> _Next:
    item.verb, item.follows = verb, item.follows + 1
    if verb is Verb.CREATE and item.delivery.known is not None:
        # The event does not exist in the sink: its old version must not be used again if the create fails.
        known = msgspec.structs.replace(item.delivery.known, version="")
        item.delivery = msgspec.structs.replace(item.delivery, known=known)
    return _Next.CALL


def _classified(error: Exception) -> EventBusError:
    """Convert to an EventBusError: network errors are outages, all others concern the event."""
    if isinstance(error, EventBusError):
        return error
    problem = f"{type(error).__name__}: {error}"
    return SinkUnreachable(problem) if isinstance(error, OSError) else UnexpectedReply(problem)
