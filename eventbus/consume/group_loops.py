"""The loops of one worker of a group: a consumer in a thread of its own on a bus of one partition, else lanes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from eventbus.broker.bus import Bus
from eventbus.broker.function_values import GroupPolicy
from eventbus.clock import Clock
from eventbus.consume.group_consumer import Consumer
from eventbus.consume.group_runner import Companion, PartitionLoop
from eventbus.consume.health import LoopHealth
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

    Args: make: makes the consumer of one partition, whose group begins at the second argument; all have one *name*.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        group: str,
        name: str,
        clock: Clock,
        block_ms: int,
        make: Callable[[int, str], Consumer],
        take_over_s: float = TAKE_OVER_S,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
    ) -> None:
        self.loops: Sequence[PartitionLoop]
        self.partitions: Callable[[], Collection[int]]  #: its share now
        self.beside: Sequence[Companion] = ()
        if bus.partitions == 1:
            only = make(0, start)
            self.loops = [only]
            self.ready, self.loop_health = only.ready, lambda: [only.loop_health()]
            self.partitions = lambda: (0,)
            return
        lock = threading.Lock()
        lanes = [
            Lane(clock=clock, block_ms=block_ms, lock=lock, on_stop=lambda: keeper.leave())
            for _ in range(min(LANES, bus.partitions))
        ]
        keeper = ShareKeeper(
            bus=bus,
            group=group,
            name=name,
            clock=clock,
            lanes=lanes,
            make=lambda partition: make(partition, "0"),  # where the group begins, the keeper has said
            lock=lock,
            take_over_s=take_over_s,
            policy=policy,
            start=start,
        )
        self.loops, self.beside = lanes, [keeper]
        self.ready = keeper.ready
        self.loop_health = lambda: _health_of(lanes)
        self.partitions = lambda: keeper.partitions


def _health_of(lanes: Sequence[Lane]) -> list[LoopHealth]:
    return sorted((each for lane in lanes for each in lane.loop_health()), key=lambda each: each.partition)


__all__ = ["LANES", "GroupLoops"]
