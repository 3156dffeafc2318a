"""Makes an event storable for every outside system: no NUL, no lone surrogate, its version a number."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventbus.errors import EventUnbuildable, InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import Event
from eventbus.util.text import repair

#: Versions are compared as 64 bit integers, in PostgreSQL too.
_MAX_VERSION: Final = 2**63 - 1


def storable_core(event: Event) -> dict[str, Any]:
    """Return the plain dict of *event*'s core/v1 JSON, with NUL and lone surrogates replaced by U+FFFD."""
    try:
        return to_core(event)
    except InvalidEvent:
        pass
    try:
        repaired: dict[str, Any] = _repaired(msgspec.to_builtins(event, builtin_types=(bytes,)))
        return to_core(msgspec.convert(repaired, decodable(Event)))
    except (InvalidEvent, msgspec.ValidationError, TypeError, OverflowError) as error:
        raise EventUnbuildable(f"no core/v1 object can be made of it: {error}") from error


def version_of(event: Event) -> int:
    """Return the store's version of *event*. Raises: EventUnbuildable: it is not a decimal below 2^63."""
    text = event.metadata.resource_version
    if text.isascii() and text.isdecimal() and (version := int(text)) <= _MAX_VERSION:
        return version
    raise EventUnbuildable(f"its resourceVersion {text[:40]!r} is not a decimal below 2^63")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, dict):
        return {repair(key): _repaired(item) for key, item in value.items()}
    return value
