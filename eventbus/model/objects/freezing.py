"""Supports types that are frozen all the way down: decodes FrozenDicts, and finds parts that could be changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from eventbus.model.frozen import FrozenDict, FrozenStruct

#: The types that a FrozenStruct freezes, and the types that cannot be frozen.
_FREEZABLE: Final = (inspect.AnyType, inspect.DictType, inspect.ListType, inspect.SetType, inspect.TypedDictType)
_MUTABLE: Final = (inspect.ByteArrayType, inspect.CustomType, inspect.MemoryViewType)


def decode_frozen(wanted: type, value: Any) -> Any:
    """Decode a FrozenDict, which msgspec does not know: its dec_hook. Raises: msgspec.ValidationError."""
    if wanted is FrozenDict:
        return FrozenDict(msgspec.convert(value, dict[str, str]))
    raise NotImplementedError(wanted)  # which msgspec asks for; a Kind has refused such a type before


def mutable_parts(shape: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the mutable fields of *shape* and of the types in it, such as `Robot.arms: list`."""
    yield from _mutable_parts(inspect.type_info(shape), shape.__name__, set(), frozen=False)


def _mutable_parts(found: inspect.Type, where: str, known: set[type], *, frozen: bool) -> Iterator[str]:
    """Yield the mutable parts of *found*.

    *frozen*: it is a field, or a part of a field, of a struct that freezes its values."""
    cls = getattr(found, "cls", None)
    if (isinstance(found, _MUTABLE) and cls is not FrozenDict) or (isinstance(found, _FREEZABLE) and not frozen):
        word = type(found).__name__.removesuffix("Type").lower()
        yield f"{where}: {word}"
    if isinstance(found, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType) and cls not in known:
        assert cls is not None
        known.add(cls)
        if not _is_frozen(cls):
            yield f"{where}: {cls.__name__}, which is not frozen"
        for field in found.fields:
            within = f"{cls.__name__}.{field.name}"
            yield from _mutable_parts(field.type, within, known, frozen=issubclass(cls, FrozenStruct))
    inner = [getattr(found, name, None) for name in ("item_type", "value_type", "type")]
    for part in (*inner, *getattr(found, "item_types", ()), *getattr(found, "types", ())):
        if isinstance(part, inspect.Type):
            yield from _mutable_parts(part, where, known, frozen=frozen)


def _is_frozen(cls: Any) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    return issubclass(cls, tuple) or bool(cls.__dataclass_params__.frozen)


__all__ = ["decode_frozen", "mutable_parts"]
