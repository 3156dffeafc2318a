"""Decides which repeats of an event are written to a sink."""

from __future__ import annotations

import re
from typing import Protocol

import msgspec

from eventbus.broker.exports import UpdateState
from eventbus.errors import ConfigError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Repeats(Protocol):
    """Decides for one event at a time; *known* is the sink's last reply about it, None: it never had it."""

    def due(self, count: int, known: UpdateState | None, now_ms: int) -> bool:
        """Return True if the sink is to have the event now."""
        ...

    def later_ms(self, known: UpdateState, now_ms: int) -> int | None:
        """Return when to check an event again that is not due, ms since 1970; None: not before it repeats."""
        ...


class Every(msgspec.Struct, frozen=True):
    """Writes every repeat: the sink ends with the final count."""

    def due(self, count: int, known: UpdateState | None, now_ms: int) -> bool:
        return True

    def later_ms(self, known: UpdateState, now_ms: int) -> int | None:
        return None


class First(msgspec.Struct, frozen=True):
    """Writes only the first occurrence. An event that expires and comes back is a first one again."""

    def due(self, count: int, known: UpdateState | None, now_ms: int) -> bool:
        return known is None

    def later_ms(self, known: UpdateState, now_ms: int) -> int | None:
        return None


class Thresholds(msgspec.Struct, frozen=True):
    """Writes when the count reaches, or passes, one of *counts* (ascending)."""

    counts: tuple[int, ...]

    def due(self, count: int, known: UpdateState | None, now_ms: int) -> bool:
        told = known.count if known else 0
        return any(told < threshold <= count for threshold in self.counts)

    def later_ms(self, known: UpdateState, now_ms: int) -> int | None:
        return None


class AtMostEvery(msgspec.Struct, frozen=True):
    """Writes the first change at once, then at most one every *every_ms*.

    Delayed repeats are written at the end of that time."""

    every_ms: int

    def due(self, count: int, known: UpdateState | None, now_ms: int) -> bool:
        # A clock that was set back must not silence an event.
        return known is None or not 0 <= now_ms - known.ms < self.every_ms

    def later_ms(self, known: UpdateState, now_ms: int) -> int | None:
        return known.ms + self.every_ms


def parse_repeats(text: str) -> Repeats:
    """Parse `every`, `first`, `thresholds=1,10,100` or `at-most-every=5m` (s, m, h, d). Raises: ConfigError."""
    word, _, value = text.partition("=")
    if text == "every":
        return Every()
    if text == "first":
        return First()
    if word == "thresholds" and re.fullmatch(r"[1-9]\d{0,9}(,[1-9]\d{0,9})*", value):
        return Thresholds(tuple(sorted({int(count) for count in value.split(",")})))
    if word == "at-most-every" and (found := re.fullmatch(r"([1-9]\d{0,6})([smhd])", value)):
        return AtMostEvery(int(found[1]) * _UNITS_S[found[2]] * 1000)
    raise ConfigError(f"repeats {text!r}: give every, first, thresholds=1,10,100 or at-most-every=5m")
