"""Parses and prints options in the user's form, `KEY=VALUE` or one JSON object. Does not import redis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable
from eventbus.settings import Options, float32
from eventbus.util.text import is_clean

#: Both spellings of each name → the field.
_FIELDS = {
    spelling: field.name for field in msgspec.structs.fields(Options) for spelling in (field.name, field.encode_name)
}

#: Digits of a rate, if they give the same value. 1/300 needs more digits, so it is shown as a fraction.
_DIGITS: Final = 6
#: Enough digits for any float32.
_MOST_DIGITS: Final = 9


def shown(options: Options) -> dict[str, Any]:
    """Return field → plain value, in the order of `Options`."""
    return named(msgspec.to_builtins(options))


def named(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return field → value of *plain* (names as in Redis), in the order of `Options`; defaults fill absent ones."""
    defaults: dict[str, Any] = msgspec.to_builtins(Options())
    return {name: plain.get(encoded, defaults[encoded]) for name, encoded in _ENCODED.items()}


def shown_value(value: Any) -> str:
    """Return a value in the form that `KEY=VALUE` accepts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return number_text(value) if isinstance(value, float) else str(value)


def number_text(number: float) -> str:
    """Return *number* in short form: `0.1`, `1/300`. It parses to the same float32."""
    if number.is_integer() and abs(number) < 10**_DIGITS:
        return str(int(number))
    texts = [f"{number:.{digits}g}" for digits in range(1, _MOST_DIGITS + 1)]
    whole = round(1 / number) if 0 < abs(number) < 1 else 0
    if whole:
        texts.insert(_DIGITS, f"1/{whole}")
    return next((text for text in texts if float32(_number(text)) == float32(number)), str(number))


def _number(text: str) -> float:
    """Parse `0.1` or `1/300`. Raises: ValueError."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except ZeroDivisionError:
        raise ValueError(text) from None


def parse_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `["burst=50", "exempt_types=Warning,Normal"]` into field → value. Raises: ConfigError: names the pair."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"{pair!r} is not of the form KEY=VALUE, like burst=50")
        field = _field(key)
        if field in values:
            raise ConfigError(f"option {field} is given twice")
        values[field] = _value(field, text)
    return values


def parse_json(text: str) -> Options:
    """Parse options from one JSON object; absent options get their defaults. Raises: ConfigError."""
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the options are not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise ConfigError('the options are not one JSON object like {"burst": 50}')
    return with_changes({}, {_field(key): value for key, value in loaded.items()})


def with_changes(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> Options:
    """Return *plain* (names as in Redis) with other values, checked as `Options` does.

    Raises: ConfigError: names the option.
    """
    plain = {**plain, **{_ENCODED[name]: value for name, value in changes.items()}}
    try:
        return msgspec.convert(plain, decodable(Options))
    except msgspec.ValidationError as error:
        raise ConfigError(f"option {_problem(error)}") from error


_ENCODED = {field.name: field.encode_name for field in msgspec.structs.fields(Options)}


def _field(key: str) -> str:
    try:
        return _FIELDS[key]
    except KeyError:
        raise ConfigError(f"there is no option {key!r}; there are {', '.join(_ENCODED)}") from None


def _value(field: str, text: str) -> Any:
    """Parse the text by the type of the field. `Options` validates the value."""
    if not is_clean(text):
        raise ConfigError(f"option {field}: is not valid UTF-8")
    default = getattr(Options(), field)
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, tuple):
            return [part.strip() for part in text.split(",") if part.strip()]
        if isinstance(default, int):
            return int(text)
        return _number(text) if isinstance(default, float) else text
    except (KeyError, ValueError):
        kind = "true or false" if isinstance(default, bool) else f"a number, like {shown_value(default)}"
        raise ConfigError(f"option {field}: {text!r} is not {kind}") from None


def _problem(error: msgspec.ValidationError) -> str:
    problem, _, path = str(error).partition(" - at `$.")
    name = path.rstrip("`").partition("[")[0]
    return f"{_FIELDS.get(name, name)}: {problem}"
