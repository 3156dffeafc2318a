"""Runs the exports to one sink: one exporter for each partition, with its own sink object, in a few threads.

`consume/poller.py` does the waiting. `ExportPoller` adds turns, with one call of a sink at a time, and the heartbeats
of all leases during that call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eventbus.broker.bus import Bus
from eventbus.broker.connection.plain_client import REPLY_S
from eventbus.broker.health.export_status import describe_missing, partitions_without_worker
from eventbus.broker.health.status import HEARTBEAT_S, read_beats
from eventbus.broker.stream_reader import BlockingRead
from eventbus.consume.consumer import consumer_name
from eventbus.consume.group_runner import LoopRunner, PartitionLoop
from eventbus.consume.heartbeat import Heartbeat, LoopHealth
from eventbus.consume.housekeeper import Housekeeper
from eventbus.consume.poller import POLLERS, Poller, Slot
from eventbus.errors import EventBusError
from eventbus.export.exporter import PartitionExporter, close_sink
from eventbus.export.lease import LONGEST_CALL_S
from eventbus.export.rules import ExportOptions, RateLimit
from eventbus.export.sinks.contract import EventSink
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: The seconds between two checks for sink workers: at first, because workers are started together, and later.
FIRST_CHECK_S, CHECK_EVERY_S = 3.0, 10.0
#: While there are none, one check in so many is logged, from the second one on. After an outage of Redis, a sink worker
#: may wait up to 10 s before it is back.
WARN_EVERY_CHECKS = 6


class ExportRunner(LoopRunner):
    """Exporters of one sink, one a partition, the housekeeping, and a watch on the sink workers.

    With one partition, its exporter has its own thread; with several, the exporters share POLLERS threads.

    Args: make_sink: called once for each partition, in the thread that constructs the runner.
          shared: *make_sink* returns the same sink each time, so that all exporters share one thread.
          on_gone: called from one of its threads when the sink is gone permanently.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        make_sink: Callable[[], EventSink],
        clock: Clock,
        options: ExportOptions,
        block_ms: int,
        shared: bool = False,
        name: str = "",
        on_change: Callable[[str, str], None] | None = None,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        consumer = name or consumer_name()
        loops: Sequence[PartitionLoop]
        rate = RateLimit(options.rate_per_s, clock)

        def make(partition: int, poller: ExportPoller | None = None) -> PartitionExporter:
            return PartitionExporter(
                bus=bus,
                partition=partition,
                sink=make_sink(),
                consumer=consumer,
                clock=clock,
                options=options,
                block_ms=block_ms,
                shared=shared and poller is not None,
                rate=rate,
                calling=poller.calling if poller else None,
                on_change=on_change,
                on_gone=on_gone,
            )

        if bus.partitions == 1:
            loops = self.exporters = [make(0)]
        else:
            threads = 1 if shared else min(POLLERS, bus.partitions)
            sink = make_sink() if shared else None
            loops = pollers = [ExportPoller(clock=clock, block_ms=block_ms, sink=sink) for _ in range(threads)]
            self.exporters = [make(number, pollers[number % len(pollers)]) for number in range(bus.partitions)]
            for number, exporter in enumerate(self.exporters):
                pollers[number % len(pollers)].add(exporter)
        housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change)
        super().__init__("export", loops, [housekeeper, _SinkWorkerMonitor(bus)])

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each partition's exporter. Safe to call from any thread."""
        return [exporter.loop_health() for exporter in self.exporters]


