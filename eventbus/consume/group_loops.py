"""The loops of one worker of a group: one consumer thread on a bus of one partition, else lanes."""

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

#: Threads that work partitions, at most. More threads would only take turns in one Python process. With four, a slow
#: handler delays no more than a fourth of the partitions.
LANES = 4


class GroupLoops:
    """The loops that a `GroupRunner` starts and ends for one worker of a group.

    On a bus of one partition all workers work this one, as members of a consumer group. With more partitions, each
    worker has a share, which changes when workers join and leave. It has at most LANES threads, and one for heartbeats.

    Args: handlers: makes `handle` and `handle_alone` for a partition's consumer; called again if the partition comes
          back.  trial: see `Consumer`.  name: the worker's, and that of all its consumers.
          on_change: called with LostRedis and Reconnected, in the threads of the loops.
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
        self.partitions: Callable[[], Collection[int]]  #: its current share
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
            make=lambda partition: make(partition, "0"),  # the keeper has made the group at its start
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
