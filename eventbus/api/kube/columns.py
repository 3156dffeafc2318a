"""The columns of tables, as `kubectl get` prints them: definitions, and the cells of an object."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Final

import msgspec

from eventbus.model.kinds import EVENT, Kind
from eventbus.printers.human_duration import age
from eventbus.printers.object_columns import columns_of


class Column(msgspec.Struct, frozen=True, rename="camel"):
    """*priority* 0 is always shown, 1 with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


_EVENT: Final = (
    Column("Last Seen", description="The time at which the most recent occurrence of this event was recorded."),
    Column("Type", description="Type of this event (Normal, Warning)."),
    Column("Reason", description="A short, machine understandable word for why the event happened."),
    Column("Object", description="The object that this event is about."),
    Column("Subobject", description="The part of the object that it is about, as spec.containers{name}.", priority=1),
    Column("Source", description="The component that reports this event, and its host.", priority=1),
    Column("Message", description="What happened, for people."),
    Column("First Seen", description="The time at which the event was first recorded.", priority=1),
    Column("Count", description="The number of times this event has occurred.", priority=1),
    Column("Name", format="name", description="The name of the event.", priority=1),
)
LAST_SEEN_AT: Final = 0
FIRST_SEEN_AT: Final = 7
_COUNT_AT: Final = 8
_NAMESPACE: Final = (
    Column("Name", format="name", description="The name of the namespace."),
    Column("Status", description="The status of the namespace."),
    Column("Age", description="How long ago it was created."),
)


@cache
def definitions(kind: Kind[Any]) -> tuple[Column, ...]:
    """The wide table's, always: the client hides what it does not show."""
    if kind.plural == EVENT.plural:
        return _EVENT
    if kind.plural == "namespaces":
        return _NAMESPACE
    columns = columns_of(kind)
    narrow = set(columns.headers)
    return tuple(
        Column(name, format="name" if number == 0 else "", priority=int(name not in narrow))
        for number, name in enumerate((*columns.headers, *columns.wide_headers[len(columns.headers) :]))
    )


def cells(kind: Kind[Any], found: Any, now: datetime) -> list[str | int]:
    """Those of one object, in the order of `definitions`."""
    if kind.plural == "namespaces":
        return [found.metadata.name, found.status.phase, age(now, found.metadata.creation_timestamp)]
    row: list[str | int] = [_text(cell) for cell in columns_of(kind).row(found, now, True, False)]
    if kind.plural == EVENT.plural:
        # As the API server prints it: a series counts what came after the first.
        row[_COUNT_AT] = found.series.count + 1 if found.series is not None else int(row[_COUNT_AT])
    return row


def _text(cell: object) -> str:
    return str(getattr(cell, "text", cell))
