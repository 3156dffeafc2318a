"""The sums at the end: what was recorded, what each group did with it, what the store holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec

from eventbus import Event, Options
from eventbus.broker.bus import Bus
from eventbus.broker.redis_errors import redis_errors
from eventbus.model.event import SUPPRESSED_REASON
from examples.demo.screen import BOLD, Screen

#: The sources of what the workers say about themselves.
WORKERS = ("eventbus-log", "eventbus-sink")


class Line(NamedTuple):
    """One line of the log."""

    uid: str
    component: str  #: of the event's source

    @classmethod
    def parse(cls, text: str) -> Self:
        event = json.loads(text)
        return cls(event["metadata"]["uid"], event["source"]["component"])


class Totals(msgspec.Struct, frozen=True):
    """The bus's own counters."""

    published: int  #: accepted into the stream
    recorded: int  #: taken out of it by the group `sink`
    created: int
    patched: int
    held_back: int

    @classmethod
    def read(cls, bus: Bus, client: Any) -> Totals:
        """Add up the counters of all partitions. Raises: BusUnavailable."""
        totals = [0] * 5
        for keys in bus.keys:
            with redis_errors():
                found = client.hmget(keys.incoming_meta, ["events"])
                found += client.hmget(keys.meta, ["events", "created", "patched", "suppressed"])
            totals = [total + int(value or 0) for total, value in zip(totals, found, strict=True)]
        return cls(*totals)


class Sort(StrEnum):
    """The sort of a stored event."""

    PLAIN = "plain"
    REPEATED = "repeated"
    AGGREGATE = "aggregate"
    SUPPRESSED = "suppressed"


def sort_of(event: Event) -> Sort:
    if event.reason == SUPPRESSED_REASON:
        return Sort.SUPPRESSED
    if event.message.startswith(Options().aggregate_message):
        return Sort.AGGREGATE
    return Sort.REPEATED if event.count > 1 else Sort.PLAIN


def tell(
    screen: Screen, *, recorded: Mapping[str, int], totals: Totals, logged: Sequence[Line], stored: Sequence[Event]
) -> None:
    """Print the summary. *recorded*: by the programs' own count."""
    by_sort: dict[Sort, list[Event]] = {sort: [] for sort in Sort}
    for event in stored:
        by_sort[sort_of(event)].append(event)
    total = sum(recorded.values())
    own = totals.published - total
    programs = ", ".join(f"{n} by {name}" for name, n in recorded.items())
    screen.say()
    screen.say("Summary", BOLD)
    screen.say(f"  recorded    {total} events: {programs}")
    screen.say(f"  published   {totals.published} events: those, and {own} of the workers about themselves")
    screen.say(f"  group log   {len(logged)} lines in the log, {len({line.uid for line in logged})} different uids")
    screen.say(f"  log lines   {by_component(logged)}")
    screen.say(
        f"  group sink  {totals.recorded} events: {totals.created} created, {totals.patched} patched, "
        f"{totals.held_back} suppressed as spam"
    )
    screen.say(f"  stored      {len(stored)} events")
    for sort, events in by_sort.items():
        example = max(events, key=lambda event: event.count, default=None)
        screen.say(f"    {sort.value:<10} {len(events):>3}{example_of(example) if example else ''}")


def by_component(logged: Iterable[Line]) -> str:
    """`58 of eventbus-exec, 38 of packages, …`; the workers are counted together."""
    found = Counter("workers" if line.component in WORKERS else line.component for line in logged)
    return ", ".join(f"{n} of {component}" for component, n in sorted(found.items()))


def example_of(event: Event) -> str:
    about = event.involved_object
    return f", e.g. {event.count} × {event.reason} {about.kind}/{about.name}: {event.message}"


def missing(stored: Sequence[Event]) -> list[str]:
    """The sorts of which there is none."""
    found = {sort_of(event) for event in stored}
    return [sort.value for sort in Sort if sort not in found]
