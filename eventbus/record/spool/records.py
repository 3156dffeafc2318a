"""The format of a spool file, which is only ever appended to or replaced as a whole.

`EBSPOOL2` and a newline, then records: length and CRC-32 of the payload, four bytes each, most significant first, then
the payload: a msgpack array that begins with the record's type. The first record is the header. Times are stamps
from which another process can measure, also after a reboot.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from eventbus.errors import PoisonBatch
from eventbus.model.decodable import decodable
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, MAX_EVENT_BYTES, PackedEvents
from eventbus.util.clock import Clock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """A moment by two clocks: ms since 1970, which may be set, and ms since the boot, with time asleep."""

    wall_ms: int
    boot_ms: int


class MachineTime:
    """Makes stamps and measures their age. *boot*: the id of this boot; empty: unknown."""

    def __init__(self, clock: Clock, *, boot: str | None = None) -> None:
        self._clock = clock
        self.boot = _read_boot_id() if boot is None else boot

    def ago(self, ms: int) -> Stamp:
        """Return the moment *ms* ago."""
        return Stamp(self._clock.time_ns() // 1_000_000 - ms, since_boot_ms() - ms)

    def since_ms(self, stamp: Stamp, boot: str) -> int:
        """Return the ms since *stamp*, made during *boot*; by the wall clock only after a reboot."""
        if boot and boot == self.boot:
            return max(0, since_boot_ms() - stamp.boot_ms)
        return max(0, self._clock.time_ns() // 1_000_000 - stamp.wall_ms)


def _read_boot_id() -> str:
    """Read the id of this boot; empty if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def since_boot_ms() -> int:
    """Return the ms since the boot, or since an unknown moment if there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


MAGIC = b"EBSPOOL2\n"
_HEAD = struct.Struct(">II")
#: bytes of a payload at most: more than a full batch with its head
MAX_PAYLOAD = 2 * 1024 * 1024

_Word: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]
_Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1023)]
_Packed: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_EVENT_BYTES)]
_Events: TypeAlias = Annotated[list[_Packed], msgspec.Meta(min_length=1, max_length=MAX_BATCH_EVENTS)]
_Losses: TypeAlias = tuple[tuple[_Word, int], ...]


class ProducerIdentity(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a producer: *id* is in the uids of its events, *secret* in the key of its state in Redis."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,30}$")]
    secret: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{16}$")]


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """The owner of a spool. Until the bus was reached *bus_id* is empty and *partitions* is 0."""

    bus_id: _Word
    address: _Word  #: where that process looked for the bus; without a password
    prefix: _Word
    partitions: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    boot: _Word
    host: _Word
    pid: int
    started_ms: int


class KeptBatch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """A numbered batch. *accepted*: when Redis last accepted a batch of its producer."""

    partition: _Partition
    producer: ProducerIdentity
    first: _Sequence
    generation: _Word
    accepted: Stamp
    losses: _Losses
    packed: PackedEvents

    @property
    def last(self) -> int:
        """Return the sequence number of its last event."""
        return self.first + self.packed.count - 1


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Redis has all events of *producer* up to *last*."""

    partition: _Partition
    producer: ProducerIdentity
    last: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    generation: _Word
    accepted: Stamp


class Unplaced(msgspec.Struct, frozen=True, array_like=True, tag="unplaced"):
    """Events that were never sent: their process did not know the number of partitions yet."""

    events: _Events


Record: TypeAlias = Header | KeptBatch | Acknowledged | Unplaced

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(decodable(Record)).decode


def encode(record: Record) -> bytes:
    """Encode one record for the file."""
    payload = _encode(record)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def encode_file(header: Header, records: Iterable[Record] = ()) -> bytes:
    """Encode a whole file."""
    return b"".join((MAGIC, encode(header), *map(encode, records)))


class Line:
    """The waiting batches of one producer in a file, by their first sequence."""

    def __init__(self, partition: int, producer: ProducerIdentity) -> None:
        self.partition = partition
        self.producer = producer
        self.batches: dict[int, KeptBatch] = {}
        self.generation = ""
        self.accepted: Stamp | None = None

    def add(self, record: KeptBatch | Acknowledged) -> None:
        """Take the next record of this producer."""
        self.generation, self.accepted = record.generation, record.accepted
        if isinstance(record, KeptBatch):
            self.batches[record.first] = record
        else:
            self.batches = {first: batch for first, batch in self.batches.items() if batch.last > record.last}

    def in_order(self) -> list[KeptBatch]:
        """Return the waiting batches, oldest first."""
        return [self.batches[first] for first in sorted(self.batches)]


class Contents(msgspec.Struct):
    """The readable part of a file, up to the byte *end*. *problem*: why it ends there; empty: the file ends."""

    header: Header | None = None
    lines: dict[tuple[int, ProducerIdentity], Line] = {}
    unplaced: list[bytes] = []
    end: int = 0
    problem: str = ""
    torn: bool = False  #: the last record is incomplete: the process, the disk or the power failed during its write

    @property
    def events(self) -> int:
        """Count the events that wait in it."""
        kept = (batch for line in self.lines.values() for batch in line.batches.values())
        return len(self.unplaced) + sum(batch.packed.count for batch in kept)

    def _add(self, record: Record) -> None:
        if isinstance(record, Header):
            raise ValueError("a second header")
        if isinstance(record, Unplaced):
            self.unplaced += record.events
            return
        key = (record.partition, record.producer)
        self.lines.setdefault(key, Line(*key)).add(record)


def read(data: bytes) -> Contents:
    """Read the complete records of a file. Raises nothing, with any bytes."""
    contents = Contents()
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            contents.problem, contents.torn = "nothing was written yet", True
        else:
            contents.problem = "no spool file of a format that this build knows"
        return contents
    contents.end = len(MAGIC)
    while contents.end < len(data) and not contents.problem:
        _read_next(data, contents)
    if contents.header is None and not contents.problem:
        contents.problem, contents.torn = "nothing was written yet", True
    return contents


def _read_next(data: bytes, contents: Contents) -> None:
    start = contents.end + _HEAD.size
    if start > len(data):
        contents.problem, contents.torn = f"cut off at byte {contents.end}", True
        return
    length, checksum = _HEAD.unpack_from(data, contents.end)
    if length > MAX_PAYLOAD:
        contents.problem = f"not readable from byte {contents.end} on"
        return
    payload = data[start : start + length]
    if len(payload) < length:
        contents.problem, contents.torn = f"cut off at byte {contents.end}", True
        return
    try:
        if zlib.crc32(payload) != checksum:
            raise ValueError("another checksum")
        record = _decode(payload)
        if isinstance(record, KeptBatch):
            record.packed.events()  # raises if it is not a batch of ours
        if contents.header is None:
            if not isinstance(record, Header):
                raise ValueError("no header")
            contents.header = record
        else:
            contents._add(record)
    except (ValueError, PoisonBatch):  # of msgspec as well
        contents.problem = f"not readable from byte {contents.end} on"
        return
    contents.end = start + length


def chunks(events: Sequence[bytes]) -> list[Unplaced]:
    """Split *events* into records of a batch's length."""
    step = MAX_BATCH_EVENTS
    return [Unplaced(list(events[i : i + step])) for i in range(0, len(events), step)]
