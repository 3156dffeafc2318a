"""Checks packed events that come in, as cheaply as a program can send them: a recorder's rules, and the partition."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

import msgspec

from eventbus.broker.keys import partition_of
from eventbus.errors import InvalidEvent, PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.encoding.wire import Count, Microseconds, unpack_event
from eventbus.model.event import ObjectReference
from eventbus.model.validation import MAX_NAME, validate_call, validate_recorded

#: Cached checks: recorders repeat the same source, object, type and reason.
_REMEMBERED: Final = 16_384


class _Plain(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """A `WireEvent` with only the fields of a recorder's event without annotations; others do not decode."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
    namespace: str
    involved_object: Annotated[tuple[str, ...], msgspec.Meta(max_length=7)]
    reason: str
    message: str
    type: str
    source: tuple[str, str]
    first_us: Microseconds
    last_us: Microseconds
    count: Count


def check_packed(packed: bytes, *, partition: int, partitions: int) -> str:
    """Return the namespace of the event whose bytes these are, which are no more than a batch may hold of one.

    Raises: InvalidEvent: it is none, breaks a rule, or belongs into another partition.
    """
    try:
        plain = _PLAIN(packed)
    except (ValueError, RecursionError):
        return _check_fully(packed, partition, partitions)
    name, namespace = plain.name, plain.namespace
    if "\0" in plain.message or not name.isascii() or "\0" in name:
        return _check_fully(packed, partition, partitions)
    here = _check_spoken(plain.source, plain.involved_object, plain.type, plain.reason, namespace, partitions)
    if here != partition:
        raise _misplaced(partition)
    return namespace


def no_right(user: str, namespace: str) -> str:
    """Return the error message for a *user* without the right to record in *namespace*."""
    return f"{user!r} may not record events in namespace {namespace!r}: give this user the role record there"


def _check_fully(packed: bytes, partition: int, partitions: int) -> str:
    """Check an event of any form, and return its namespace."""
    try:
        event = unpack_event(packed)
        validate_recorded(event)
    except PoisonBatch as poison:
        raise InvalidEvent("event", f"is {poison.cause}") from None
    if partition_of(event.involved_object, partitions) != partition:
        raise _misplaced(partition)
    return event.metadata.namespace


@lru_cache(maxsize=_REMEMBERED)
def _check_spoken(
    source: tuple[str, str], about: tuple[str, ...], kind: str, reason: str, namespace: str, partitions: int
) -> int:
    """Return the partition of the event. Raises: InvalidEvent."""
    reference = ObjectReference(*about)
    validate_call(source, reference, namespace=namespace, type=kind, reason=reason)
    return partition_of(reference, partitions)


def _misplaced(partition: int) -> InvalidEvent:
    return InvalidEvent("involvedObject", f"does not belong into partition {partition}")


_PLAIN: Final = msgspec.msgpack.Decoder(decodable(_Plain)).decode
