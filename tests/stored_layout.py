"""Reads events in Redis as docs/wire.md describes them: for tests that check what no reader is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
import msgspec

#: letter and id
_CHANGE_CHARS = 15


class StoredChange(msgspec.Struct, frozen=True):
    """One change of an entry: *letter* A, M, D or R; *packed* the object behind it."""

    letter: str
    key: bytes
    version: int
    packed: bytes


class StoredCounts(msgspec.Struct, frozen=True):
    """The counts that are remembered under a key, also when the event itself is gone."""

    count: int
    first_us: int | None
    name: str
    namespace: str
    entry: str


def changes_of_entry(fields: Mapping[bytes, bytes]) -> Iterator[StoredChange]:
    """The changes of one entry, oldest first."""
    version = int(fields[b"f"])
    for name, packed in fields.items():
        if len(name) == _CHANGE_CHARS:
            yield StoredChange(name[:1].decode(), name[1:], version, packed)
            version += 1


def decode_counts(packed: bytes) -> StoredCounts:
    """The first five fields, or those of an event that was held back and takes this one's place."""
    fields = msgpack.unpackb(packed, raw=True)
    fields = (len(fields) > 15 and fields[15]) or fields
    count, first_us, name, namespace, entry = fields[:5]
    is_time = isinstance(first_us, int) and not isinstance(first_us, bool)
    return StoredCounts(count, first_us if is_time else None, name.decode(), namespace.decode(), entry.decode())


def sets_of_state(packed: bytes) -> list[list[Any]]:
    """The sets of similar messages in the state of a source: the last time, then the digests of the messages."""
    fields: list[Any] = msgpack.unpackb(packed, raw=True)
    return fields[6::2]


def form_of(packed: bytes) -> str:
    """`a` aggregate, `s` report of suppression, `w` written through the store, else ''."""
    fields: list[Any] = msgpack.unpackb(packed, raw=True)
    return fields[11].decode() if len(fields) > 11 else ""
