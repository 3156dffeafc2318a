"""The order of a list by `--sort-by`. Later changes of a watch come in their own order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cmp_to_key
from typing import Any, Final, TypeAlias

from eventbus.cli.printers.jsonpath import find, in_braces, parse_relaxed_path
from eventbus.cli.printers.object_printer import plain_of
from eventbus.errors import EventBusError
from eventbus.model.columns.events import by_last_seen
from eventbus.model.kinds import EVENT, Kind
from eventbus.model.names import parse_quantity

Order: TypeAlias = Callable[[Iterable[Any]], list[Any]]

#: The store's own order, which is kubectl's.
NONE: Final = "none"


class FieldMissing(EventBusError):
    """No object of the list has the field to sort by. Cure: name another."""


def order_of(kind: Kind[Any], text: str | None) -> Order:
    """Return the order that *text* names: `none`, or a JSONPath; None: events by when they were last seen.

    Objects without the field come first, numbers before texts. Two texts are compared as times or quantities if both
    are, else naturally: n2 before n10.

    Raises: ValueError: no path. The order raises FieldMissing: no object has the field.
    Source: kubectl `cmd/get/sorter.go`; departures: times are compared as times, and an empty list is sorted.
    """
    if text is None:
        return by_last_seen if kind is EVENT else list
    if text.strip().lower() == NONE:
        return list
    path = parse_relaxed_path(text)

    def order(items: Iterable[Any]) -> list[Any]:
        keyed = [(_first(find(path, plain_of(kind, item))), item) for item in items]
        if keyed and all(value is None for value, _ in keyed):
            raise FieldMissing(f'couldn\'t find any field with path "{in_braces(text)}" in the list of objects')
        return [item for _, item in sorted(keyed, key=lambda pair: _ordered(pair[0]))]

    return order


def _first(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _compare(one: Any, two: Any) -> int:
    """Compare as numbers below, at or above zero: *one* comes before, with, or after *two*."""
    if isinstance(one, str) and isinstance(two, str):
        for read in (_moment, parse_quantity):
            left, right = read(one), read(two)
            if left is not None and right is not None and left != right:
                return _sign(left, right)
        return _sign(_natural(one), _natural(two))
    return _sign(_ranked(one), _ranked(two))


#: The order as a key of `sorted`.
_ordered: Final = cmp_to_key(_compare)


def _sign(one: Any, two: Any) -> int:
    return 1 if one > two else -1 if one < two else 0


def _ranked(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return 2, str(value)


def _natural(text: str) -> tuple[list[tuple[int, int]], str]:
    """Make a sort key in which runs of digits count as numbers. Source: sortorder.NaturalLess."""
    runs = re.findall(r"[0-9]+|[^0-9]", text)
    return [(48, int(run)) if run[0] in "0123456789" else (ord(run), 0) for run in runs], text


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if "T" in text else None
    except (ValueError, OverflowError):
        return None
