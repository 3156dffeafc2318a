"""Events of a request: read, completed, checked and packed, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from eventbus.broker.keys import partition_of
from eventbus.errors import InvalidEvent, InvalidObject, PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import EVENTS_VERSION, from_core, from_events_v1
from eventbus.model.encoding.json_read import load
from eventbus.model.encoding.wire import MAX_EVENT_BYTES, Count, Microseconds, pack_event, unpack_event
from eventbus.model.event import Event, EventSource, EventType, ObjectReference
from eventbus.model.reference import DEFAULT_NAMESPACE, event_name, reference_to
from eventbus.model.validation import MAX_COMPONENT, MAX_NAME, validate_call, validate_recorded
from eventbus.util.text import cut_bytes

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
    """Return the namespace of a packed event. *packed* has at most the size that a batch allows for one event.

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


#: Events of one request. With more, the list of refused events would be longer than the request.
MAX_EVENTS: Final = 20_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Packed(msgspec.Struct, frozen=True, gc=False):
    """An event that can be published. *index*: its place in the request."""

    index: int
    partition: int
    body: bytes


class Refused(msgspec.Struct, frozen=True):
    """An event that cannot, and why."""

    index: int
    reason: str


def read_json(body: bytes) -> list[Any]:
    """One object, or a list of them. Raises: InvalidObject: the body is neither, or holds too many."""
    try:
        found: Any = load(body)
    except InvalidEvent as error:
        raise InvalidObject(f"the body {error.problem}") from None
    return _bounded(found if isinstance(found, list) else [found])


def read_lines(body: bytes) -> list[Any]:
    """An object a line; a line that is none is an `InvalidEvent` in its place. Raises: InvalidObject: too many."""
    return [_line(line) for line in _bounded([line for line in body.split(b"\n") if line.strip()])]


def pack_events(
    found: Sequence[Any], *, partitions: int, user: str, now_ns: int, may_record: Callable[[str], bool]
) -> tuple[list[Packed], list[Refused]]:
    """Complete, check and pack each of *found*; the same of the same *now_ns*, byte for byte."""
    packed: list[Packed] = []
    refused: list[Refused] = []
    for index, plain in enumerate(found):
        try:
            event = complete(event_of(plain), user=user, time_ns=now_ns + index)
            validate_recorded(event)
            if not may_record(event.metadata.namespace):
                raise InvalidEvent("metadata.namespace", no_right(user, event.metadata.namespace))
            body = pack_event(event)
            if len(body) > MAX_EVENT_BYTES:
                problem = f"has {len(body)} bytes packed; at most {MAX_EVENT_BYTES}: shorten the message"
                raise InvalidEvent("event", problem)
        except InvalidEvent as error:
            refused.append(Refused(index, str(error)))
        else:
            packed.append(Packed(index, partition_of(event.involved_object, partitions), body))
    return packed, refused


def complete(event: Event, *, user: str, time_ns: int) -> Event:
    """Return *event* with the fields that a recorder sets: name, namespace, type, times, count, and source."""
    meta = event.metadata
    about = reference_to(event.involved_object, meta.namespace or DEFAULT_NAMESPACE)
    namespace = meta.namespace or about.namespace or DEFAULT_NAMESPACE
    name = meta.name or event_name(about.name, time_ns)
    component = event.source.component or event.reporting_component or cut_bytes(user, MAX_COMPONENT)
    now = _EPOCH + timedelta(microseconds=time_ns // 1000)
    untimed = event.event_time is None and event.first_timestamp is None and event.last_timestamp is None
    first = now if untimed else event.first_timestamp or event.last_timestamp
    return msgspec.structs.replace(
        event,
        metadata=msgspec.structs.replace(
            meta, name=name, namespace=namespace, uid="", resource_version="", creation_timestamp=None
        ),
        involved_object=about,
        type=event.type or EventType.NORMAL.value,
        source=EventSource(component, event.source.host),
        first_timestamp=first,
        last_timestamp=event.last_timestamp or first,
        count=event.count or (0 if event.event_time is not None else 1),
        reporting_component=event.reporting_component or component,
        reporting_instance=event.reporting_instance or event.source.host,
    )


def event_of(plain: Any) -> Event:
    """Read an event as people write it; its object may be a text. Raises: InvalidEvent."""
    if isinstance(plain, InvalidEvent):
        raise plain
    if isinstance(plain, Event):
        return plain
    is_new_style = isinstance(plain, Mapping) and plain.get("apiVersion") == EVENTS_VERSION
    plain = _with_reference(plain, "regarding" if is_new_style else "involvedObject")
    return from_events_v1(plain) if is_new_style else from_core(plain)


def _with_reference(plain: Any, field: str) -> Any:
    """Return *plain* with a reference in the place of a text like `shop/Order/7`. Raises: InvalidEvent."""
    if not isinstance(plain, Mapping) or not isinstance(plain.get(field), str):
        return plain
    metadata = plain.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    about = reference_to(plain[field], namespace if isinstance(namespace, str) and namespace else DEFAULT_NAMESPACE)
    return {**plain, field: msgspec.to_builtins(about)}


def _line(line: bytes) -> Any:
    try:
        return load(line)
    except InvalidEvent as error:
        return error


def _bounded(found: list[Any]) -> list[Any]:
    if len(found) > MAX_EVENTS:
        raise InvalidObject(f"the body holds {len(found)} events; at most {MAX_EVENTS} in one request")
    return found


def spread(packed: Sequence[Packed]) -> Iterator[tuple[int, list[Packed]]]:
    """By partition, each in the order of the request."""
    by_partition: dict[int, list[Packed]] = {}
    for event in packed:
        by_partition.setdefault(event.partition, []).append(event)
    yield from sorted(by_partition.items())
