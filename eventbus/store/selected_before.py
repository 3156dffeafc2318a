"""Packs what selectors saw of an object before a change, so that a watch can tell whether it was selected then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgpack
import msgspec

from eventbus.errors import DeadCause, PoisonBatch
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)


class Was(msgspec.Struct, frozen=True):
    """An object's former labels, and the former values of those fields that have changed."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


def encode_was(kind: Kind[T], former: T, new: T) -> bytes:
    """Pack the labels and fields of *former* that differ in *new*; b"" if no selector could tell the two apart."""
    fields = {name: get(former) for name, get in kind.fields.items() if get(former) != get(new)}
    if not fields and former.metadata.labels == new.metadata.labels:
        return b""
    packed: bytes = msgpack.packb([dict(former.metadata.labels), fields])
    return packed


def decode_was(packed: bytes | None) -> Was | None:
    """Unpack what `encode_was` gave; None: the same as now. Raises: PoisonBatch: the value is not ours."""
    if not packed:
        return None
    try:
        return Was(*msgspec.msgpack.decode(packed, type=tuple[dict[str, str], dict[str, str]]))
    except ValueError as error:
        raise PoisonBatch(DeadCause.UNREADABLE) from error


__all__ = ["Was", "decode_was", "encode_was"]
