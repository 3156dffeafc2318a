"""Runs the store's sink worker as threads of this process: one a partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eventbus.broker.bus import Bus
from eventbus.broker.stream import GroupReader
from eventbus.clock import Clock
from eventbus.consume.group_consumer import TAKE_OVER_S, consumer_name
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.housekeeper import Housekeeper
from eventbus.correlate.store_sink import sink_consumer


def _enforce_bounds(housekeeper: Housekeeper, partition: int, reader: GroupReader) -> None:
    housekeeper.enforce_bounds(reader.client, partition)


class SinkRunner(GroupRunner):
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
        housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change)
        consumers = [
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
        super().__init__("sink", consumers, beside=[housekeeper])
