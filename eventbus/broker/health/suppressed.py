"""Reads, by source, the counts of events held back, folded, not created for want of memory, or evicted.

correlate_and_store.lua and expire.lua keep them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.numbers import whole_number
from eventbus.broker.redis_errors import redis_errors

#: First part of a counter's name → what it counts. Fields that begin with anything else are the functions' own.
COUNTED = {"S": "suppressed", "A": "aggregated", "M": "not_created", "E": "evicted"}


class SourceCounts(msgspec.Struct, frozen=True, rename="camel"):
    """The counts of one source since it has a name; those of all sources without one are summed as *other*."""

    component: str
    kind: str  #: of the object
    type: str
    reason: str
    suppressed: int = 0
    aggregated: int = 0
    not_created: int = 0
    evicted: int = 0

    @property
    def total(self) -> int:
        return self.suppressed + self.aggregated + self.not_created + self.evicted

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Return component, kind, type, reason; `<other>` stands for all that have no name."""
        names = (self.component, self.kind, self.type, self.reason)
        return ("<other>", "", "", "") if names == ("other", "", "", "") else names


def read_sources(bus: Bus, client: Client) -> tuple[SourceCounts, ...]:
    """Read every source that has a name, summed over all partitions, the largest first.

    Raises: BusUnavailable: call again.  BusRefused: this user may not look.
    Redis:  HGETALL on each partition's suppressed.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for keys in bus.keys:
        with redis_errors():
            found: Any = client.hgetall(keys.suppressed)
        for field, n in found.items():
            parts = [*field.decode("utf-8", "replace").split("\0"), "", "", "", ""]
            what, component, kind, event_type, reason = parts[:5]
            if what in COUNTED:
                counts[component, kind, event_type, reason][COUNTED[what]] += whole_number(n) or 0
    rows = [SourceCounts(*source, *(counted[what] for what in COUNTED.values())) for source, counted in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.total, row.names)))


def leading(sources: Iterable[SourceCounts], most: int) -> tuple[SourceCounts, ...]:
    """Return those among the first *most* of any count, in their order; never `<other>`."""
    named = [source for source in sources if source.names[0] != "<other>"]
    chosen: set[int] = set()
    for what in COUNTED.values():
        by_count = sorted(range(len(named)), key=lambda i: -getattr(named[i], what))
        chosen.update(i for i in by_count[:most] if getattr(named[i], what))
    return tuple(named[i] for i in sorted(chosen))


__all__ = ["COUNTED", "SourceCounts", "leading", "read_sources"]
