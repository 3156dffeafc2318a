"""Runs the loops of one worker, and their companions, as threads of this process.

The loops of a group's worker are one consumer on a bus of one partition, else pollers and a rebalancer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

from eventbus.broker.bus import Bus
from eventbus.broker.function_values import GroupPolicy
from eventbus.broker.stream_reader import GroupReader
from eventbus.consume.consumer import TAKE_OVER_S, Consumer, Handle, HandleAlone
from eventbus.consume.health import LoopHealth
from eventbus.consume.poller import POLLERS, ConsumerPoller
from eventbus.consume.rebalancer import Rebalancer
from eventbus.util.clock import Clock


class PartitionLoop(Protocol):
    """A loop that works one or several partitions in a thread of its own."""

    def run(self) -> None:
        """Run; blocks until `stop`."""
        ...

    def stop(self) -> None:
        """End after the delivery that is being handled; returns at once."""
        ...


class Runner(Protocol):
    """A component with threads of its own, from `start` until `stop`."""

    def start(self) -> None: ...

    def stop(self, timeout_s: float = 5.0) -> None: ...


def _run(loop: PartitionLoop) -> None:
    with suppress(SystemExit):  # of a handler, whose watcher stops
        loop.run()


class GroupRunner:
    """Starts a thread for each of *loops* and then *beside*, and ends them together, in that order.

    Args: what: names the threads, as `sink` in `eventbus-sink-0`.  loop_health: of each partition.
    """

    def __init__(
        self,
        what: str,
        loops: Sequence[PartitionLoop],
        *,
        beside: Sequence[Runner],
        loop_health: Callable[[], list[LoopHealth]] = list,
    ) -> None:
        self._loops = loops
        self._beside = beside
        self._loop_health = loop_health
        self._threads = [
            threading.Thread(target=_run, args=(loop,), name=f"eventbus-{what}-{number}", daemon=True)
            for number, loop in enumerate(loops)
        ]

    def start(self) -> None:
        """Start the threads; returns at once."""
        for thread in self._threads:
            thread.start()
        for companion in self._beside:
            companion.start()

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each partition's loop. Safe to call from any thread."""
        return self._loop_health()

    @property
    def ended(self) -> bool:
        """Return True if no loop runs: none was started, or all have ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop after the deliveries that are being handled; waits at most *timeout_s* (0: not at all). Idempotent."""
        deadline = time.monotonic() + timeout_s
        for loop in self._loops:
            loop.stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        for companion in self._beside:
            companion.stop(max(0.0, deadline - time.monotonic()))


class GroupLoops:
    """The loops that a `GroupRunner` starts and ends for one worker of a group.

    On a bus of one partition all workers work this one, as members of a consumer group. With more partitions, each
    worker has a share, which changes when workers join and leave. It has at most POLLERS threads and one for
    heartbeats.

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
        trial: Callable[[GroupReader], object] | None = None,
        take_over_s: float = TAKE_OVER_S,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
        on_change: Callable[[str, str], None] | None = None,
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
        rebalancer = Rebalancer(
            bus=bus,
            group=group,
            name=name,
            clock=clock,
            block_ms=block_ms,
            pollers=min(POLLERS, bus.partitions),
            make=lambda partition: make(partition, "0"),  # the rebalancer has made the group at its start
            take_over_s=take_over_s,
            policy=policy,
            start=start,
        )
        self.loops, self.beside = rebalancer.pollers, [rebalancer]
        self.ready = rebalancer.ready
        self.loop_health = lambda: _health_of(rebalancer.pollers)
        self.partitions = lambda: rebalancer.partitions


def _health_of(pollers: Sequence[ConsumerPoller]) -> list[LoopHealth]:
    return sorted((each for poller in pollers for each in poller.loop_health()), key=lambda each: each.partition)
