"""Finds the unknown fields of a body, for clients that want a warning or an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import inspect

from eventbus.model.encoding.event_json import EVENTS_V1_SHAPE
from eventbus.model.kinds import EVENTS_V1, Kind

#: Fields of other servers that have no meaning here. They are kept or dropped without a warning.
_IGNORED: Final = frozenset({"kind", "apiVersion", "selfLink"})


def shape_of(kind: Kind[Any]) -> type:
    """Return the type whose fields match the kind's JSON."""
    return EVENTS_V1_SHAPE if kind is EVENTS_V1 else kind.type


def unknown_fields(kind: Kind[Any], plain: Mapping[str, Any]) -> list[str]:
    """Yield the paths of fields that *kind* does not have, such as `spec.bogus`; null fields are skipped."""
    return list(_unknown(plain, _info(shape_of(kind)), ""))


@cache
def _info(shape: type) -> inspect.Type:
    return inspect.type_info(shape)


def _unknown(value: Any, info: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(info, inspect.UnionType):
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            yield from _unknown(value, members[0], path)
    elif isinstance(info, inspect.StructType) and isinstance(value, Mapping):
        fields = {field.encode_name: field.type for field in info.fields}
        for key, inner in value.items():
            below = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from _unknown(inner, fields[key], below)
            elif inner is not None and key not in _IGNORED and not str(key).startswith("$"):
                yield below
    elif isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _unknown(inner, info.item_type, f"{path}[{number}]")
