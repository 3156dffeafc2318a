"""The store's sink worker as threads of this process."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.broker.bus import Bus
from eventbus.broker.keys import SINK_GROUP
from eventbus.consume.consumer import TAKE_OVER_S, Handle, HandleAlone, consumer_name
from eventbus.consume.group_runner import GroupLoops, GroupRunner
from eventbus.consume.housekeeper import Housekeeper
from eventbus.correlate.store_sink import StoreSink, store_nothing
from eventbus.util.clock import Clock


class SinkRunner(GroupRunner):
    """Runs a worker of the group `sink` and its housekeeping."""

    def __init__(
        self,
        *,
        bus: Bus,
        clock: Clock,
        block_ms: int,
        name: str = "",
        take_over_s: float = TAKE_OVER_S,
        on_change: Callable[[str, str], None] | None = None,
    ) -> None:
        def handlers(partition: int) -> tuple[Handle, HandleAlone]:
            sink = StoreSink(bus, partition, lambda reader: housekeeper.enforce_bounds(reader.client, partition))
            return sink.handle, sink.handle_alone

        group = GroupLoops(
            bus=bus,
            group=SINK_GROUP,
            name=name or consumer_name(),
            clock=clock,
            block_ms=block_ms,
            handlers=handlers,
            trial=store_nothing,
            take_over_s=take_over_s,
            on_change=on_change,
        )
        housekeeper = Housekeeper(bus=bus, clock=clock, on_loss=on_change, partitions=group.partitions)
        super().__init__("sink", group.loops, beside=[*group.beside, housekeeper], loop_health=group.loop_health)
