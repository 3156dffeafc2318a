"""Rows of events in tables: encoded but for their ages, which are all that time changes of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from eventbus.api.kube.columns import FIRST_SEEN_AT, LAST_SEEN_AT, cells
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.printers.event_columns import first_time, last_time
from eventbus.printers.human_duration import age

_encode: Final = msgspec.json.Encoder().encode


class EventRow(NamedTuple):
    """A row in pieces, between which its two ages stand."""

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
    """Cells as JSON between others."""
    return _encode(cells)[1:-1]


class _Ages(dict[datetime | None, bytes]):
    """Ages as JSON by the moment, of which many events have the same."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def __missing__(self, then: datetime | None) -> bytes:
        found = self[then] = _encode(age(self._now, then))
        return found


def aged(rows: Iterable[EventRow], now: datetime) -> list[bytes]:
    """The rows as they are to be read *now*."""
    ages = _Ages(now)
    return [before + ages[last] + between + ages[first] + after for before, last, between, first, after in rows]
