"""The wire format: one event as a msgpack array, and a record batch as one stream entry. See docs/wire.md.

Only `record/packing.py`, `correlate/keys.py` and `broker/lua/correlation.lua` use the positions as well. msgpack packs
and unpacks entries. msgspec writes and reads the events in them: the same format, but it decodes to typed values in one
step and reports wrong types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import lz4.block
import msgpack
import msgspec

from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference
from eventbus.model.formats import BASELINE_CODECS, CODEC_LZ4, CODEC_NONE

SCHEMA_VERSION = 2
MAX_BATCH_EVENTS = 64  #: events in one stream entry: bounds the cost of a redelivery
MAX_BATCH_BYTES = 128 * 1024  #: the same in bytes, packed and opened
MAX_EVENT_BYTES = 16 * 1024  #: one packed event; checked before it is unpacked
MAX_PAIRS = 64  #: labels, or annotations, of an event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: 2041; up to here a float of seconds rounds to its own microsecond (quarters of one, with a bit to spare)
_EXACT_US = 2**51

#: An event as bytes. The same bytes as msgpack makes, in half the time.
pack_array = msgspec.msgpack.Encoder().encode

#: The ranges of a datetime and of core/v1's int32. A larger value could be stored but never be read again.
_MOST_US: Final = 253_402_300_799_999_999
Microseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, le=_MOST_US)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: A reference has seven fields.
Reference: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=7)]
Pairs: TypeAlias = Annotated[dict[str, str], msgspec.Meta(max_length=MAX_PAIRS)]


class WireEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event in the wire format. Times are µs since 1970; trailing defaults may be left out.

    *reporting_component* and *reporting_instance* None mean "as in source"; recorders send None. *in_series* is 1 if
    its repeats form a series (events.k8s.io), 0 if they raise its count.
    """

    name: str
    namespace: str
    involved_object: Reference
    reason: str
    message: str
    type: str
    source: tuple[str, str]
    first_us: Microseconds | None = None
    last_us: Microseconds | None = None
    count: Count = 1
    reporting_component: str | None = None
    reporting_instance: str | None = None
    event_us: Microseconds | None = None
    action: str = ""
    series: tuple[Count, Microseconds | None] | None = None
    related: Reference | None = None
    annotations: Pairs | None = None
    labels: Pairs | None = None
    generate_name: str = ""
    in_series: int = 0

    @property
    def reporter(self) -> tuple[str, str]:
        """Return reportingComponent and reportingInstance, filled in."""
        component, instance = self.reporting_component, self.reporting_instance
        return (
            self.source[0] if component is None else component,
            self.source[1] if instance is None else instance,
        )

    @property
    def has_more(self) -> bool:
        """Return True if a field after the reporter is set, as in few events."""
        few = self.event_us is not None or self.action or self.series or self.related is not None
        return bool(few or self.annotations or self.labels or self.generate_name)


_unpack_array = msgspec.msgpack.Decoder(decodable(WireEvent)).decode
#: Unpacks an event of ten fields, as nearly all are. A tuple is faster than a struct.
_unpack_usual = msgspec.msgpack.Decoder(
    decodable(
        tuple[str, str, Reference, str, str, str, tuple[str, str], Microseconds | None, Microseconds | None, Count]
    )
).decode


PackedEvent: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_EVENT_BYTES)]
_unpack_content: Callable[[bytes], list[bytes]] = msgspec.msgpack.Decoder(
    decodable(Annotated[list[PackedEvent], msgspec.Meta(max_length=MAX_BATCH_EVENTS)])
).decode


