"""Packs the uid of a recorded event, `producer:sequence`, as it is stored: the usual one in half the bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

#: Bytes of a packed uid: eight of the producer, which has 16 hex digits, then the sequence, most significant first.
_PRODUCER: Final = 8
_PACKED: Final = range(_PRODUCER + 1, 2 * _PRODUCER + 1)

#: Bytes, or a text. A text whose length is that of packed bytes is wrapped in an array, to distinguish it.
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


__all__ = ["PackedUid", "open_uid", "pack_uid"]
