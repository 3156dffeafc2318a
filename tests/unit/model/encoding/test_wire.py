"""wire.py: any event comes back as it was; any bytes either are an event or are poison, and soon."""

from __future__ import annotations

import math
import os
import struct
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import lz4.block
import msgpack
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventbus.errors import PoisonBatch
from eventbus.model.encoding.wire import (
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_EVENT_BYTES,
    SCHEMA_VERSION,
    Batch,
    pack_batch,
    pack_event,
    pack_events,
    rename_batch,
    unpack_batch,
    unpack_event,
    unpack_wire,
)
from eventbus.model.event import Event, EventSource
from eventbus.model.formats import CODEC_LZ4, CODEC_NONE
from tests.builders import NOW, events, make_event, texts

#: An array as a recorder packs it, to be broken in one place.
GOOD = [
    *("web-0.1", "default", ["Pod", "default", "web-0", "uid", "v1", "7", "spec"], "Started", "message", "Normal"),
    *(["kubelet", "node-1"], 1, 2, 1, "component", "instance", 3, "action", [2, 4], ["Node", "", "node-1"]),
    *({"key": "value"}, {"label": "value"}, "web-"),
]


# -- events ---------------------------------------------------------------------------------------------------------


@given(events())
@example(make_event(reporting_component="", reporting_instance=""))
@example(make_event(source=EventSource(), reporting_component="", reporting_instance=""))
@example(make_event(count=0))
def test_any_event_comes_back_as_it_was(event: Event) -> None:
    """Except for what only the store knows: uid, version, creation. Its bytes are always the same."""
    meta = msgspec.structs.replace(event.metadata, uid="", resource_version="", creation_timestamp=None)
    packed = pack_event(event)
    assert unpack_event(packed) == msgspec.structs.replace(event, metadata=meta)
    assert pack_event(unpack_event(packed)) == packed


def test_what_recorders_send_is_ten_fields_long() -> None:
    array = msgpack.unpackb(pack_event(make_event()))
    us = int(NOW.timestamp()) * 1_000_000
    assert array == [
        make_event().metadata.name,
        "default",
        ["Pod", "default", "web-0", "uid-1", "v1"],
        "Started",
        "Started container web",
        "Normal",
        ["kubelet", "node-1"],
        us,
        us,
        1,
    ]


@pytest.mark.parametrize("length", range(7, len(GOOD) + 1))
def test_trailing_fields_may_be_left_out(length: int) -> None:
    event = unpack_event(msgpack.packb(GOOD[:length]))
    assert event.reason == "Started"
    assert event.count == 1
    assert (event.reporting_component, event.reporting_instance) == {
        True: ("component", "instance"),
        False: ("component" if length == 11 else "kubelet", "node-1"),
    }[length >= 12]


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert unpack_event(msgpack.packb([*GOOD, 0, "field 21", {"of": "a later version"}])).reason == "Started"


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), NOW]
)
def test_times_are_exact_to_the_microsecond_from_the_first_year_to_the_last(moment: datetime) -> None:
    event = make_event(first_timestamp=moment, last_timestamp=moment)
    assert unpack_event(pack_event(event)).first_timestamp == moment


# -- poison events --------------------------------------------------------------------------------------------------


def with_field(position: int, value: Any) -> bytes:
    packed: bytes = msgpack.packb([*GOOD[:position], value, *GOOD[position + 1 :]], unicode_errors="surrogatepass")
    return packed


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


