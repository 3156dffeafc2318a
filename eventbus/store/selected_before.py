"""Packs what selectors saw of an object before a change, so that a watch can tell whether it was selected then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgpack
import msgspec

from eventbus.errors import DeadCause, PoisonBatch
from eventbus.event import EventSource
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


def restored(found: T, was: Was) -> T:
    """Return *found* with the labels and selectable fields that it had before; its other fields are not known."""
    result: Any = msgspec.structs.replace(found, metadata=_with(found.metadata, "labels", was.labels))  # type: ignore[type-var]
    for name, value in was.fields.items():
        *parents, last = (_SNAKE.sub(r"_\1", part).lower() for part in name.split("."))
        result = _put(result, parents, last, value)
    kept: T = result
    return kept


def _put(found: Any, parents: Sequence[str], last: str, value: str) -> Any:
    """Return *found* with *value* below *parents*; as it is, where it has no such field."""
    if parents:
        inner = getattr(found, parents[0], None)
        return found if inner is None else _with(found, parents[0], _put(inner, parents[1:], last, value))
    held = getattr(found, last, None)
    if isinstance(held, EventSource):
        return _with(found, last, _with(held, "component", value))
    if isinstance(held, bool):
        return _with(found, last, value == "true")
    return _with(found, last, value) if isinstance(held, str) else found


def _with(found: Any, name: str, value: Any) -> Any:
    return msgspec.structs.replace(found, **{name: value})


_SNAKE: Final = re.compile("([A-Z])")

__all__ = ["Was", "decode_was", "encode_was", "restored"]
