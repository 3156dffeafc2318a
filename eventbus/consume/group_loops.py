"""The loops of one worker of a group: a consumer in a thread of its own on a bus of one partition, else lanes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from eventbus.broker.bus import Bus
from eventbus.broker.function_values import GroupPolicy
from eventbus.broker.stream_reader import GroupReader
from eventbus.clock import Clock
from eventbus.consume.group_consumer import Consumer, Handle
from eventbus.consume.group_runner import PartitionLoop, Runner
from eventbus.consume.health import LoopHealth
from eventbus.consume.isolation import HandleAlone
from eventbus.consume.lane import Lane
from eventbus.consume.share_keeper import ShareKeeper
from eventbus.consume.take_over import TAKE_OVER_S

#: Threads that work partitions, at most: more would only take turns in one Python process, and a handler that waits
#: for something else keeps no more than a fourth of the partitions waiting.
LANES = 4


class GroupLoops:
    """The loops that a `GroupRunner` starts and ends for one worker of a group.

    On a bus of one partition all workers work that one, as members of a consumer group. With more partitions, each
    worker has a share, which changes when workers come and go, in no more than LANES threads and one for heartbeats.

    Args: handlers: makes what a partition's consumer calls, `handle` and `handle_alone`; called again for a partition
          that comes back.  trial: see `Consumer`.  name: of the worker, which all its consumers have.
          on_change: told LostRedis and Reconnected, from the threads of the loops.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        group: str,
        name: str,
        clock: Clock,
        block_ms: int,
        handlers: Callable[[int], tuple[Handle, HandleAlone]],
        trial: Callable[[GroupReader], object] = lambda _reader: None,
        take_over_s: float = TAKE_OVER_S,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
        on_change: Callable[[str, str], None] = lambda _reason, _message: None,
    ) -> None:
        def make(partition: int, start: str) -> Consumer:
            handle, handle_alone = handlers(partition)
            return Consumer(
                bus=bus,
                partition=partition,
                group=group,
                name=name,
                handle=handle,
                handle_alone=handle_alone,
                trial=trial,
                clock=clock,
                policy=policy,
                start=start,
                block_ms=block_ms,
                take_over_s=take_over_s,
                on_change=on_change,
            )

        self.loops: Sequence[PartitionLoop]
        self.partitions: Callable[[], Collection[int]]  #: its share now
        self.beside: Sequence[Runner] = ()
        if bus.partitions == 1:
            only = make(0, start)
            self.loops = [only]
            self.ready, self.loop_health = only.ready, lambda: [only.loop_health()]
            self.partitions = lambda: (0,)
            return
        keeper = ShareKeeper(
            bus=bus,
            group=group,
            name=name,
            clock=clock,
            block_ms=block_ms,
            lanes=min(LANES, bus.partitions),
            make=lambda partition: make(partition, "0"),  # where the group begins, the keeper has said
            take_over_s=take_over_s,
            policy=policy,
            start=start,
        )
        self.loops, self.beside = keeper.lanes, [keeper]
        self.ready = keeper.ready
        self.loop_health = lambda: _health_of(keeper.lanes)
        self.partitions = lambda: keeper.partitions


def _health_of(lanes: Sequence[Lane]) -> list[LoopHealth]:
    return sorted((each for lane in lanes for each in lane.loop_health()), key=lambda each: each.partition)
