"""Runs the exports to one sink: one exporter for each partition, with its own sink object, in a few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from eventbus.broker.bus import Bus
from eventbus.broker.health.export_status import describe_missing, partitions_without_worker
from eventbus.broker.health.status import HEARTBEAT_S, read_beats
from eventbus.consume.consumer import consumer_name
from eventbus.consume.group_runner import LoopRunner, PartitionLoop
from eventbus.consume.health import LoopHealth
from eventbus.consume.housekeeper import Housekeeper
from eventbus.consume.poller import POLLERS
from eventbus.errors import EventBusError
from eventbus.export.exporter import PartitionExporter
from eventbus.export.options import ExportOptions
from eventbus.export.poller import ExportPoller
from eventbus.export.rate import RateLimit
from eventbus.export.sinks.contract import EventSink
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: The seconds between two checks for sink workers: at first, because workers are started together, and later.
FIRST_LOOK_S, LOOK_EVERY_S = 3.0, 10.0
#: While there are none, one check in so many is logged, from the second one on. After an outage of Redis, a sink worker
#: may wait up to 10 s before it is back.
TELL_EVERY_LOOKS = 6


class ExportRunner(LoopRunner):
    """Exporters of one sink, one a partition, the housekeeping, and a watch on the sink workers.

    With one partition, its exporter has its own thread; with several, the exporters share POLLERS threads.

    Args: make_sink: called once for each partition, in the thread that constructs the runner.
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
        name: str = "",
        on_change: Callable[[str, str], None] = lambda _reason, _message: None,
        on_gone: Callable[[], None] = lambda: None,
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
                rate=rate,
                calling=poller.calling if poller else None,
                on_change=on_change,
                on_gone=on_gone,
            )

        if bus.partitions == 1:
            loops = self.exporters = [make(0)]
        else:
            loops = pollers = [
                ExportPoller(clock=clock, block_ms=block_ms) for _ in range(min(POLLERS, bus.partitions))
            ]
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
        looks = MissingWorkerLooks(self._bus.partitions)
        try:
            while not self._stop.wait(LOOK_EVERY_S if looks.unfed else FIRST_LOOK_S):
                try:
                    before = read_beats(client, self._bus.keys)
                    if self._stop.wait(HEARTBEAT_S):
                        return
                    found = partitions_without_worker(before, read_beats(client, self._bus.keys))
                except EventBusError:
                    found = []  # the exporters say that Redis is away
                if warning := looks.add(found):
                    log.warning(warning)
        finally:
            client.close()


class MissingWorkerLooks:
    """Debounces warnings: a partition without a sink worker is reported after two consecutive looks."""

    def __init__(self, partitions: int) -> None:
        self.unfed: list[int] = []  #: at the last look
        self._partitions = partitions
        self._looks = 0  # so many in a row for which it was so at the one before too

    def add(self, unfed: list[int]) -> str:
        """Add one more look, which found *unfed*. Returns the text of a warning, mostly ""."""
        twice = [partition for partition in unfed if partition in self.unfed]
        self.unfed = unfed
        self._looks = self._looks + 1 if twice else 0
        return describe_missing(twice, self._partitions) if self._looks % TELL_EVERY_LOOKS == 1 else ""