POISON_EVENTS: dict[str, bytes] = {
    "nothing": b"",
    "no array": msgpack.packb("event"),
    "an empty array": msgpack.packb([]),
    "too few fields": msgpack.packb(GOOD[:6]),
    "cut in the middle": msgpack.packb(GOOD)[:-5],
    "more behind it": msgpack.packb(GOOD) + b"\x00",
    "a map instead": msgpack.packb({"reason": "x"}),
    "never used byte": b"\xc1",
    "array of four billion": b"\xdd\xff\xff\xff\xff",
    "map of four billion": b"\xdf\xff\xff\xff\xff",
    "string of four billion": b"\xdb\xff\xff\xff\xff",
    "bytes of four billion": b"\xc6\xff\xff\xff\xff",
    "extension of four billion": b"\xc9\xff\xff\xff\xff\x05",
    "deep": nested(500),
    "deeper than the stack": nested(MAX_EVENT_BYTES - 1),
    "an extension": with_field(3, msgpack.ExtType(5, b"x")),
    "an empty extension": with_field(3, msgpack.ExtType(5, b"")),
    "a timestamp": with_field(7, msgpack.Timestamp(1)),
    "bytes for text": with_field(3, b"Started"),
    "empty bytes for text": with_field(3, b""),
    "text that is not UTF-8": msgpack.packb(GOOD).replace(b"Started", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9"),
    "a lone surrogate": with_field(4, "\ud800"),
    "a number for text": with_field(3, 7),
    "nothing for text": with_field(3, None),
    "text for a time": with_field(7, "yesterday"),
    "not a number for a time": with_field(7, math.nan),
    "endless for a time": with_field(7, math.inf),
    "half a microsecond": with_field(7, 0.5),
    "a truth for a count": with_field(9, True),
    "not a number for a count": with_field(9, math.nan),
    "a time before the first year": with_field(7, -62_135_596_800_000_001),
    "a time after the last year": with_field(8, 253_402_300_800_000_000),
    "the largest number there is as a time": with_field(12, 2**64 - 1),
    "a count beyond 32 bits": with_field(9, 2**31),
    "a count far below zero": with_field(9, -(2**31) - 1),
    "a count of a series beyond 32 bits": with_field(14, [2**40, None]),
    "a series of one": with_field(14, [1]),
    "a source of three": with_field(6, ["a", "b", "c"]),
    "a source of none": with_field(6, []),
    "a reference of eight": with_field(2, [""] * 8),
    "another reference of eight": with_field(15, [""] * 8),
    "numbers in a reference": with_field(2, ["Pod", 1]),
    "a list of annotations": with_field(16, ["a", "b"]),
    "a number among annotations": with_field(16, {"a": 1}),
    "a number names an annotation": with_field(16, {1: "a"}),
    "65 annotations": with_field(16, {str(i): "" for i in range(65)}),
    "a reference that claims four billion fields": b"\x97\xa1n\xa2ns\xdd\xff\xff\xff\xff" + b"\xa1a" * 1_000,
    "16 KiB and one byte": with_field(4, "x" * MAX_EVENT_BYTES),
}


@pytest.mark.parametrize("packed", POISON_EVENTS.values(), ids=POISON_EVENTS.keys())
def test_what_is_no_event_is_poison(packed: bytes) -> None:
    with pytest.raises(PoisonBatch) as poison:
        unpack_wire(packed)
    assert poison.value.cause == ("too-long" if len(packed) > MAX_EVENT_BYTES else "unreadable")


def test_an_event_of_exactly_16_kib_is_fine() -> None:
    room = MAX_EVENT_BYTES - len(with_field(4, "x" * 300)) + 300
    packed = with_field(4, "x" * room)
    assert len(packed) == MAX_EVENT_BYTES
    assert len(unpack_wire(packed).message) == room


@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_poison(packed: bytes) -> None:
    readable_or_poison(lambda: unpack_event(packed))


@given(st.data())
def test_an_event_with_any_bytes_changed_is_an_event_or_poison(data: st.DataObject) -> None:
    packed = bytearray(msgpack.packb(GOOD))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    readable_or_poison(lambda: unpack_event(bytes(packed)))


#: Anything msgpack can say.
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts(5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts(3) | st.integers(0, 9), inner, max_size=3),
    max_leaves=10,
)


@given(st.integers(0, len(GOOD) - 1), values)
def test_an_event_with_anything_in_a_field_is_an_event_or_poison(position: int, value: Any) -> None:
    try:
        packed = with_field(position, value)
    except (UnicodeEncodeError, ValueError):
        return
    readable_or_poison(lambda: unpack_event(packed))


