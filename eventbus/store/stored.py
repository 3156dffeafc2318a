"""How a stored event lies in Redis, and the Event it stands for. The layout is record.lua's (library.lua names it)."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec

from eventbus.errors import PoisonBatch
from eventbus.event import Event
from eventbus.wire import from_microseconds, to_event, unpack_wire

#: FORM of a stored object: what was folded, and what the store itself writes, are built from another event's body.
AGGREGATE, SUPPRESSED = "a", "s"


class StoredCounts(msgspec.Struct, frozen=True):
    """What the correlator remembers of a key, also when the event itself is gone."""

    count: int
    first_us: int | None
    name: str
    namespace: str
    entry: str


def decode_counts(packed: bytes) -> StoredCounts:
    """The first five fields, or those of an event that was held back and takes this one's place.

    Raises: PoisonBatch: the value is not ours.
    """
    fields = _unpack(packed)
    fields = fields[14] if len(fields) > 14 else fields
    return StoredCounts(fields[0], _time(fields[1]), _text(fields[2]), _text(fields[3]), _text(fields[4]))


def decode_stored(packed: bytes) -> Event | None:
    """The stored event with name, count, times and version as the store has them; None if only counts are left.

    Raises: PoisonBatch: the value is not ours.
    """
    fields = _unpack(packed)
    if len(fields) < 14:
        return None
    try:
        return _decode(fields)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PoisonBatch("unreadable") from error


def _decode(fields: list[Any]) -> Event:
    _, first, name, namespace, _, count, last, version, created_ms, uid, message, form, _, body = fields[:14]
    event = to_event(unpack_wire(body), uid=_text(uid))
    form = _text(form)
    first_us, last_us = _time(first), _time(last)
    first_at = from_microseconds(first_us)
    metadata = msgspec.structs.replace(
        event.metadata,
        name=_text(name),
        namespace=_text(namespace),
        uid=_text(uid) or f"{_text(name)}@{created_ms}",
        resource_version=str(version),
        creation_timestamp=from_microseconds(created_ms * 1000),
    )
    if form:
        # client-go's aggregate is a fresh event: of the one it was made from it keeps only these.
        event = Event(
            involved_object=event.involved_object,
            reason=event.reason,
            message=event.message,
            source=event.source,
            type=event.type,
        )
        metadata = msgspec.structs.replace(metadata, labels={}, annotations={}, generate_name="")
    return msgspec.structs.replace(
        event,
        metadata=metadata,
        message=_text(message) if isinstance(message, bytes) else event.message,
        first_timestamp=first_at,
        # Of an event that was not repeated it is the same object, which is encoded once.
        last_timestamp=first_at if last_us == first_us else from_microseconds(last_us),
        count=count,
    )


def is_aggregate(packed: bytes) -> bool:
    """Whether the stored event stands for several similar ones."""
    fields = _unpack(packed)
    return len(fields) >= 14 and _text(fields[11]) == AGGREGATE


def _unpack(packed: bytes) -> list[Any]:
    try:
        fields = msgpack.unpackb(packed, raw=True)
    except ValueError as error:
        raise PoisonBatch("unreadable") from error
    if not isinstance(fields, list) or len(fields) < 5:
        raise PoisonBatch("unreadable")
    return fields


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _time(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


__all__ = ["AGGREGATE", "SUPPRESSED", "StoredCounts", "decode_counts", "decode_stored", "is_aggregate"]
