"""The Tables that kubectl prints: columns, cells, and rows that are encoded once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from eventbus.api.versions.wire_versions import WireVersions
from eventbus.model.columns.events import first_time, last_time
from eventbus.model.columns.objects import columns_of
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, Kind
from eventbus.util.human_duration import age

T = TypeVar("T")
V = TypeVar("V")

#: Entries in one generation of a shape. Two generations and the last list are kept: some 10 MB of events.
MOST: Final = 8192


class EncodedItems(Generic[V]):
    """Cache of encoded objects, by identity: the hash of an event's value costs as much as encoding the event.

    It finds objects again because the store returns the same object for the same stored bytes (`stored.remembering`).
    Each entry keeps its object alive, so that no other object gets its id. A full recent generation replaces the one
    before it. Thread-safe: two threads may encode the same object, and agree.
    """

    def __init__(self) -> None:
        self._recent: dict[Hashable, dict[int, tuple[object, V]]] = {}
        self._before: dict[Hashable, dict[int, tuple[object, V]]] = {}

    def of(self, items: Iterable[T], shape: Hashable, encode: Callable[[T], V], *, keep: bool = True) -> list[V]:
        """Return each of *items*, encoded. *shape* holds all other inputs of *encode*; there are few shapes.

        Args: keep: False for objects that each list creates again, so that a cache would never find them.
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
    Column("Message", description="A description for people."),
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
    """Return the columns of the wide table: the client hides those that it does not show."""
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
    """Return the cells of an object, in the order of `definitions`."""
    if kind.plural == "namespaces":
        return [found.metadata.name, found.status.phase, age(now, found.metadata.creation_timestamp)]
    row: list[str | int] = [_text(cell) for cell in columns_of(kind).row(found, now, True, False)]
    if kind.plural == EVENT.plural:
        # As the API server prints it: a series does not count its first event.
        row[_COUNT_AT] = found.series.count + 1 if found.series is not None else int(row[_COUNT_AT])
    return row


def _text(cell: object) -> str:
    return str(getattr(cell, "text", cell))


_encode: Final = msgspec.json.Encoder().encode


class EventRow(NamedTuple):
    """An encoded row, split at its two cells with an age."""

    before: bytes
    last_time: datetime | None
    between: bytes
    first_time: datetime | None
    after: bytes

    @classmethod
    def of(cls, event: Event, shown: bytes, now: datetime) -> EventRow:
        """Args: shown: the encoded object of the row."""
        row = cells(EVENT, event, now)
        between, behind = _inside(row[LAST_SEEN_AT + 1 : FIRST_SEEN_AT]), _inside(row[FIRST_SEEN_AT + 1 :])
        after = b',%b],"object":%b}' % (behind, shown)
        return cls(b'{"cells":[', last_time(event), b",%b," % between, first_time(event), after)


def _inside(cells: list[Any]) -> bytes:
    """Encode cells as a JSON array without its brackets."""
    return _encode(cells)[1:-1]


def aged(rows: Iterable[EventRow], now: datetime) -> list[bytes]:
    """Join the rows, with the ages that they have *now*."""

    @cache  # many events have the same times
    def shown(then: datetime | None) -> bytes:
        return _encode(age(now, then))

    return [before + shown(last) + between + shown(first) + after for before, last, between, first, after in rows]


#: Cache of encoded rows. Most items of a list were in the list before.
_row_cache: Final[EncodedItems[EventRow]] = EncodedItems()


class Table(msgspec.Struct, frozen=True):
    """Tables of one kind, as JSON values. Thread-safe.

    *shown* makes the object in a row, with the given version. *shape* holds all other inputs of *shown*.
    """

    kind: Kind[Any]
    api_version: str
    versions: WireVersions
    shown: Callable[..., dict[str, Any] | None]
    shape: Hashable

    def of(
        self, items: Sequence[Any], metadata: Mapping[str, Any], *, columns: bool = True, version: str = ""
    ) -> dict[str, Any]:
        """Make a table. *columns*: include the column definitions. *version*: the object's, in a frame of a watch."""
        now = datetime.now(UTC)
        rows: list[Any]
        if self.kind.type is Event and not version:  # `LineEncoder` caches the frames of watches
            rows = [msgspec.Raw(row) for row in aged(self._event_rows(items, now), now)]
        else:
            rows = [{"cells": cells(self.kind, item, now), "object": self.shown(item, version)} for item in items]
        return self._head(metadata, columns=columns) | {"rows": rows}

    def bookmark(self, empty: Mapping[str, Any]) -> dict[str, Any]:
        """Make a table of one row with empty cells. *empty*: its object, with only metadata."""
        row = {"cells": [""] * len(definitions(self.kind)), "object": empty}
        return self._head(empty["metadata"], columns=False) | {"rows": [row]}

    def _event_rows(self, items: Sequence[Event], now: datetime) -> list[EventRow]:
        return _row_cache.of(
            items,
            (self.kind.api_version, self.shape, self.versions),
            lambda item: EventRow.of(item, _encode(self.shown(item)), now),
            keep=self.versions.partitions == 1,  # else each list numbers its events, and so creates them again
        )

    def _head(self, metadata: Mapping[str, Any], *, columns: bool) -> dict[str, Any]:
        named = [msgspec.to_builtins(column) for column in definitions(self.kind)] if columns else None
        return {"kind": "Table", "apiVersion": self.api_version, "metadata": metadata, "columnDefinitions": named}
