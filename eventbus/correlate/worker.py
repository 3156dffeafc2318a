"""Runs the store's sink worker as threads of this process: one a partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from eventbus.broker.bus import Bus
from eventbus.broker.stream import GroupReader
from eventbus.clock import Clock
from eventbus.consume.group_consumer import TAKE_OVER_S, consumer_name
from eventbus.consume.health import LoopHealth
from eventbus.consume.housekeeper import Housekeeper
from eventbus.correlate.store_sink import sink_consumer


def _enforce_bounds(housekeeper: Housekeeper, partition: int, reader: GroupReader) -> None:
    housekeeper.enforce_bounds(reader.client, partition)


class SinkRunner:
    """Consumers of the group `sink`, one a partition, and the housekeeping that goes with them."""

    def __init__(
        self,
        *,
        bus: Bus,
        clock: Clock,
        block_ms: int,
        name: str = "",
        take_over_s: float = TAKE_OVER_S,
        on_change: Callable[[str, str], None] = lambda _reason, _message: None,
    ) -> None:
        name = name or consumer_name()
        housekeeper = self._housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change)
        self._consumers = [
            sink_consumer(
                bus=bus,
                partition=partition,
                name=name,
                clock=clock,
                block_ms=block_ms,
                take_over_s=take_over_s,
                on_change=on_change,
                enforce_bounds=partial(_enforce_bounds, housekeeper, partition),
            )
            for partition in range(bus.partitions)
        ]
        self._threads = [
            threading.Thread(target=consumer.run, name=f"eventbus-sink-{partition}", daemon=True)
            for partition, consumer in enumerate(self._consumers)
        ]

    def start(self) -> None:
        """Start the threads; returns at once."""
        for thread in self._threads:
            thread.start()
        self._housekeeper.start()

    def vitals(self) -> list[LoopHealth]:
        """Return the health of each consumer; safe to call from any thread."""
        return [consumer.vitals() for consumer in self._consumers]

    def stop(self, timeout_s: float = 5.0) -> None:
        """Finish what is being recorded, then stop; waits for at most *timeout_s* (0: only signals). Idempotent."""
        for consumer in self._consumers:
            consumer.stop()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._housekeeper.stop(max(0.0, deadline - time.monotonic()))
