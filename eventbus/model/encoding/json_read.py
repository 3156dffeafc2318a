"""Reads JSON and YAML text, or a mapping parsed from it, into a typed shape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.validation import invalid_from

KIND: Final = "Event"

#: A type of msgspec.inspect, which is imported only when it is needed.
Info: TypeAlias = Any

_ZEROS: Final[dict[str, Callable[[], Any]]] = {
    **{"StrType": str, "IntType": int, "FloatType": float, "BoolType": bool},
    **dict.fromkeys(("StructType", "DataclassType", "TypedDictType", "DictType", "CustomType"), dict),
    **dict.fromkeys(("ListType", "VarTupleType", "SetType", "FrozenSetType"), list),
}
_LONG_FRACTION: Final = re.compile(rb":[0-9]{2}\.[0-9]{7}")
_FINE: Final = re.compile(r"(\.[0-9]{6})[0-9]+")

Shape = TypeVar("Shape", bound=msgspec.Struct)


class _TypeMeta(msgspec.Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None


_TYPE_META: Final = msgspec.json.Decoder(decodable(_TypeMeta))


def decode_fast(decoder: msgspec.json.Decoder[Shape], data: bytes | str, version: str) -> Shape | None:
    """Decode well-formed data; None if only the slow path can read it or report its error."""
    try:
        encoded = data.encode() if isinstance(data, str) else data
        if _LONG_FRACTION.search(encoded):
            return None
        shape = decoder.decode(encoded)
        type_meta = _TYPE_META.decode(encoded)
    except (ValueError, RecursionError):
        return None
    _check_type_meta(type_meta.kind, type_meta.api_version, version)
    return shape


def load(data: bytes | str) -> Mapping[str, Any]:
    """Read JSON the slow way. Raises: InvalidEvent: not JSON, not UTF-8, nested too deeply."""
    # The standard library reads lone surrogates, so that their field can be named.
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        loaded = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidEvent("event", f"is not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise InvalidEvent("event", f"is not JSON: {error}") from None
    except RecursionError:
        raise InvalidEvent("event", "is nested too deeply") from None
    return loaded  # type: ignore[no-any-return]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def convert(mapping: Mapping[str, Any], shape: type[Shape], version: str) -> Shape:
    """Read *mapping* as *shape*; null means unset. Raises: InvalidEvent: a wrong type; *field* is the path."""
    if not isinstance(mapping, Mapping):
        raise InvalidEvent("event", f"must be an object with the keys of an Event, is {type(mapping).__name__}")
    _check_type_meta(mapping.get("kind"), mapping.get("apiVersion"), version)
    try:
        return msgspec.convert(as_go_reads(mapping, shape), decodable(shape))
    except msgspec.ValidationError as error:
        raise invalid_from(error) from None
    except UnicodeEncodeError:
        raise InvalidEvent("event", "has a key with a lone surrogate") from None
    except RecursionError:
        raise InvalidEvent("event", "is nested too deeply") from None


def as_go_reads(value: Any, shape: type) -> Any:
    """Return *value*, parsed from JSON, with nulls and long fractions of seconds in *shape* converted as Go does.

    A null field becomes unset; other nulls become the zero value; fields of type Any keep null. Times are truncated,
    not rounded, to microseconds. msgspec later ignores unknown keys and reports wrong types.

    Raises: RecursionError.
    """
    return _read(value, _info(shape))


def _read(value: Any, info: Info) -> Any:
    name = type(info).__name__
    if name == "UnionType":
        inner = _member(value, info)
        return value if value is None or inner is None else _read(value, inner)
    if value is None:
        return _ZEROS[name]() if name in _ZEROS else None  # Go's zero value for a null in a list or mapping
    if name in ("StructType", "DataclassType", "TypedDictType"):
        return _read_fields(value, info) if isinstance(value, Mapping) else value
    if name == "DictType":
        if isinstance(value, Mapping):
            return {key: _read(inner, info.value_type) for key, inner in value.items()}
    elif name == "CustomType":
        if isinstance(value, Mapping):  # a FrozenDict, of strings
            return {key: "" if inner is None else inner for key, inner in value.items()}
    elif name in ("ListType", "VarTupleType", "SetType", "FrozenSetType"):
        if isinstance(value, list | tuple):
            return [_read(item, info.item_type) for item in value]
    elif name == "DateTimeType" and isinstance(value, str):
        return _FINE.sub(r"\1", value)
    return value


def _read_fields(value: Mapping[str, Any], info: Info) -> dict[str, Any]:
    fields = _fields(info.cls)
    return {
        key: _read(inner, fields[key]) if key in fields else inner for key, inner in value.items() if inner is not None
    }


def _member(value: Any, info: Info) -> Info | None:
    """Return which of a union's types *value* is read as, where that is plain."""
    members = [member for member in info.types if type(member).__name__ != "NoneType"]
    if len(members) > 1:
        tagged = (
            [member for member in members if getattr(member, "tag_field", None)] if isinstance(value, Mapping) else []
        )
        members = [member for member in tagged if value.get(member.tag_field) == member.tag]
    return members[0] if len(members) == 1 else None


@cache
def _info(shape: type) -> Info:
    from msgspec import inspect  # 4 ms, and most programs read no JSON

    return inspect.type_info(shape)


@cache
def _fields(shape: type) -> dict[str, Info]:
    """Return the types of a shape's fields, by their names in JSON."""
    return {field.encode_name: field.type for field in _info(shape).fields}


def _check_type_meta(kind: Any, api_version: Any, version: str) -> None:
    if kind not in (None, "", KIND):
        raise InvalidEvent("kind", f"must be {KIND}, is {ascii(kind)[:80]}")
    if api_version not in (None, "", version):
        raise InvalidEvent("apiVersion", f"must be {version}, is {ascii(api_version)[:80]}")


#: Brackets within brackets; deeper is refused. JSON's own bound is in `json_read`.
MOST_DEPTH: Final = 100


@cache
def plain_loader() -> Any:
    """Return the loader: times stay strings, every key is a string, and aliases are refused.

    It raises yaml.YAMLError, ValueError, TypeError and RecursionError for unreadable text.
    """
    import yaml  # a slow import, seldom needed

    # Not the C loader: it crashes the process on deeply nested brackets.
    class Loader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, token: Any) -> None:
            # PyYAML checks all open brackets at each new one: thousands of them take seconds.
            if self.flow_level >= MOST_DEPTH:
                raise ValueError("nested too deeply")
            super().fetch_flow_collection_start(token)

        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few lines of aliases of aliases are gigabytes of JSON.
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not read")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            mapping = super().construct_mapping(node, deep=deep)
            return {key if isinstance(key, str) else json.dumps(key): value for key, value in mapping.items()}

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader
