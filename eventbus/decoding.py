"""Reading JSON, or a mapping that was JSON or YAML, into a typed shape. `codec` knows what the shapes mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.validation import invalid_from

KIND: Final = "Event"

_MAPS: Final = frozenset({"labels", "annotations"})
_TIMES: Final = frozenset(
    {
        *("creationTimestamp", "firstTimestamp", "lastTimestamp", "eventTime", "lastObservedTime"),
        *("deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
    }
)
_LONG_FRACTION: Final = re.compile(rb":[0-9]{2}\.[0-9]{7}")
_MICROS: Final = re.compile(r"(\.[0-9]{6})[0-9]+")

Shape = TypeVar("Shape", bound=msgspec.Struct)


class _TypeMeta(msgspec.Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None


_TYPE_META: Final = msgspec.json.Decoder(_TypeMeta)


def decode_fast(decoder: msgspec.json.Decoder[Shape], data: bytes | str, version: str) -> Shape | None:
    """The shape of well-formed data; None if only the slow way can read it, or say what is wrong with it."""
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
        return msgspec.convert(_plain(mapping), shape)
    except msgspec.ValidationError as error:
        raise invalid_from(error) from None
    except UnicodeEncodeError:
        raise InvalidEvent("event", "has a key with a lone surrogate") from None
    except RecursionError:
        raise InvalidEvent("event", "is nested too deeply") from None


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Without nulls, which mean unset to Go, and with fractions that msgspec would round cut to microseconds."""
    plain: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            strings = key in _MAPS
            plain[key] = {k: "" if v is None else v for k, v in value.items()} if strings else _plain(value)
        elif key in _TIMES and isinstance(value, str):
            plain[key] = _MICROS.sub(r"\1", value)
        elif value is not None:
            plain[key] = value
    return plain


def _check_type_meta(kind: Any, api_version: Any, version: str) -> None:
    if kind not in (None, "", KIND):
        raise InvalidEvent("kind", f"must be {KIND}, is {ascii(kind)[:80]}")
    if api_version not in (None, "", version):
        raise InvalidEvent("apiVersion", f"must be {version}, is {ascii(api_version)[:80]}")