def readable_or_poison(read: Callable[[], Event]) -> None:
    """Check that what can be read can be packed and read again, and that everything else is PoisonBatch."""
    try:
        event = read()
    except PoisonBatch:
        return
    assert unpack_event(pack_event(event)) == event


# -- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_is_opened_without_looking_into_its_events() -> None:
    batch = unpack_batch(pack_batch("producer", 7, [b"", b"poison", pack_event(make_event())]))
    assert (batch.producer, batch.first, batch.events[:2]) == ("producer", 7, [b"", b"poison"])
    assert [batch.uid(position) for position in range(3)] == ["producer:7", "producer:8", "producer:9"]


def test_a_full_batch_can_be_opened() -> None:
    fullest = [b"x" * (MAX_BATCH_BYTES // MAX_BATCH_EVENTS - 16)] * MAX_BATCH_EVENTS
    assert unpack_batch(pack_batch("p" * 16, 2**53, fullest)).events == fullest
    largest = [b"x" * MAX_EVENT_BYTES] * 7
    assert unpack_batch(pack_batch("p" * 16, 1, largest)).events == largest


def in_lz4(block: bytes) -> bytes:
    """A batch that says that it is an LZ4 block."""
    packed: bytes = msgpack.packb([2, "p", 1, CODEC_LZ4, block])
    return packed


#: Of a batch that is good.
BLOCK: bytes = lz4.block.compress(msgpack.packb([b"event" * 100] * 4))


@pytest.mark.parametrize("count", [1, 2, 4, 8, 64])
def test_a_batch_holds_what_was_packed_whether_it_was_compressed_or_not(count: int) -> None:
    events = [pack_event(make_event(message=f"Successfully pulled image {n}")) for n in range(count)]
    packed = pack_events(events)
    assert packed.codec == (CODEC_LZ4 if count >= 8 else CODEC_NONE if count <= 2 else packed.codec)
    assert packed.events() == events
    assert unpack_batch(packed.body("p", 9)) == Batch("p", 9, events)
    assert unpack_batch(rename_batch(packed.body("p", 9), "q")) == Batch("q", 9, events)


def test_each_event_of_a_compressed_batch_can_be_buried_alone() -> None:
    batch = unpack_batch(pack_batch("p", 1, [pack_event(make_event())] * 64))
    assert unpack_batch(batch.alone(17)) == Batch("p", 18, [batch.events[17]])


def test_what_does_not_get_smaller_stays_as_it_is() -> None:
    assert pack_events([os.urandom(1000) for _ in range(64)]).codec == CODEC_NONE


def test_a_bomb_takes_no_memory() -> None:
    bomb = in_lz4(lz4.block.compress(bytes(30_000_000)))
    said_small = in_lz4(b"\x00\x00\x02\x00" + lz4.block.compress(bytes(30_000_000))[4:])
    tracemalloc.start()
    try:
        for body in (bomb, said_small):
            with pytest.raises(PoisonBatch) as poison:
                unpack_batch(body)
            assert poison.value.cause == "unreadable"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


POISON_BATCHES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "unreadable"),
    "text": (b"hello", "unreadable"),
    "a number": (msgpack.packb(1), "unknown-version"),
    "an empty array": (msgpack.packb([]), "unknown-version"),
    "the next version": (msgpack.packb([SCHEMA_VERSION + 1, "p", 1, 0, []]), "unknown-version"),
    "one as a truth": (msgpack.packb([True, "p", 1, 0, []]), "unknown-version"),
    "version two, as a fraction": (msgpack.packb([2.0, "p", 1, 0, []]), "unknown-version"),
    "too short": (msgpack.packb([2, "p", 1, 0]), "unreadable"),
    "too long by a field": (msgpack.packb([2, "p", 1, 0, [], None]), "unreadable"),
    "no producer": (msgpack.packb([2, None, 1, 0, []]), "unreadable"),
    "a long producer": (msgpack.packb([2, "p" * 257, 1, 0, []]), "unreadable"),
    "a producer in bytes": (msgpack.packb([2, b"p", 1, 0, []]), "unreadable"),
    "a sequence in text": (msgpack.packb([2, "p", "1", 0, []]), "unreadable"),
    "a truth for a sequence": (msgpack.packb([2, "p", True, 0, []]), "unreadable"),
    "one event instead of a list": (msgpack.packb([2, "p", 1, 0, b"event"]), "unreadable"),
    "an event that is not bytes": (msgpack.packb([2, "p", 1, 0, [b"", "text"]]), "unreadable"),
    "65 events": (msgpack.packb([2, "p", 1, 0, [b""] * 65]), "unreadable"),
    "an event of more than 16 KiB": (msgpack.packb([2, "p", 1, 0, [b"x" * (MAX_EVENT_BYTES + 1)]]), "unreadable"),
    "a map": (msgpack.packb([2, "p", 1, 0, [{"a": 1}]]), "unreadable"),
    "an extension": (msgpack.packb([2, "p", 1, 0, [msgpack.ExtType(1, b"")]]), "unreadable"),
    "more behind it": (pack_batch("p", 1, []) + b"\x00", "unreadable"),
    "cut": (pack_batch("p", 1, [b"12345"])[:-1], "unreadable"),
    "deeper than the stack": (nested(100_000), "unreadable"),
    "array of four billion": (b"\xdd" + struct.pack(">I", 2**32 - 1), "unreadable"),
    "a codec that nobody knows": (msgpack.packb([2, "p", 1, 2, b"packed"]), "unknown-codec"),
    "no LZ4 block": (in_lz4(b"packed"), "unreadable"),
    "an LZ4 block of nothing": (in_lz4(b""), "unreadable"),
    "LZ4, and a list": (msgpack.packb([2, "p", 1, 1, [b"event"]]), "unreadable"),
    "a block cut off": (in_lz4(BLOCK[:-1]), "unreadable"),
    "more behind a block": (in_lz4(BLOCK + b"\x00"), "unreadable"),
    "a block that holds more than it says": (in_lz4(b"\x01\x00\x00\x00" + BLOCK[4:]), "unreadable"),
    "a block that holds less than it says": (in_lz4(b"\x00\x00\x01\x00" + BLOCK[4:]), "unreadable"),
    "65 events in a block": (in_lz4(lz4.block.compress(msgpack.packb([b""] * 65))), "unreadable"),
    "text in a block": (in_lz4(lz4.block.compress(msgpack.packb(["text"] * 9))), "unreadable"),
    "an event of 16 KiB in a block": (
        in_lz4(lz4.block.compress(msgpack.packb([b"x" * (MAX_EVENT_BYTES + 1)]))),
        "unreadable",
    ),
    "a bomb that says 4 GiB": (in_lz4(b"\xff\xff\xff\xff" + BLOCK[4:]), "unreadable"),
    "a codec in text": (msgpack.packb([2, "p", 1, "0", []]), "unreadable"),
}


@pytest.mark.parametrize(("body", "cause"), POISON_BATCHES.values(), ids=POISON_BATCHES.keys())
def test_what_is_no_batch_is_poison(body: bytes, cause: str) -> None:
    with pytest.raises(PoisonBatch) as poison:
        unpack_batch(body)
    assert poison.value.cause == cause


def test_a_hundred_mib_of_empty_arrays_are_poison() -> None:
    """Not in the table, which each process of a run makes and keeps."""
    with pytest.raises(PoisonBatch) as poison:
        unpack_batch(b"\x95\x02\xa1p\x01\x00\xdc\xff\xff" + b"\x90" * (100 * 1024 * 1024))
    assert poison.value.cause == "too-long"


@given(st.binary(max_size=300) | st.tuples(st.just(1), texts(), st.integers(0, 2**64 - 1), values).map(msgpack.packb))
def test_any_bytes_are_a_batch_or_poison(body: bytes) -> None:
    try:
        batch = unpack_batch(body)
    except PoisonBatch:
        return
    assert unpack_batch(pack_batch(batch.producer, batch.first, batch.events)) == batch
