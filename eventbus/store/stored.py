"""Decodes and packs stored events. `broker/lua/objects.lua` defines the layout."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgpack
import msgspec

from eventbus.broker.functions import pack_argument
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.encoding.event_json import decode_core, encode_checked, from_core, to_core
from eventbus.model.encoding.object_json import difference, merge
from eventbus.model.encoding.wire import (
    WireEvent,
    from_microseconds,
    microseconds,
    more_metadata,
    open_uid,
    unpack_wire,
)
from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference

#: The form of an event that was written through the store; its body is JSON.
_WRITTEN: Final = b"w"
#: The form of a series of events.k8s.io: its first time is eventTime, its count and last time are those of the series.
_SERIES: Final = b"e"

# Positions. The first five remain after the event has expired, with the id of the state of its source.
_COUNT, _FIRST, _NAME, _NAMESPACE, _ENTRY = range(5)
_STORED_COUNT, _LAST, _VERSION, _CREATED, _UID, _MESSAGE, _FORM, _SUBJECT, _BODY, _SOURCE = range(5, 15)
_HELD, _WRITTEN_VERSION, _SEEN, _DUE, _CHANGED, _OVERLAY, _ONCE = range(15, 22)
FIELDS: Final = 22
#: Smaller numbers at `_CREATED` are ms since `_FIRST`.
_LEAST_TIME: Final = 2**32
#: The first byte of a body without rare fields: an array of seven.
_USUAL_BODY: Final = 0x97

#: Fields that the correlator sets at each repeat. A patch of them lasts until then, other patches until the expiry.
COUNTED: Final = frozenset({"count", "firstTimestamp", "lastTimestamp", "eventTime", "message", "series"})


class View(Enum):
    """One of the two views of an event's count, time and version."""

    SHOWN = "shown"  #: with every repeat
    WRITTEN = "written"  #: as client-go would have sent it, without repeats that were suppressed


