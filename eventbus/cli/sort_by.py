"""`--sort-by`: how a list is ordered. What a watch tells later comes in its own order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

from eventbus.cli.event_table import by_last_seen
from eventbus.cli.jsonpath import relaxed_path
from eventbus.cli.object_printer import plain_of
from eventbus.kinds import EVENT, Kind

Order: TypeAlias = Callable[[Iterable[Any]], list[Any]]

#: The store's own order, which is kubectl's.
NONE: Final = "none"


def order_of(kind: Kind[Any], text: str | None) -> Order:
    """What *text* says: `none`, or a JSONPath; by default events by when they were last seen.

    Values of one kind are compared as they are, of several as text; objects without the field come first.

    Raises: ValueError: no path.
    """
    if text is None:
        return by_last_seen if kind is EVENT else list
    if text.strip().lower() == NONE:
        return list
    path = relaxed_path(text)

    def key(found: Any) -> tuple[int, Any]:
        values = [value for value in path.find(plain_of(kind, found)) if value is not None]
        if not values:
            return 0, ""
        value = values[0]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1, value
        return 2, _moment(value) if isinstance(value, str) else str(value)

    return lambda items: sorted(items, key=key)


def _moment(text: str) -> str:
    """A time in a form whose order as text is that of time; any other text as it is."""
    try:
        return datetime.fromisoformat(text).isoformat(timespec="microseconds")
    except ValueError:
        return text


__all__ = ["NONE", "Order", "order_of"]
