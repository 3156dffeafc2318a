"""The same three rounds for every peer: one call at a time, its documented batches, and filling a queue for a worker.

python -m benchmarks.peers.<module> calls|publish|fill|work EVENTS, in the peer's own environment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.meter import Meter, percentiles, report
from benchmarks.sample import pool

Document = dict[str, Any]
URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
#: How many events a worker is given.
TOTAL = int(os.environ.get("BENCH_TOTAL", "0"))
WARM = 200


class Publisher:
    """*one* publishes one event, *many* a batch of *size*; the ways are said in the table."""

    def __init__(
        self,
        *,
        one: Callable[[Document], Awaitable[object]],
        one_way: str,
        many: Callable[[Sequence[Document]], Awaitable[object]],
        many_way: str,
        size: int,
    ) -> None:
        self._one, self._one_way = one, one_way
        self._many, self._many_way, self._size = many, many_way, size
        self._pool = pool()

    async def run(self) -> None:
        command, total = sys.argv[1], int(sys.argv[2])
        await {"calls": self._calls, "publish": self._batches, "fill": self._fill}[command](total)

    async def _calls(self, total: int) -> None:
        one, clock, times, meter = self._one, time.perf_counter_ns, [], Meter()
        for number in range(WARM):
            await one(self._pool[number])
        meter.start()
        for number in range(total):
            document = self._pool[number % len(self._pool)]
            start = clock()
            await one(document)
            times.append(clock() - start)
        report("call", self._one_way, **meter.stop(total), **percentiles(times))

    async def _batches(self, total: int) -> None:
        await self._fill(self._size)
        meter = Meter()
        meter.start()
        await self._fill(total)
        report("publish", self._many_way, **meter.stop(total))

    async def _fill(self, total: int) -> None:
        for start in range(0, total, self._size):
            numbers = range(start, min(start + self._size, total))
            await self._many([self._pool[number % len(self._pool)] for number in numbers])
