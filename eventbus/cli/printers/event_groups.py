"""The table of `--group`: a line for each reason and kind of object, with its count."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from eventbus.model.columns.events import seen
from eventbus.model.event import Event, EventType
from eventbus.util.human_duration import age
from eventbus.util.table import Cell, Colour, Row, format_table

HEADERS = ("Last Seen", "Type", "Reason", "Kind", "Objects", "Events", "Count")


class Group(msgspec.Struct, kw_only=True):
    """Events of one type and reason about objects of one kind; *events* are stored ones, *count* is how often."""

    type: str
    reason: str
    kind: str
    last_seen: datetime | None = None
    events: int = 0
    count: int = 0
    objects: set[tuple[str, str]] = msgspec.field(default_factory=set)


def _group_events(events: Iterable[Event]) -> list[Group]:
    """Group events. Groups are in the order of their last event."""
    groups: dict[tuple[str, str, str], Group] = {}
    for event in events:
        about = event.involved_object
        key = (event.type, event.reason, about.kind.lower())
        group = groups.pop(key, None) or Group(type=event.type, reason=event.reason, kind=about.kind)
        groups[key] = group
        group.events += 1
        group.count += seen(event)
        group.objects.add((about.namespace, about.name))
        if event.last_seen is not None and (group.last_seen is None or event.last_seen > group.last_seen):
            group.last_seen = event.last_seen
    return list(groups.values())


def groups_table(events: Iterable[Event], *, now: datetime, no_headers: bool, colour: bool) -> str:
    """Format the table of the groups of *events*. Returns: whole lines."""
    rows: list[Row] = [
        (
            age(now, group.last_seen),
            Cell(group.type, Colour.YELLOW if colour and group.type == EventType.WARNING else Colour.PLAIN),
            group.reason,
            group.kind,
            str(len(group.objects)),
            str(group.events),
            str(group.count),
        )
        for group in _group_events(events)
    ]
    return format_table(HEADERS, rows, no_headers=no_headers)
