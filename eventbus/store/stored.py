"""Decodes a stored event from its packed form in Redis, and packs it. The layout is that of objects.lua."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgpack
import msgspec

from eventbus.broker.functions import pack_argument
from eventbus.encoding.event_json import decode_core, encode_core, from_core, to_core
from eventbus.encoding.wire import from_microseconds, microseconds, more_metadata, unpack_wire
from eventbus.errors import DeadCause, PoisonBatch
from eventbus.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference
from eventbus.store.merge_patch import difference, merge

#: FORM of an event that was written through the store: its body is JSON. Others are recorded ones'.
_WRITTEN: Final = "w"

FIELDS: Final = 21


class _Stored(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The array as it lies in Redis, typed in the step that unpacks it. False stands for what is not there.

    The first five outlive the event. Times are µs since 1970, *created_ms* ms."""

    count: int
    first: int | float | bool
    name: str
    namespace: str
    entry: Any
    stored_count: int
    last: int | float | bool
    version: int
    created_ms: int
    uid: str | bool
    message: str | bool
    form: str | bool
    subject: Any
    body: msgspec.Raw
    held: Any
    written_version: int | bool
    seen: int | float | bool
    due: Any
    changed: Any
    overlay: str | bool
    once: str | bool


_unpack_array: Final = msgspec.msgpack.Decoder(_Stored).decode
#: Positions of what is text in a `_Stored`.
_TEXTS: Final = {_Stored.__struct_fields__.index(name) for name in ("name", "namespace", "uid", "message", "form")}
_BODY: Final = _Stored.__struct_fields__.index("body")
#: Bytes of the head of a msgpack string, or of binary, by its first byte.
_HEADS: Final = dict.fromkeys(range(0xA0, 0xC0), 1) | {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xC4: 2, 0xC5: 3, 0xC6: 5}

#: What the correlator decides anew at each repeat: a patch of these holds until then, others until the event goes.
COUNTED: Final = frozenset({"count", "firstTimestamp", "lastTimestamp", "eventTime", "message", "series"})


class View(Enum):
    """One of the two views of an event's count, time and version."""

    SHOWN = "shown"  #: what happened: every repeat, when it was counted
    WRITTEN = "written"  #: what client-go would have sent: not the repeats that were held back


