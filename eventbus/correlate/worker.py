"""The store's sink worker as threads of this process."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.broker.bus import Bus
from eventbus.broker.keys import SINK_GROUP
from eventbus.clock import Clock
from eventbus.consume.group_consumer import Consumer, consumer_name
from eventbus.consume.group_loops import GroupLoops
from eventbus.consume.group_runner import GroupRunner
from eventbus.consume.housekeeper import Housekeeper
from eventbus.consume.take_over import TAKE_OVER_S
from eventbus.correlate.store_sink import sink_consumer


class SinkRunner(GroupRunner):
    """A worker of the group `sink`, and the housekeeping that goes with it."""

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

        def make(partition: int, _start: str) -> Consumer:
            return sink_consumer(
                bus=bus,
                partition=partition,
                name=name,
                clock=clock,
                block_ms=block_ms,
                take_over_s=take_over_s,
                on_change=on_change,
                enforce_bounds=lambda reader: housekeeper.enforce_bounds(reader.client, partition),
            )

        group = GroupLoops(
            bus=bus, group=SINK_GROUP, name=name, clock=clock, block_ms=block_ms, make=make, take_over_s=take_over_s
        )
        housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change, partitions=group.partitions)
        super().__init__("sink", group.loops, beside=[*group.beside, housekeeper], loop_health=group.loop_health)
