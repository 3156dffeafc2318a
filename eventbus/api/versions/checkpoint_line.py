"""The line of checkpoints of a bus of several partitions: which number a change has, and where a number stands.

A checkpoint has a number and the versions of all partitions. None is lower than in the one before, and the number grows
by as much as their sum does. Between two of them changes are ordered by partition and version; so every change has one
number, the same in every process that knows the checkpoints.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from eventbus.errors import Expired
from eventbus.store.changes import AheadOfStore

Vector: TypeAlias = tuple[int, ...]


class CheckpointLine:
    """The checkpoints from the oldest that is kept to the newest known. Not thread-safe.

    *epoch* grows if the line was started again, or was trimmed beyond the known part: then no watch can resume.
    """

    def __init__(self, partitions: int) -> None:
        self.epoch = 0
        self._numbers = array("q")
        self._columns = [array("q") for _ in range(partitions)]  # the versions of a partition, by checkpoint

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def newest(self) -> int:
        """The number of the newest checkpoint."""
        return self._numbers[-1]

    @property
    def versions(self) -> Vector:
        """The versions of the newest checkpoint."""
        return self._at(len(self) - 1)

    @property
    def base(self) -> int:
        """The excess of the versions' sum over the number, the same all along the line."""
        return sum(self.versions) - self.newest

    def take(self, oldest: int, entries: Sequence[tuple[int, Vector]]) -> None:
        """Append *entries* newer than the newest checkpoint, and drop checkpoints older than *oldest*."""
        if len(self) and oldest > self.newest:
            self._drop(len(self))
            self.epoch += 1
        for number, versions in entries:
            if not len(self) or number > self.newest:
                self._numbers.append(number)
                for column, version in zip(self._columns, versions, strict=True):
                    column.append(version)
        if entries:
            self._drop(min(bisect_left(self._numbers, oldest), len(self) - 1))

    def covers(self, versions: Sequence[int]) -> bool:
        """Return True if the newest checkpoint is at or after *versions*."""
        return bool(len(self)) and all(
            column[-1] >= version for column, version in zip(self._columns, versions, strict=True)
        )

    def number(self, partition: int, version: int) -> int:
        """Return the number of a covered change. Up to the oldest checkpoint: that checkpoint's number minus 1."""
        place = bisect_left(self._columns[partition], version)
        if place == 0:
            return self._numbers[0] - 1
        before = sum(column[place] - column[place - 1] for column in self._columns[:partition])
        return self._numbers[place - 1] + before + version - self._columns[partition][place - 1]

    def position(self, number: int) -> Vector:
        """Return the position after all changes up to *number*. Raises: Expired: it is not on this line."""
        if not self._numbers[0] <= number <= self.newest:
            if number > self.newest:
                raise AheadOfStore(str(number), str(self.newest))
            raise Expired(f"too old resource version: {number} ({self._numbers[0]})")
        place = bisect_left(self._numbers, number)
        if self._numbers[place] == number:
            return self._at(place)
        remaining, position = number - self._numbers[place - 1], []
        for column in self._columns:
            step = min(remaining, column[place] - column[place - 1])
            position.append(column[place - 1] + step)
            remaining -= step
        return tuple(position)

    def behind(self, versions: Sequence[int]) -> Iterator[Vector]:
        """Iterate over the checkpoints after a position, the oldest first."""
        place = max(bisect_left(column, version) for column, version in zip(self._columns, versions, strict=True))
        for later in range(place, len(self)):
            checkpoint = self._at(later)
            if checkpoint != tuple(versions):
                yield checkpoint

    def first_covering(self, versions: Sequence[int]) -> Vector:
        """Return the oldest checkpoint at or after *versions*, which must be covered."""
        return self._at(
            max(bisect_left(column, version) for column, version in zip(self._columns, versions, strict=True))
        )

    def _at(self, place: int) -> Vector:
        return tuple(column[place] for column in self._columns)

    def _drop(self, count: int) -> None:
        del self._numbers[:count]
        for column in self._columns:
            del column[:count]
