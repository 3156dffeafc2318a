"""Exports one partition of the store to one sink: reads changes, writes them, stores the sink's replies.

`sink_writer.py` has the rules of writing, `lease.py` those of the lease.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice

from eventbus.broker.bus import Bus
from eventbus.broker.exports import ExportCheckpoint, ExportStore, export_group
from eventbus.broker.keys import ID_CHARS
from eventbus.consume.consumer import RedisAbsence
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import (
    BusUnavailable,
    EventBusError,
    Expired,
    FunctionsMissing,
    OtherBus,
    PasswordRefused,
    SinkGone,
)
from eventbus.export.deliveries import Outcome, Round, SinkDelivery, make_rounds
from eventbus.export.lease import ExportLease, LeaseLost, Waits, finish
from eventbus.export.lost_rows import LostRows
from eventbus.export.progress import ExportProgress, Figures
from eventbus.export.rules import BEGINNING, DelayedEvents, ExportFilter, ExportOptions, Outage, RateLimit, Start
from eventbus.export.sink_writer import ExportStopped, SinkWriter
from eventbus.export.sinks.contract import CollectingSink, EventSink, Verb
from eventbus.export.sinks.registry import check_name
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.store.changes import Change, ChangeReader
from eventbus.store.event_storage import EventStorage
from eventbus.store.scan import scan
from eventbus.store.selection import Selection
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

#: The maximum time between two attempts of a standby worker to acquire the lease.
STANDBY_EVERY_S = 3.0
#: The maximum time between two checkpoints, so that few writes are repeated after a crash.
KEEP_EVERY_S = 1.0
BACKOFF = Backoff(first_s=0.1, last_s=10.0)
#: For storing the sink's replies: retry soon after Redis is back, but never at once.
KEEP_BACKOFF = Backoff(first_s=0.1, last_s=10.0, at_least=0.5)


class PartitionExporter:
    """Exports *partition* to *sink* as *consumer*. Start it in a thread of its own: `run`, which also closes the sink.

    Args: shared: other exporters of this thread use *sink* too: their poller closes it.
          rate: the rate limit shared with the exporters of other partitions; None: its own.
          sleep: waits for so many seconds; returns True if `stop` was called. For tests with a fake clock.
          calling: entered around each call of the sink; sends the heartbeats meanwhile. For pollers.
          on_gone: called when the sink reports that it is gone permanently; then the loop ends.

    Raises: ConfigError: the sink's name is invalid.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        partition: int,
        sink: EventSink,
        consumer: str,
        clock: Clock,
        options: ExportOptions,
        block_ms: int,
        shared: bool = False,
        rate: RateLimit | None = None,
        sleep: Callable[[float], bool] | None = None,
        calling: Callable[[], AbstractContextManager[None]] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        on_change: Callable[[str, str], None] | None = None,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        check_name(sink.name)
        self._title = title = f"{export_group(sink.name)}, partition {partition}"
        self._bus = bus
        self._partition = partition
        self._sink = sink
        self._shared = shared
        self._clock = clock
        self._options = options
        self._block_ms = block_ms
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        self._uniform = uniform
        self._on_gone = on_gone
        self.client = bus.client(block_ms=block_ms, name=f"eventbus-export-{partition}")
        self._store = ExportStore(bus=bus, client=self.client, partition=partition, sink=sink.name, consumer=consumer)
        self._lease = ExportLease(self._store, clock=clock, take_over_s=options.take_over_s, title=title)
        self._progress = ExportProgress(self._store, sink=sink.name, clock=clock, title=title, on_change=on_change)
        self._writer = SinkWriter(
            sink,
            outage=options.outage,
            progress=self._progress,
            wait=self._lease.wait,
            before=self._wait_for_rate,
            rate_per_s=options.rate_per_s,
            calling=calling or self._lease.during_a_call,
            uniform=uniform,
            origin=lambda: self._lost_rows.origin,
        )
        self._storage = EventStorage(kind=EVENT, bus=bus, client=self.client, view=options.view)
        self._filter = ExportFilter(self._store, options.matchers, options.every_ms, self._progress, clock)
        self._lost_rows = LostRows(
            sink,
            bus=bus,
            partition=partition,
            store=self._store,
            writer=self._writer,
            clock=clock,
            keep=self._store_checkpoint,
            scan=self._stored_after,
            uids=partial(self._storage.uids, partition),
            title=title,
        )
        self._delayed = DelayedEvents(self._store, self._storage)
        self._rate = rate or RateLimit(options.rate_per_s, clock)
        self._reader: ChangeReader[Event] | None = None
        self._collect_s = sink.collect_s if isinstance(sink, CollectingSink) else 0.0
        self._collect_until = float("-inf")  #: no read before this time, of the monotonic clock
        self._position: int | None = None
        self._redis = RedisAbsence(title, on_change)
        self._under_way: Waits[float] | None = None  #: the suspended turn; None: none
        self.idle = False  #: the last turn has found nothing to do

    @property
    def figures(self) -> Figures:
        """Return the exporter's counters; safe to read from any thread."""
        return self._progress.figures

    def loop_health(self) -> LoopHealth:
        """Return its health; safe to call from any thread. It stays ready while the sink does not answer."""
        figures = self.figures
        counted = ("written", "unmatched", "held_back", "retries", "buried", "rejected", "probes", "lists")
        since = figures.paused_since
        gauges = {
            "leader": float(figures.holds),
            "pending": figures.pending,
            "paused_seconds": 0.0 if since is None else max(0.0, self._clock.time_ns() / 1e9 - since),
        }
        return LoopHealth(
            group=export_group(self._sink.name),
            partition=self._partition,
            last_progress=self._lease.last_progress,
            ready=self._redis.ready,
            counts={name: getattr(figures, name) for name in counted} | {"failures": self._redis.failures_ever},
            gauges=gauges,
        )

    def stop(self) -> None:
        """Ask the exporter to stop after the current call of the sink. Any wait ends early. Returns at once."""
        self._stop.set()

    def run(self) -> None:
        """Export until `stop`; blocks. At the end, store the results of all writes and release the lease."""
        try:
            while not self._stop.is_set():
                pause_s = self.turn(self._block_ms)
                if pause_s is None:
                    break
                if pause_s and self._sleep(pause_s):
                    self.stop()
        finally:
            self.close()

    def turn(self, block_ms: int = 0) -> float | None:
        """Run one step, or try to acquire the lease. Return the seconds until the next turn; None: the export ends.

        If a step has to wait for the sink, Redis or the rate limit, it is suspended. The next turn resumes it.
        """
        self.idle = False
        work, self._under_way = self._under_way, None
        try:
            if work is None:
                work = self._begin(block_ms)
                pause_s = next(work)
            else:
                pause_s = work.send(self._stop.is_set())
            self._under_way = work
            return pause_s
        except StopIteration as end:
            self._redis.succeeded()
            return float(end.value)
        except ExportStopped:
            return None
        except SinkGone as error:
            log.error("%s ends: %s", self._title, error)
            if self._on_gone is not None:
                self._on_gone()
            return None
        except LeaseLost:
            log.warning("%s: another worker has taken over", self._title)
            self._let_go()
        except EventBusError as error:
            return self._failed(error)
        except Exception as error:  # a bug: the position is unchanged, so the step is retried
            log.exception("%s: unexpected error", self._title)
            return self._failed(EventBusError(f"{type(error).__name__}: {error}"))
        return 0.0

    def _begin(self, block_ms: int) -> Waits[float]:
        """Run a turn. Return the seconds until the next one."""
        if not self.figures.holds and not (yield from self._acquire()):
            return STANDBY_EVERY_S * self._uniform(0.3, 1)
        self.idle = not (yield from self._step(block_ms))
        return 0.0

    def beat(self) -> None:
        """Send a heartbeat if it holds the lease, during another exporter's turn. Do not call it during a write."""
        if self.figures.holds:
            self._lease.beat()

    @property
    def changes_key(self) -> bytes:
        """Return the key of the stream that the exporter reads."""
        return self._bus.keys[self._partition].changes_of(EVENT.plural)

    def wait_command(self, block_ms: int) -> tuple[object, ...]:
        """Return the command that waits at the server for the next change."""
        return ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self.changes_key, f"{self._position or 0}-0")

    def acquire(self) -> bool:
        """Acquire the lease if it is free, read the position, and wait until the sink has connected.

        Raises: LeaseLost, ExportStopped, and Redis errors.
        """
        return finish(self._acquire(), self._sleep)

    def step(self, block_ms: int = 1) -> int:
        """Read changes once, for at most *block_ms*, and write them. Return the number of changes.

        Call it only after `acquire`. Raises: LeaseLost, ExportStopped, and Redis errors.
        """
        return finish(self._step(block_ms), self._sleep)

    def _acquire(self) -> Waits[bool]:
        lease = self._lease.acquire()
        self._redis.answered()  # before the next steps, which may wait for the sink
        if lease is None:
            return False
        yield from self._store_checkpoint(self._progress.begin(self._sink.mode))
        former, self._position = self._position, lease.position
        listed = former is not None or self._options.start.listed
        if lease.position is not None:
            self._read_from(lease.position)
        elif not listed:  # before the wait for the sink: the events of this time are exported
            newest = self._store.newest_version()
            yield from self._store_checkpoint(ExportCheckpoint(position=newest))
            self._read_from(newest)
        if (yield from self._writer.open()):
            raise ExportStopped
        if lease.position is not None:
            yield from self._lost_rows.resume()
        elif former is not None:  # the bus was flushed: export everything that it has now
            yield from self._catch_up(after=former)
        elif listed:
            yield from self._catch_up(start=self._options.start)
        return True

    def _step(self, block_ms: int) -> Waits[int]:
        self._lease.keep()
        delayed = self._delayed.due(self._now_ms(), self._clock.monotonic())
        yield from self._write_all(Round(deliveries=due, done=done) for due, done in delayed)
        reader = self._reader
        assert reader is not None, "acquire first"
        try:
            changes = yield from self._read(reader, block_ms)
        except Expired as error:
            log.warning("%s: %s; listing the store", self._title, error)
            yield from self._lost_rows.find(reader.after)
            yield from self._catch_up(after=reader.after)
            return 0
        if reader.after != self._position:
            yield from self._write_all(self._lost_rows.watch(self._rounds_of(changes, reader)))
        yield from self._lost_rows.remove()
        return len(changes)

    def _read(self, reader: ChangeReader[Event], block_ms: int) -> Waits[Sequence[Change[Event]]]:
        """Read the next changes. If the last read found none, first let them collect, if the sink prefers that."""
        if (yield from self._lease.wait(max(0.0, self._collect_until - self._clock.monotonic()))):
            raise ExportStopped
        changes = reader.read(block_ms)
        if self._collect_s and not changes:
            self._collect_until = self._clock.monotonic() + self._collect_s
        return changes

    def _rounds_of(self, changes: Sequence[Change[Event]], reader: ChangeReader[Event]) -> Iterator[Round]:
        """Yield the rounds of *changes*, the last read of *reader*."""
        coalesce, most = self._options.outage is Outage.PAUSE, self._options.batch_events
        # Without changes, one empty round stores the new position.
        *former, last = make_rounds(changes, coalesce=coalesce, most=most) or [[]]
        for deliveries in former:
            yield Round(deliveries=deliveries)
        yield Round(deliveries=last, position=reader.after)

    def _write_all(self, rounds: Iterable[Round]) -> Waits[None]:
        """Write *rounds* one after another, and store the results of each before the next is read.

        Raises: ExportStopped: some are not written; SinkGone, LeaseLost, and the errors of *rounds*.
        """
        for round_ in rounds:
            yield from self._write(round_)

    def _write(self, round_: Round) -> Waits[None]:
        settled = ExportCheckpoint(done=list(round_.done))
        deliveries = list(self._filter.select(round_.deliveries, settled))
        figures, kept_at = self.figures, self._clock.monotonic()
        figures.pending = len(deliveries)

        def settle(outcome: Outcome) -> Waits[None]:
            nonlocal settled, kept_at
            failpoint("written")
            self._progress.settled(outcome, settled)
            if self._clock.monotonic() - kept_at >= KEEP_EVERY_S:
                yield from self._store_checkpoint(settled)
                settled, kept_at = ExportCheckpoint(), self._clock.monotonic()

        yield from self._writer.write(deliveries, settle)
        if figures.pending:
            yield from self._store_checkpoint(settled)
            raise ExportStopped
        for delivery in round_.deliveries:
            if delivery.forget:
                settled.returned[delivery.key] = None
                settled.done.append(delivery.key)
            elif delivery.waited and delivery.key not in settled.later:
                settled.done.extend(delivery.waited)
        self._progress.round_done(settled)
        settled.position = round_.position
        failpoint("settled")
        yield from self._store_checkpoint(settled)
        failpoint("kept")

    def _catch_up(self, *, after: int = 0, start: Start = BEGINNING) -> Waits[None]:
        """Write the stored events that changed after version *after*.

        The next read continues from the version that the store had before this list.
        """
        self.figures.lists += 1
        newest = self._store.newest_version()
        deliveries = (
            SinkDelivery(key=member[-ID_CHARS:].decode(), event=event, verb=Verb.UPDATE)
            for member, event in self._scan(after)
            if start.takes(event)
        )
        chunks = iter(lambda: list(islice(deliveries, self._options.batch_events)), [])
        yield from self._write_all(self._lost_rows.watch(Round(deliveries=chunk) for chunk in chunks))
        lost = self._lost_rows.note
        yield from self._store_checkpoint(ExportCheckpoint(position=newest, raised={"lists": 1}, figures=lost))
        self._read_from(newest)
        yield from self._lost_rows.remove()

    def _scan(self, after: int) -> Iterator[tuple[bytes, Event]]:
        """Read the stored events that changed after version *after*, with their index members."""
        index = self._storage.index(self._partition, Selection(EVENT, ListOptions()))
        # Do not read ahead: during the sink's write, the connection would be idle with an unread answer, and Redis
        # might close it.
        pages = scan(self._bus, self.client, self._storage, self._partition, index, ahead=False)
        for member, event in chain.from_iterable(pages):
            if int(event.metadata.resource_version) > after:
                yield member, event

    def _stored_after(self, after: int) -> Iterator[Event]:
        return (event for _, event in self._scan(after))

    def _read_from(self, position: int) -> None:
        self._position = position
        self._reader = ChangeReader(
            bus=self._bus, client=self.client, storage=self._storage, partition=self._partition, after=position
        )

    def _wait_for_rate(self, events: int) -> Waits[bool]:
        """Wait until the rate limit lets *events* pass. True: stop."""
        return self._stop.is_set() or (yield from self._lease.wait(self._rate.take(events)))

    def _store_checkpoint(self, settled: ExportCheckpoint) -> Waits[None]:
        """Store *settled*. The sink has the events already, so wait while Redis is away. Raises: LeaseLost."""
        failures = 0
        while True:
            try:
                ours = self._store.settle(settled)
                self._redis.answered()
                if not ours:
                    raise LeaseLost
                if settled.position is not None:
                    self._position = settled.position
                return
            except (BusUnavailable, PasswordRefused) as error:
                if isinstance(error, FunctionsMissing) and self._open_again():
                    continue
                self._lease.last_progress = self._clock.monotonic()
                self._redis.failed(error)
                failures += 1
                if (yield KEEP_BACKOFF.pause_s(failures, self._uniform)):  # True: stop
                    raise

    def _failed(self, error: EventBusError) -> float:
        self._redis.failed(error)
        self._let_go()
        if isinstance(error, FunctionsMissing | OtherBus):
            self._open_again()
        return BACKOFF.pause_s(self._redis.failures, self._uniform)

    def _open_again(self) -> bool:
        """Open the partition, which loads functions that are missing. False: it cannot be done now."""
        try:
            self._bus.open_partition(self.client, self._partition)
        except EventBusError as error:
            if not isinstance(error, BusUnavailable):  # an outage is logged already
                log.warning("%s: %s", self._title, error)
            return False
        return True

    def _let_go(self) -> None:
        self._progress.end()
        self._reader = None
        self._lost_rows.forget()

    def close(self) -> None:
        """End a suspended turn, release the lease, and close the sink. `run` calls this at its end."""
        self.stop()
        while self._under_way is not None:
            self.turn()
        if self.figures.holds:
            self._lease.release()
        self._let_go()
        if not self._shared:
            close_sink(self._sink)
        self._lease.close()
        self.client.close()

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000


def close_sink(sink: EventSink) -> None:
    """Close *sink*; an error is logged."""
    try:
        sink.close()
    except Exception:
        log.exception("sink %s does not close", sink.name)
