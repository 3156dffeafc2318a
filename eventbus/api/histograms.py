"""Counts how things are distributed, as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Histogram:
    """Counts values by the first of *bounds* that they do not exceed. Of one thread."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The samples of the metric *name*; *labels* as they stand between braces."""
        for bound, below in zip((*self._bounds, "+Inf"), accumulate(self._counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {below}'
        yield f"{name}_count{{{labels}}} {self.count}"
        yield f"{name}_sum{{{labels}}} {self._sum:.6f}"