def decode_stored(packed: bytes, view: View = View.SHOWN) -> Event | None:
    """Decode a stored event with name, count, times and version as *view* has them; None if only counts are left.

    Raises: PoisonBatch: the value is not ours.
    """
    fields = _unpack(packed)
    if len(fields) < FIELDS:
        return None
    try:
        shown = view is View.SHOWN
        version = fields[_VERSION] if shown else fields[_WRITTEN_VERSION] or fields[_VERSION]
        if fields[_FORM] == _WRITTEN:
            return _with_version(decode_core(fields[_BODY]), version)
        event = _recorded(fields, version, shown)
        return _overlaid(event, fields[_OVERLAY], fields[_ONCE]) if fields[_OVERLAY] or fields[_ONCE] else event
    except (
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:  # InvalidEvent and the errors of msgspec are ValueErrors
        raise PoisonBatch(DeadCause.UNREADABLE) from error


#: Larger events are not kept: as many of the largest as are kept would take 640 MB.
REMEMBERED_BYTES: Final = 2048


@lru_cache(maxsize=2)
def remembering(view: View) -> Callable[[bytes], Event | None]:
    """Return a `decode_stored` with a cache, for servers that list the same events repeatedly.

    The cache takes about 35 MB with usual events, 75 MB with messages of a kilobyte, and at most 100 MB. It is of no
    use for longer lists, which drop each event before they need it again.
    """
    remembered = lru_cache(maxsize=16384)(lambda packed: decode_stored(packed, view))
    return lambda packed: remembered(packed) if len(packed) <= REMEMBERED_BYTES else decode_stored(packed, view)


def is_written(packed: bytes) -> bool:
    """Return True if the event was written through the store, False if it was recorded."""
    return len(fields := _unpack(packed)) >= FIELDS and fields[_FORM] == _WRITTEN


def pack_written(event: Event) -> bytes:
    """Pack a checked event that is written through the store. The function that writes it sets the versions."""
    metadata, about = event.metadata, event.involved_object
    fields: list[Any] = [False] * FIELDS
    fields[_COUNT] = fields[_STORED_COUNT] = event.count
    fields[_FIRST], fields[_LAST] = _packed_time(event.first_timestamp), _packed_time(event.last_timestamp)
    fields[_NAME], fields[_NAMESPACE], fields[_ENTRY] = metadata.name, metadata.namespace, ""
    fields[_VERSION] = 0
    fields[_CREATED] = (microseconds(metadata.creation_timestamp) or 0) // 1000
    fields[_UID], fields[_FORM] = metadata.uid, _WRITTEN.decode()
    fields[_SUBJECT] = f"{metadata.namespace}/{about.kind.lower()}/{about.name}"
    fields[_BODY] = encode_checked(_with_version(event, "") if metadata.resource_version else event)
    return pack_argument(fields)


class Overlay(msgspec.Struct, frozen=True):
    """The changes of a recorded event: two JSON merge patches; b"" is an empty one.

    *lasting* applies as long as the event exists, *once* until the correlator counts its next repeat. *event* is the
    event with both.
    """

    lasting: bytes
    once: bytes
    event: Event


def lay_over(packed: bytes, new: Event) -> Overlay:
    """Return the overlay that turns the recorded event in *packed* into *new*.

    Raises: PoisonBatch: *packed* is no recorded event.
    """
    fields = _unpack(packed)
    event = _recorded(fields, fields[_VERSION], shown=True)
    patch = difference(to_core(event), to_core(new))
    if metadata := patch.get("metadata"):
        metadata.pop("resourceVersion", None)
    lasting = {key: value for key, value in patch.items() if key not in COUNTED and value != {}}
    once = {key: value for key, value in patch.items() if key in COUNTED}
    if new.times_seen < event.times_seen:  # read before the last repeats, which change no version
        once = {key: value for key, value in once.items() if key not in ("count", "lastTimestamp", "series")}
    stays, goes = (msgspec.json.encode(part) if part else b"" for part in (lasting, once))
    return Overlay(stays, goes, _overlaid(event, stays, goes))


def _recorded(fields: list[Any], version: int, shown: bool) -> Event:
    """Build the event with few calls, because lists have a hundred thousand events. Equal values share memory."""
    counted, first_us, name, namespace, _, count, last_us, _, created_ms, uid, message, form, _, body = fields[
        : _BODY + 1
    ]
    last_us = first_us if last_us is False else last_us
    if shown:
        count, last_us = counted, fields[_SEEN] or last_us
    if type(first_us) is not int or type(last_us) is not int:
        first_us, last_us = _time(first_us), _time(last_us)
    wire = unpack_wire(body)
    name = name.decode("utf-8", "replace") if type(name) is bytes else ""
    first_at = from_microseconds(first_us)
    source = _source(*wire.source)
    text = _text(message) if type(message) is bytes else wire.message
    component, instance = wire.reporting_component, wire.reporting_instance
    if len(_messages) >= _MOST_MESSAGES:
        _messages.clear()
    event = Event(
        metadata=ObjectMeta(
            name=name,
            namespace=intern(_text(namespace)),
            uid=open_uid(uid) or f"{name}@{created_ms}",
            resource_version=str(int(version)),
            creation_timestamp=_created(created_ms),
        ),
        involved_object=_reference(*wire.involved_object),
        reason=intern(wire.reason),
        message=_messages.setdefault(text, text),
        source=source,
        first_timestamp=first_at,
        # The same object if the event was not repeated: it is encoded once.
        last_timestamp=first_at if last_us == first_us else from_microseconds(last_us),
        count=count,
        type=intern(wire.type),
        # As in client-go, an aggregate has only some fields of its first event.
        reporting_component="" if form else source.component if component is None else intern(component),
        reporting_instance="" if form else source.host if instance is None else intern(instance),
    )
    if form == _SERIES:
        return _in_series(event, wire)
    return event if form or body[0] == _USUAL_BODY or not wire.has_more else _with_more(event, wire)


def _in_series(event: Event, wire: WireEvent) -> Event:
    """Return *event* in the form of events.k8s.io; its first event alone is no series."""
    controller, instance = wire.reporter
    return msgspec.structs.replace(
        _with_more(event, wire),
        event_time=event.first_timestamp,
        first_timestamp=None,
        last_timestamp=None,
        count=0,
        series=EventSeries(event.count, event.last_timestamp) if event.count > 1 else None,
        reporting_component=intern(controller),
        reporting_instance=intern(instance),
    )


def _with_more(event: Event, wire: WireEvent) -> Event:
    """Return *event* with the rare fields of *wire*."""
    return msgspec.structs.replace(
        event,
        metadata=msgspec.structs.replace(event.metadata, **more_metadata(wire)),
        event_time=from_microseconds(wire.event_us),
        series=EventSeries(wire.series[0], from_microseconds(wire.series[1])) if wire.series else None,
        action=intern(wire.action),
        related=None if wire.related is None else _reference(*wire.related),
    )


def _reference(
    kind: str = "", namespace: str = "", name: str = "", uid: str = "", api_version: str = "", *more: str
) -> ObjectReference:
    return ObjectReference(intern(kind), intern(namespace), name, uid, intern(api_version), *more)


#: Recent messages, each mapped to itself, so that equal messages share memory.
_messages: Final[dict[str, str]] = {}
#: With more, all are dropped. Finding the oldest would cost more if each event has its own message.
_MOST_MESSAGES: Final = 4096


@lru_cache(maxsize=4096)
def _source(component: str, host: str) -> EventSource:
    return EventSource(intern(component), intern(host))


@lru_cache(maxsize=4096)
def _created(ms: int) -> datetime | None:
    """Return the time. The cache helps because all events of a call have the same one."""
    return from_microseconds(ms * 1000)


def _overlaid(event: Event, lasting: bytes, once: bytes) -> Event:
    plain = to_core(event)
    changed = plain
    for part in (lasting, once):
        changed = merge(changed, msgspec.json.decode(part)) if part else changed
    new = from_core(changed)
    # JSON has whole seconds: a time that was not changed keeps its microseconds.
    kept = {
        attribute: getattr(event, attribute)
        for attribute, key in (("first_timestamp", "firstTimestamp"), ("last_timestamp", "lastTimestamp"))
        if changed.get(key) == plain.get(key)
    }
    metadata = msgspec.structs.replace(new.metadata, creation_timestamp=event.metadata.creation_timestamp)
    return msgspec.structs.replace(new, metadata=metadata, **kept)


def _with_version(event: Event, version: int | str) -> Event:
    metadata = msgspec.structs.replace(event.metadata, resource_version=str(version))
    return msgspec.structs.replace(event, metadata=metadata)


def _unpack(packed: bytes) -> list[Any]:
    try:
        fields = msgpack.unpackb(packed, raw=True)
    except ValueError as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error
    if not isinstance(fields, list) or len(fields) < 5:
        raise PoisonBatch(DeadCause.UNREADABLE)
    if len(fields) > _SOURCE:
        fields += [False] * (FIELDS - len(fields))
        first, created = fields[_FIRST], fields[_CREATED]
        if type(first) is int and type(created) is int and created < _LEAST_TIME:
            fields[_CREATED] = created + first // 1000
    return fields


def _text(value: Any) -> str:
    if type(value) is not bytes:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def _packed_time(moment: datetime | None) -> int | bool:
    us = microseconds(moment)
    return False if us is None else us


def _time(value: Any) -> int | None:
    return value if type(value) is int else int(value) if type(value) is float else None