class _SinkWorkerMonitor:
    """Warns while a partition has no living sink worker: then nothing is correlated, and no sink gets anything."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventbus-export-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        client = self._bus.client(name="eventbus-export-feed")
        missing = MissingWorkers(self._bus.partitions)
        try:
            while not self._stop.wait(CHECK_EVERY_S if missing.partitions else FIRST_CHECK_S):
                try:
                    before = read_beats(client, self._bus.keys)
                    if self._stop.wait(HEARTBEAT_S):
                        return
                    unfed = partitions_without_worker(before, read_beats(client, self._bus.keys))
                except EventBusError:
                    unfed = []  # the exporters report that Redis is away
                if warning := missing.add(unfed):
                    log.warning(warning)
        finally:
            client.close()


class MissingWorkers:
    """Debounces warnings: a partition without a sink worker is reported after two consecutive checks."""

    def __init__(self, partitions: int) -> None:
        self.partitions: list[int] = []  #: without a worker at the last check
        self._of = partitions
        self._checks = 0  # in a row, with a partition that had no worker twice

    def add(self, partitions: list[int]) -> str:
        """Add the result of one more check. Return the text of a warning, mostly ""."""
        twice = [partition for partition in partitions if partition in self.partitions]
        self.partitions = partitions
        self._checks = self._checks + 1 if twice else 0
        return describe_missing(twice, self._of) if self._checks % WARN_EVERY_CHECKS == 1 else ""


class ExportPoller:
    """Runs several exporters in one thread until `stop`. Call `run` in its own thread; it also closes the exporters.

    A partition that waits for an unreachable sink, a retry or its rate limit does not delay the others. But a call of a
    sink delays the other partitions of this thread until it returns or times out. During the call, another thread sends
    the heartbeats of all leases.

    Its exporters call their sink inside `calling`.

    Args: sink: one that all exporters share; it is closed after them.
    """

    def __init__(self, *, clock: Clock, block_ms: int, sink: EventSink | None = None) -> None:
        self._sink = sink
        self._block_ms = block_ms
        self._slots: list[_ExportSlot] = []
        self._stop = threading.Event()
        self._turn: _ExportSlot | None = None
        self._steps = 0  #: counts every step of the loop, as progress for the heartbeat
        self._heartbeat = Heartbeat(self._beat, clock=clock, hung_s=LONGEST_CALL_S, progress=lambda: self._steps)
        self._poller = Poller(time.monotonic)

    def add(self, exporter: PartitionExporter) -> None:
        """Run *exporter* too; before `run`."""
        self._slots.append(_ExportSlot(exporter))

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Allow heartbeats for the exporter of the current turn while the body does not use Redis."""
        slot = self._turn
        assert slot is not None
        self._steps += 1
        slot.lock.release()
        try:
            yield
        finally:
            slot.lock.acquire()

    def stop(self) -> None:
        """End after the call to the sink that is under way; returns at once."""
        self._stop.set()
        for slot in self._slots:
            slot.exporter.stop()
        self._poller.wake()

    def run(self) -> None:
        """The loop. Blocks until `stop`, or until all have ended."""
        try:
            with self._heartbeat.working():
                while self._slots and not self._stop.is_set():
                    for slot in list(self._slots):
                        if slot.reads_until is None and slot.due <= time.monotonic():
                            self._advance(slot)
                    if self._slots:
                        replied, late = self._poller.poll(self._slots)
                        for slot in replied:
                            slot.take_change()
                        for slot in late:  # the exporter's next turn reports the error
                            slot.stop_waiting()
        finally:
            self._heartbeat.stop()
            for slot in self._slots:
                self._turn = slot
                slot.close()
            if self._sink is not None:
                close_sink(self._sink)
            self._poller.close()

    def _advance(self, slot: _ExportSlot) -> None:
        if self._stop.is_set():
            return
        self._steps += 1
        self._turn = slot
        with slot.lock:
            goes_on = slot.go_on(self._block_ms)
        if not goes_on:
            self._slots.remove(slot)
            slot.close()  # it has its turn still

    def _beat(self) -> None:
        for slot in list(self._slots):
            if slot.lock.acquire(blocking=False):  # else it is using Redis, or sends its own heartbeats
                try:
                    slot.exporter.beat()
                finally:
                    slot.lock.release()


class _ExportSlot(Slot):
    """An exporter in a poller: its turn is when it is due; while it has nothing to do, as soon as something changes."""

    def __init__(self, exporter: PartitionExporter) -> None:
        super().__init__()
        self.exporter = exporter
        #: Held while its connection is in use: by a turn outside sink calls, or by a heartbeat.
        self.lock = threading.Lock()
        self._changes = BlockingRead(exporter.client, exporter.changes_key)

    def fileno(self) -> int:
        return self._changes.fileno()

    def go_on(self, block_ms: int) -> bool:
        """One turn. Returns False if it was the last."""
        pause_s = self.exporter.turn()
        if pause_s is None:
            return False
        self.due = time.monotonic() + pause_s
        if self.exporter.idle:
            self._wait_for_change(block_ms)
        return True

    def take_change(self) -> None:
        """Note that something was written, the wait is over, or the connection is lost: its turn is next."""
        self.due = 0.0
        try:
            self._changes.reply()
        except EventBusError as error:
            log.debug("a wait for changes was cut off: %s", error)

    def stop_waiting(self) -> None:
        """Abandon a wait for changes that Redis does not answer: its turn is next."""
        self.due = 0.0
        self._changes.close()

    def close(self) -> None:
        with self.lock:
            self._changes.close()
            self.exporter.close()

    def _wait_for_change(self, block_ms: int) -> None:
        until = time.monotonic() + block_ms / 1000
        try:
            self._changes.send(*self.exporter.wait_command(block_ms))
        except EventBusError as error:
            log.debug("cannot wait for changes: %s", error)
            self.due = until
        else:
            self.reads_until = until + REPLY_S
