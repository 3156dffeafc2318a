"""Packs the fields that selectors use from before a change, so that a watch knows whether it selected the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgpack
import msgspec

from eventbus.errors import DeadCause, PoisonBatch
from eventbus.model.event import EventSource
from eventbus.model.list_watch import HasMetadata

T = TypeVar("T", bound=HasMetadata)


class Was(msgspec.Struct, frozen=True):
    """An object's former labels, and the former values of those fields that have changed."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


def encode_was(fields: Mapping[str, Callable[[T], str]], former: T, new: T) -> bytes:
    """Pack the labels of *former*, and those of *fields* that differ in *new*.

    Args:    fields: all that may be selected by.
    Returns: b"" if the two are equal for every selector.
    """
    changed = {name: get(former) for name, get in fields.items() if get(former) != get(new)}
    if not changed and former.metadata.labels == new.metadata.labels:
        return b""
    packed: bytes = msgpack.packb([dict(former.metadata.labels), changed])
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
        result = _put(result, name.split("."), value)
    kept: T = result
    return kept


def _put(found: Any, path: Sequence[str], value: str) -> Any:
    """Return *found* with *value* at *path*, as names in JSON; as it is, where it has no such field."""
    attribute = _attributes(found.__class__).get(path[0])
    if attribute is None:
        return found
    held = getattr(found, attribute)
    if len(path) > 1:
        return _with(found, attribute, _put(held, path[1:], value))
    if isinstance(held, EventSource):
        return _with(found, attribute, _with(held, "component", value))
    if isinstance(held, bool):
        return _with(found, attribute, value == "true")
    return _with(found, attribute, value) if isinstance(held, str) else found


@cache
def _attributes(shape: type) -> Mapping[str, str]:
    """Return the attributes of a struct by their names in JSON; of anything else none."""
    if not issubclass(shape, msgspec.Struct):
        return {}
    return {field.encode_name: field.name for field in msgspec.structs.fields(shape)}


def _with(found: Any, name: str, value: Any) -> Any:
    return msgspec.structs.replace(found, **{name: value})