def decode_stored(packed: bytes, view: View = View.SHOWN) -> Event | None:
    """Decode a stored event with name, count, times and version as *view* has them; None if only counts are left.

    Raises: PoisonBatch: the value is not ours.
    """
    stored = _unpack(packed)
    if stored is None:
        return None
    try:
        shown = view is View.SHOWN
        version = stored.version if shown else stored.written_version or stored.version
        if stored.form == _WRITTEN:
            return _with_version(decode_core(bytes(_body(stored))), version)
        event = _recorded(stored, version, shown)
        return _overlaid(event, stored.overlay, stored.once) if stored.overlay or stored.once else event
    except (
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:  # InvalidEvent and msgspec's are ValueErrors
        raise PoisonBatch(DeadCause.UNREADABLE) from error


@lru_cache(maxsize=2)
def remembering(view: View) -> Callable[[bytes], Event | None]:
    """Return a `decode_stored` for those who list the same events again and again: it keeps some 30 MB at the most."""
    return lru_cache(maxsize=8192)(lambda packed: decode_stored(packed, view))


def is_written(packed: bytes) -> bool:
    """Return True if the event was written through the store, False if it was recorded."""
    stored = _unpack(packed)
    return stored is not None and stored.form == _WRITTEN


def pack_written(event: Event) -> bytes:
    """Pack an event that is written through the store. Versions are filled in where it is written.

    Raises: InvalidEvent: it cannot be JSON.
    """
    metadata, about = event.metadata, event.involved_object
    count = event.count
    first, last = _packed_time(event.first_timestamp), _packed_time(event.last_timestamp)
    created_ms = (microseconds(metadata.creation_timestamp) or 0) // 1000
    subject = f"{metadata.namespace}/{about.kind.lower()}/{about.name}"
    body = encode_core(_with_version(event, ""))
    fields = [count, first, metadata.name, metadata.namespace, "", count, last, 0, created_ms, metadata.uid]
    fields += [False, _WRITTEN, subject, body]
    return pack_argument(fields + [False] * (FIELDS - len(fields)))


class Overlay(msgspec.Struct, frozen=True):
    """The changes laid over a recorded event: two JSON merge patches, b"" for one that changes nothing.

    *lasting* holds as long as the event exists, *once* until the correlator counts its next repeat. With both applied
    it reads as *event*.
    """

    lasting: bytes
    once: bytes
    event: Event


def lay_over(packed: bytes, new: Event) -> Overlay:
    """Compute the overlay that makes the recorded event in *packed* read as *new*.

    Raises: PoisonBatch: *packed* is no recorded event.
    """
    stored = _unpack(packed)
    if stored is None:
        raise PoisonBatch(DeadCause.UNREADABLE)
    event = _recorded(stored, stored.version, shown=True)
    patch = difference(to_core(event), to_core(new))
    if metadata := patch.get("metadata"):
        metadata.pop("resourceVersion", None)
    lasting = {key: value for key, value in patch.items() if key not in COUNTED and value != {}}
    once = {key: value for key, value in patch.items() if key in COUNTED}
    if new.count < event.count:  # read before the last repeats, which no version tells of: the running count is right
        once = {key: value for key, value in once.items() if key not in ("count", "lastTimestamp")}
    stays, goes = (msgspec.json.encode(part) if part else b"" for part in (lasting, once))
    return Overlay(stays, goes, _overlaid(event, stays, goes))


def _recorded(stored: _Stored, version: int, shown: bool) -> Event:
    """Build the event in one go: in a list of a hundred thousand each step counts.

    What thousands of events have in common is in memory once."""
    wire, message = unpack_wire(_body(stored)), stored.message
    first_us, last_us = _time(stored.first), _time((shown and stored.seen) or stored.last)
    # client-go's aggregate is a fresh event: it keeps only some fields of the one it was made from.
    fresh = bool(stored.form)
    first_at = from_microseconds(first_us)
    source = _source(*wire.source)
    component, instance = ("", "") if fresh else (wire.reporting_component, wire.reporting_instance)
    metadata = ObjectMeta(
        name=stored.name,
        namespace=_shared(stored.namespace),
        uid=stored.uid or f"{stored.name}@{stored.created_ms}",
        resource_version=str(int(version)),
        creation_timestamp=from_microseconds(stored.created_ms * 1000),
    )
    if not fresh and (wire.labels or wire.annotations or wire.generate_name):
        metadata = msgspec.structs.replace(metadata, **more_metadata(wire))
    return Event(
        metadata=metadata,
        involved_object=_reference(*wire.involved_object),
        reason=_shared(wire.reason),
        message=_shared_message(message if type(message) is str else wire.message),
        source=source,
        first_timestamp=first_at,
        # Of an event that was not repeated it is the same object, which is encoded once.
        last_timestamp=first_at if last_us == first_us else from_microseconds(last_us),
        count=stored.count if shown else stored.stored_count,
        type=_shared(wire.type),
        event_time=None if fresh or wire.event_us is None else from_microseconds(wire.event_us),
        series=None if fresh or not wire.series else EventSeries(wire.series[0], from_microseconds(wire.series[1])),
        action="" if fresh else wire.action,
        related=None if fresh or wire.related is None else _reference(*wire.related),
        reporting_component=source.component if component is None else _shared(component),
        reporting_instance=source.host if instance is None else _shared(instance),
    )


def _reference(
    kind: str = "", namespace: str = "", name: str = "", uid: str = "", api_version: str = "", *more: str
) -> ObjectReference:
    return ObjectReference(_shared(kind), _shared(namespace), name, uid, _shared(api_version), *more)


def _itself(text: str) -> str:
    return text


_shared: Final = lru_cache(maxsize=4096)(_itself)
#: Fewer, since many are of one event alone, and up to 1 KB long.
_shared_message: Final = lru_cache(maxsize=1024)(_itself)
_source: Final = lru_cache(maxsize=4096)(lambda component, host: EventSource(_shared(component), _shared(host)))


def _overlaid(event: Event, lasting: str | bytes | bool, once: str | bytes | bool) -> Event:
    plain = to_core(event)
    changed = plain
    for part in (lasting, once):
        changed = merge(changed, msgspec.json.decode(part)) if part else changed
    new = from_core(changed)
    # JSON has whole seconds: what nobody changed keeps its microseconds.
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


def _unpack(packed: bytes) -> _Stored | None:
    """Unpack a stored event; None: only the counts of one are left. Raises: PoisonBatch: the value is not ours."""
    try:
        return _unpack_array(packed)
    except (ValueError, RecursionError):
        return _unpack_slowly(packed)


def _unpack_slowly(packed: bytes) -> _Stored | None:
    """Unpack what is not as it should be, text that is not UTF-8 for one: a reader shows what can be shown."""
    try:
        fields = msgpack.unpackb(packed, raw=True)
    except ValueError as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error
    if not isinstance(fields, list) or len(fields) < 5:
        raise PoisonBatch(DeadCause.UNREADABLE)
    if len(fields) < FIELDS:
        return None
    values: list[Any] = [_text(value) if n in _TEXTS and value else value for n, value in enumerate(fields[:FIELDS])]
    values[_BODY] = msgspec.Raw(msgpack.packb(fields[_BODY]))
    return _Stored(*values)


def _body(stored: _Stored) -> memoryview:
    """Return the bytes of the body, without the head that says how many they are; none if it is no string."""
    body = memoryview(stored.body)
    return body[_HEADS.get(body[0], len(body)) :]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if type(value) is bytes else ""


def _packed_time(moment: datetime | None) -> int | bool:
    us = microseconds(moment)
    return False if us is None else us


def _time(value: Any) -> int | None:
    return value if type(value) is int else int(value) if type(value) is float else None


__all__ = [
    "COUNTED",
    "View",
    "decode_stored",
    "is_written",
    "lay_over",
    "pack_written",
]
