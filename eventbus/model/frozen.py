"""Deeply frozen values: an immutable mapping, and structs that freeze their field values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn, Self

import msgspec
from msgspec import inspect


class FrozenDict(dict[str, Any]):
    """A mapping that cannot be changed and can be hashed. Equal to a dict with the same items.

    Most are of strings; mappings, lists and sets among the values are frozen too.
    """

    __slots__ = ()

    def __new__(cls, *items: Any, **more: Any) -> Self:
        frozen = super().__new__(cls)
        dict.update(frozen, *items, **more)
        for key, value in frozen.items():
            if type(value) is not str:
                dict.__setitem__(frozen, key, freeze(value))
        return frozen

    def __init__(self, *_items: Any, **_more: Any) -> None:
        """Do nothing: `__new__` has filled it, and dict's own would change it when called again."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("the mappings of an object are frozen; build a new object")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        # A dict is unpickled item by item, which this one refuses.
        return FrozenDict, (dict(self),)


#: The one empty mapping, so that omit_defaults recognises it.
EMPTY = FrozenDict()


class FrozenStruct(msgspec.Struct, frozen=True):
    """A struct that turns the mappings, lists and sets it is given, at any depth, into frozen ones.

    Its fields may therefore be typed `Mapping`, `Sequence` or `Any`: they hold FrozenDicts, tuples and frozensets.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if (frozen := freeze(value)) is not value:
                msgspec.structs.force_setattr(self, name, frozen)


def freeze(value: Any) -> Any:
    """Return *value* with FrozenDicts for mappings, tuples for lists, frozensets for sets; itself if it is frozen."""
    kind = type(value)
    if kind is str or kind is FrozenDict or isinstance(value, msgspec.Struct):
        return value
    if kind is tuple:
        items = [freeze(item) for item in value]
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return tuple(items) if changed else value
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    return FrozenDict(value) if isinstance(value, Mapping) else value


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


def _mutable_parts(shape: inspect.Type, where: str, known: set[type], *, frozen: bool) -> Iterator[str]:
    """Yield the mutable parts of *shape*.

    *frozen*: it is a field, or a part of a field, of a struct that freezes its values."""
    cls = getattr(shape, "cls", None)
    if (isinstance(shape, _MUTABLE) and cls is not FrozenDict) or (isinstance(shape, _FREEZABLE) and not frozen):
        word = type(shape).__name__.removesuffix("Type").lower()
        yield f"{where}: {word}"
    if isinstance(shape, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType) and cls not in known:
        assert cls is not None
        known.add(cls)
        if not _is_frozen(cls):
            yield f"{where}: {cls.__name__}, which is not frozen"
        for field in shape.fields:
            within = f"{cls.__name__}.{field.name}"
            yield from _mutable_parts(field.type, within, known, frozen=issubclass(cls, FrozenStruct))
    inner = [getattr(shape, name, None) for name in ("item_type", "value_type", "type")]
    for part in (*inner, *getattr(shape, "item_types", ()), *getattr(shape, "types", ())):
        if isinstance(part, inspect.Type):
            yield from _mutable_parts(part, where, known, frozen=frozen)


def _is_frozen(cls: Any) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    return issubclass(cls, tuple) or bool(cls.__dataclass_params__.frozen)
