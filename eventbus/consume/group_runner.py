"""Runs the loops of one worker, and their companions, as threads of this process.

`GroupRunner` runs a worker of a consumer group, `LoopRunner` any other loops, such as exporters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

from eventbus.broker.bus import Bus
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import GroupReader
from eventbus.consume.consumer import TAKE_OVER_S, Consumer, Handle, HandleAlone, consumer_name
from eventbus.consume.heartbeat import LoopHealth
from eventbus.consume.housekeeper import Housekeeper
from eventbus.consume.poller import POLLERS
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
    with suppress(SystemExit):  # of a handler: its watcher stops
        loop.run()


class LoopRunner:
    """Starts a thread for each of *loops* and then *companions*, and ends them together, in that order.

    Args: name: of the threads, as `export` in `eventbus-export-0`.
    """

    def __init__(self, name: str, loops: Sequence[PartitionLoop], companions: Sequence[Runner]) -> None:
        self._loops = loops
        self._companions = companions
        self._threads = [
            threading.Thread(target=_run, args=(loop,), name=f"eventbus-{name}-{number}", daemon=True)
            for number, loop in enumerate(loops)
        ]

    def start(self) -> None:
        """Start the threads; returns at once."""
        for thread in self._threads:
            thread.start()
        for companion in self._companions:
            companion.start()

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
        for companion in self._companions:
            companion.stop(max(0.0, deadline - time.monotonic()))


class GroupRunner(LoopRunner):
    """One worker of a group.

    On a bus of one partition it is one `Consumer`, and all workers of the group work this partition. With more
    partitions, each worker has a share, which changes when workers join and leave: a `Rebalancer` gives its partitions
    to at most POLLERS `ConsumerPoller`s.

    Args: name: the worker's, and that of all its consumers; "": a new one.
          handlers: returns `handle` and `handle_alone` for a partition's consumer; called again if it comes back.
          housekeeper: runs as long as the worker.  trial: see `Consumer`.
          on_change: called with LostRedis and Reconnected, in the threads of the loops.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        group: str,
        clock: Clock,
        block_ms: int,
        handlers: Callable[[int], tuple[Handle, HandleAlone]],
        housekeeper: Housekeeper | None = None,
        name: str = "",
        trial: Callable[[GroupReader], object] | None = None,
        take_over_s: float = TAKE_OVER_S,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
        on_change: Callable[[str, str], None] | None = None,
    ) -> None:
        name = name or consumer_name()

        def make(partition: int, start: str = "0") -> Consumer:
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

        loops: Sequence[PartitionLoop]
        companions: list[Runner] = [housekeeper] if housekeeper else []
        self._rebalancer: Rebalancer | None = None
        if bus.partitions == 1:
            self._consumer = make(0, start)
            loops, self.ready = [self._consumer], self._consumer.ready
        else:
            self._rebalancer = Rebalancer(
                bus=bus,
                group=group,
                name=name,
                clock=clock,
                block_ms=block_ms,
                pollers=min(POLLERS, bus.partitions),
                make=make,
                take_over_s=take_over_s,
                policy=policy,
                start=start,
            )
            loops, self.ready = self._rebalancer.pollers, self._rebalancer.ready
            companions.insert(0, self._rebalancer)
        super().__init__(group, loops, companions)

    @property
    def partitions(self) -> Collection[int]:
        """Return its current share."""
        return self._rebalancer.partitions if self._rebalancer else (0,)

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of each partition's loop. Safe to call from any thread."""
        if self._rebalancer is None:
            return [self._consumer.loop_health()]
        healths = (health for poller in self._rebalancer.pollers for health in poller.loop_health())
        return sorted(healths, key=lambda health: health.partition)
