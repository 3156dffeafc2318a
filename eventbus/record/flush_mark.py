"""A mark in the outbox's buffer that a flush waits for."""

from __future__ import annotations

from collections.abc import Sequence

from eventbus.record.latch import Latch
from eventbus.record.producer import Producer


class FlushMark:
    """A mark in the buffer: *done* once everything before it is *accepted*, or given up."""

    __slots__ = ("accepted", "added", "done", "put_at")

    def __init__(self, put_at: float) -> None:
        self.put_at = put_at
        self.done = Latch()
        self.accepted = False
        self.added: list[int] = []  # how many events each producer had been given before it

    def reached(self, producers: Sequence[Producer]) -> bool:
        """Return True if all waiting events were added after the mark."""
        return all(
            producer.pending <= producer.added - added for producer, added in zip(producers, self.added, strict=True)
        )
