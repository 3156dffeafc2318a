"""Keeps what was encoded of objects that are listed again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")

#: Objects in one shape; a list more than twice as many may be kept: some 10 MB of events.
MOST: Final = 8192


class EncodedItems(Generic[V]):
    """Bytes, or pieces of them, by the object itself, not by its value: hashing an event costs as much as encoding it.

    The store gives the same object for the same stored bytes (`remembering`), so it is found again. Each entry
    holds its object, so no other has its id. Thread-safe: two threads may encode the same object, and agree.
    """

    def __init__(self) -> None:
        self._recent: dict[Hashable, dict[int, tuple[object, V]]] = {}
        self._before: dict[Hashable, dict[int, tuple[object, V]]] = {}

    def of(self, items: Iterable[T], shape: Hashable, encode: Callable[[T], V], *, keep: bool = True) -> list[V]:
        """Return the bytes of each of *items* in *shape*, one of a few, which says all that *encode* depends on.

        Args: keep: False for objects that are made anew for each list, so that keeping them would be in vain.
        """
        if not keep:
            return [encode(item) for item in items]
        recent, before = self._recent.setdefault(shape, {}), self._before.get(shape, {})
        encoded: list[V] = []
        for item in items:
            kept = recent.get(id(item))
            if kept is None:
                kept = recent[id(item)] = before.get(id(item)) or (item, encode(item))
            encoded.append(kept[1])
        if len(recent) >= MOST:
            self._before[shape], self._recent[shape] = recent, {}
        return encoded