class PackedEvents(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The encoded events of a batch: *content* is their msgpack array, compressed with *codec*."""

    codec: int
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH_EVENTS)]
    content: Annotated[bytes, msgspec.Meta(max_length=MAX_BATCH_BYTES)]

    def events(self) -> list[bytes]:
        """Open it. Raises: PoisonBatch."""
        events = _open(self.codec, _unpack(self.content) if self.codec == CODEC_NONE else self.content)
        if len(events) != self.count:
            raise PoisonBatch(DeadCause.UNREADABLE)
        return events

    def body(self, producer: str, first: int) -> bytes:
        """Return the body of a stream entry that holds them, from sequence *first* of *producer* on."""
        if self.codec == CODEC_NONE:
            return b"\x95" + pack_array((SCHEMA_VERSION, producer, first, CODEC_NONE))[1:] + self.content
        return pack_array((SCHEMA_VERSION, producer, first, self.codec, self.content))


def pack_events(events: Sequence[bytes], codecs: Collection[int] = BASELINE_CODECS) -> PackedEvents:
    """Pack events, at most MAX_BATCH_EVENTS, each by itself; compressed where that pays: mostly from four on.

    *codecs*: those that the bus lets producers use.
    """
    content = pack_array(events)
    compressed = compress(content) if CODEC_LZ4 in codecs else None
    if compressed is None:
        exact = bytes(memoryview(content))  # msgspec's buffer has spare capacity at its end, which no size counts
        return PackedEvents(CODEC_NONE, len(events), exact)
    return PackedEvents(CODEC_LZ4, len(events), compressed)


class Batch(msgspec.Struct, frozen=True, gc=False):
    """An opened record batch: the events are still packed, each by itself."""

    producer: str
    first: int
    events: list[bytes]

    def uid(self, position: int) -> str:
        """Return the uid of the event at *position* (from 0): `producer:sequence`."""
        return f"{self.producer}:{self.first + position}"

    def uids(self) -> list[str]:
        """Return the uids of all its events."""
        return [f"{self.producer}:{number}" for number in range(self.first, self.first + len(self.events))]

    def alone(self, position: int) -> bytes:
        """Pack the event at *position* as a separate batch with the same uid, for the dead letters."""
        return pack_batch(self.producer, self.first + position, [self.events[position]])


def pack_batch(producer: str, first: int, events: Sequence[bytes]) -> bytes:
    """Pack the body of one stream entry."""
    return pack_events(events).body(producer, first)


def unpack_batch(body: bytes) -> Batch:
    """Open a batch without looking into its events.

    Raises: PoisonBatch: the bytes are no batch of this version.
    """
    producer, first, codec, packed = _unpack_parts(body)
    return Batch(producer, first, _open(codec, packed))


def rename_batch(body: bytes, producer: str) -> bytes:
    """Return a batch that can be opened as another producer's; its events stay packed. Raises: PoisonBatch."""
    _, first, codec, packed = _unpack_parts(body)
    return pack_array((SCHEMA_VERSION, producer, first, codec, packed))


def _unpack_parts(body: bytes) -> tuple[str, int, int, Any]:
    """Return a batch's producer, first sequence, codec and encoded content. Raises: PoisonBatch."""
    if len(body) > MAX_BATCH_BYTES:
        raise PoisonBatch(DeadCause.TOO_LONG)
    parts = _unpack(body)
    if not isinstance(parts, list) or not parts or type(parts[0]) is not int or parts[0] != SCHEMA_VERSION:
        raise PoisonBatch(DeadCause.UNKNOWN_VERSION)
    if len(parts) != 5 or type(parts[1]) is not str or type(parts[2]) is not int or type(parts[3]) is not int:
        raise PoisonBatch(DeadCause.UNREADABLE)
    return parts[1], parts[2], parts[3], parts[4]


def _open(codec: int, packed: Any) -> list[bytes]:
    """Return the events in *packed*, decoded with *codec*. Raises: PoisonBatch."""
    if codec not in BASELINE_CODECS:
        raise PoisonBatch(DeadCause.UNKNOWN_CODEC)
    if codec == CODEC_LZ4:
        try:
            return _unpack_content(decompress(packed, MAX_BATCH_BYTES) if type(packed) is bytes else b"")
        except ValueError as error:
            raise PoisonBatch(DeadCause.UNREADABLE) from error
    if type(packed) is not list or not all(type(event) is bytes and len(event) <= MAX_EVENT_BYTES for event in packed):
        raise PoisonBatch(DeadCause.UNREADABLE)
    return packed


def _unpack(packed: bytes) -> Any:
    try:
        return msgpack.unpackb(
            packed,
            max_str_len=256,
            max_bin_len=MAX_BATCH_BYTES,
            max_array_len=MAX_BATCH_EVENTS,
            max_map_len=0,
            max_ext_len=0,
            ext_hook=_no_extension,
        )
    except (ValueError, RecursionError) as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error


def unpack_wire(packed: bytes) -> WireEvent:
    """Unpack one event's array into a typed value."""
    if len(packed) > MAX_EVENT_BYTES:
        raise PoisonBatch(DeadCause.TOO_LONG)
    try:
        return _unpack_array(packed)
    except (ValueError, RecursionError) as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error


#: A recorder's event is ten long, and ends in two times of nine bytes and a count of one.
USUAL_HEAD, STRIPPED_END = 0x9A, 19
_USUAL = bytes([USUAL_HEAD])
_END = struct.Struct(">BQBQB")
_pack_end, _unpack_end = _END.pack, _END.unpack_from
_NINE_BYTES = 0xCF
#: The stored body's replacement for the array's head, name and namespace.
_HEAD = b"\x97\xa0\xa0"
STRIPPED_HEAD = len(_HEAD)


def stored_body(packed: bytes, event: WireEvent) -> bytes:
    """Return *packed*, which decodes to *event*, without the separately stored name, namespace, times and count.

    So the bodies of an event's repeats are the same. An unusual shape is returned unchanged."""
    first, last = event.first_us, event.last_us
    if packed[0] != USUAL_HEAD or first is None or last is None or first < 0 or last < 0:
        return packed
    # Compare all bytes: other libraries may pack the same numbers in other lengths.
    if packed[-STRIPPED_END:] != _pack_end(_NINE_BYTES, first, _NINE_BYTES, last, 1):
        return packed
    after = 1
    for _ in range(2):
        head = packed[after]
        if head & 0xE0 == 0xA0:
            after += 1 + (head & 0x1F)
        elif head == 0xD9:
            after += 2 + packed[after + 1]
        else:
            return packed
    return _HEAD + packed[after:-STRIPPED_END]


def last_of_repeat(packed: bytes, namespace: bytes, body_at: int) -> int | None:
    """Return the last time of an event with the packed *namespace*, then from *body_at* a body that is already known.

    None: it is not of the usual shape. Else `unpack_wire` can unpack it."""
    head = packed[1]
    if head & 0xE0 == 0xA0:
        start = 2
        end = start + (head & 0x1F)
    elif head == 0xD9:
        start = 3
        end = start + packed[2]
    else:
        return None
    first_us: int
    last_us: int
    nine, first_us, nine_too, last_us, count = _unpack_end(packed, len(packed) - STRIPPED_END)
    if packed[0] != USUAL_HEAD or packed[end:body_at] != namespace or not nine == nine_too == _NINE_BYTES:
        return None
    if count != 1 or first_us > _MOST_US or last_us > _MOST_US or len(packed) > MAX_EVENT_BYTES:
        return None
    return last_us if packed[start:end].isascii() else None


def pack_event(event: Event) -> bytes:
    """Pack any Event as one array; fields that only the store sets (uid, resourceVersion, creation) do not travel."""
    meta, source = event.metadata, event.source
    component: str | None = event.reporting_component
    instance: str | None = event.reporting_instance
    if (component, instance) == (source.component, source.host):
        component = instance = None
    series = event.series
    array: list[Any] = [
        meta.name,
        meta.namespace,
        reference_array(event.involved_object),
        event.reason,
        event.message,
        event.type,
        (source.component, source.host),
        microseconds(event.first_timestamp),
        microseconds(event.last_timestamp),
        event.count,
        component,
        instance,
        microseconds(event.event_time),
        event.action,
        series and (series.count, microseconds(series.last_observed_time)),
        event.related and reference_array(event.related),
        meta.annotations or None,
        meta.labels or None,
        meta.generate_name,
    ]
    # An explicitly empty reporter must be sent, or it would be read as "as in source".
    least = 10 if component is None else 12
    while len(array) > least and array[-1] in (None, ""):
        array.pop()
    packed: bytes = msgpack.packb(array)
    return packed


def unpack_event(packed: bytes, uid: str = "") -> Event:
    """Unpack one event, with the *uid* from its batch. Raises: PoisonBatch."""
    if packed[:1] != _USUAL or len(packed) > MAX_EVENT_BYTES:
        return _unpack_unusual(packed, uid)
    try:
        name, namespace, about, reason, message, kind, source, first_us, last_us, count = _unpack_usual(packed)
    except (ValueError, RecursionError) as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error
    component, host = source
    if first_us is not None and 0 <= first_us < _EXACT_US:
        first: datetime | None = datetime.fromtimestamp(first_us / 1e6, UTC)  # as `from_microseconds`, without a call
    else:
        first = from_microseconds(first_us)
    # Fields that are not passed here have their defaults: passing them would slow down all.
    return Event(
        metadata=ObjectMeta(name, "", namespace, uid),
        involved_object=ObjectReference(*about),
        reason=reason,
        message=message,
        source=EventSource(component, host),
        first_timestamp=first,
        last_timestamp=first if last_us == first_us else from_microseconds(last_us),
        count=count,
        type=kind,
        reporting_component=component,
        reporting_instance=host,
    )


def _unpack_unusual(packed: bytes, uid: str) -> Event:
    wire = unpack_wire(packed)
    component, instance = wire.reporter
    return Event(
        metadata=ObjectMeta(name=wire.name, namespace=wire.namespace, uid=uid, **more_metadata(wire)),
        involved_object=ObjectReference(*wire.involved_object),
        reason=wire.reason,
        message=wire.message,
        source=EventSource(*wire.source),
        first_timestamp=from_microseconds(wire.first_us),
        last_timestamp=from_microseconds(wire.last_us),
        count=wire.count,
        type=wire.type,
        event_time=from_microseconds(wire.event_us),
        series=EventSeries(wire.series[0], from_microseconds(wire.series[1])) if wire.series else None,
        action=wire.action,
        related=None if wire.related is None else ObjectReference(*wire.related),
        reporting_component=component,
        reporting_instance=instance,
    )


def more_metadata(wire: WireEvent) -> dict[str, Any]:
    """Return the fields of its metadata that few events have."""
    return {
        "generate_name": wire.generate_name,
        "labels": wire.labels or {},
        "annotations": wire.annotations or {},
    }


def reference_array(reference: ObjectReference) -> tuple[str, ...]:
    """Return the reference's fields without the trailing empty ones."""
    array: tuple[str, ...] = msgspec.structs.astuple(reference)
    length = 7
    while length and not array[length - 1]:
        length -= 1
    return array[:length]


def microseconds(moment: datetime | None) -> int | None:
    """Return µs since 1970, exact."""
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(us: int | None) -> datetime | None:
    """Return the time as an aware datetime in UTC. Raises: PoisonBatch: out of a datetime's range."""
    if us is None:
        return None
    if 0 <= us < _EXACT_US:
        return datetime.fromtimestamp(us / 1e6, UTC)
    try:
        seconds, rest = divmod(us, 1_000_000)
        return _EPOCH + timedelta(0, seconds, rest)
    except OverflowError as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error


def _no_extension(code: int, _data: bytes) -> None:
    raise ValueError(f"extension type {code} is not part of the format")


#: Bytes of a packed uid: eight of the producer, which has 16 hex digits, then the sequence, most significant first.
_PRODUCER: Final = 8
_PACKED: Final = range(_PRODUCER + 1, 2 * _PRODUCER + 1)

#: Bytes, or a text. A text as long as packed bytes is in an array, to distinguish it.
PackedUid: TypeAlias = bytes | str | tuple[str]


def pack_uid(producer: str, sequence: int) -> PackedUid:
    """Return the stored form of an event's uid."""
    packed = _producer_bytes(producer)
    if packed is not None and 0 <= sequence < 1 << 64:
        return packed + sequence.to_bytes((sequence.bit_length() + 7) // 8 or 1, "big")
    uid = f"{producer}:{sequence}"
    return (uid,) if len(uid.encode("utf-8", "surrogatepass")) in _PACKED else uid


def open_uid(stored: Any) -> str:
    """Return the uid of the form that `pack_uid` stores, unpacked with `raw`; "" if there is none."""
    if type(stored) is list and len(stored) == 1:
        stored = stored[0]
    elif type(stored) is bytes and len(stored) in _PACKED:
        return f"{stored[:_PRODUCER].hex()}:{int.from_bytes(stored[_PRODUCER:], 'big')}"
    return stored.decode("utf-8", "replace") if type(stored) is bytes else ""


@lru_cache(maxsize=4096)
def _producer_bytes(producer: str) -> bytes | None:
    try:
        packed = bytes.fromhex(producer)
    except ValueError:
        return None
    return packed if len(packed) == _PRODUCER and packed.hex() == producer else None


#: Smaller contents are not compressed: a single event has little repetition, and its latency matters.
LEAST_BYTES = 768
#: The share of the size that compression must save; else the cost of decompression has no benefit.
LEAST_SAVED = 1 / 8
_SIZE_BYTES = 4


def compress(content: bytes) -> bytes | None:
    """Return *content* as an LZ4 block, prefixed with its size (4 bytes, little-endian). None: it saves too little."""
    if len(content) < LEAST_BYTES:
        return None
    block: bytes = lz4.block.compress(content)
    return block if len(block) <= len(content) * (1 - LEAST_SAVED) else None


def decompress(block: bytes, most: int) -> bytes:
    """Return the content of *block*.

    The stated size is checked against *most* before memory is allocated, and no more bytes than that are written.

    Raises: ValueError: the stated size is larger than *most*, or *block* is not an LZ4 block with a size.
    """
    stated = int.from_bytes(block[:_SIZE_BYTES], "little")
    if stated > most:
        raise ValueError(f"opens to {stated} bytes, at most {most}")
    try:
        content: bytes = lz4.block.decompress(block)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from None
    return content
