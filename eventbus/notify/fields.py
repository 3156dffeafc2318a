"""The types of the fields in a rules file that YAML does not have: durations, secrets, matchers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable
from eventbus.model.matchers import Matchers, parse_matchers
from eventbus.notify.bounded_yaml import Document
from eventbus.settings import read_secret

T = TypeVar("T")

#: Source: prometheus `common/model/time.go`, ParseDuration.
_DURATION: Final = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII
)
_UNITS_MS: Final = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_LONGEST_MS: Final = 10 * 365 * 86_400_000


class Duration:
    """A duration as Prometheus writes it: `30s`, `1h30m`, `0`. *ms*: milliseconds."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises: ValueError."""
        found = _DURATION.fullmatch(text)
        if text != "0" and (found is None or not text):
            raise ValueError(f"{text!r} is no duration: write it as 30s, 5m or 1h30m")
        ms = sum(int(n) * unit for n, unit in zip(found.groups(), _UNITS_MS, strict=True) if n) if found else 0
        if ms > _LONGEST_MS:
            raise ValueError(f"{text!r} is longer than ten years")
        return cls(ms)

    def __repr__(self) -> str:
        return f"Duration({self.ms} ms)"


class Secret:
    """A secret that stands in the rules file itself. Its text is shown by `read` alone."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> str:
        """Return the secret."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of each part of a rules file: an unknown field is an error."""


def secret_of(field: str, inline: Secret | None, file: str) -> str:
    """Return the secret of *field* or of `<field>_file`, read again each time; "" without both. Raises: ConfigError."""
    return read_secret(f"{field}_file", file) if file else inline.read() if inline else ""


def decode_field(kind: Any, value: Any) -> Any:
    """Decode a value of one of these types: the `dec_hook` of msgspec. Raises: ValueError, with the reason."""
    if kind is Matchers:
        texts = value if isinstance(value, list) else [value]
        try:
            return Matchers(matcher for text in texts for matcher in parse_matchers(_text(text)))
        except ConfigError as error:
            raise ValueError(str(error)) from None
    if kind is Duration:
        return Duration.parse(_text(value))
    if kind is Secret:
        return Secret(_text(value))
    parse = getattr(kind, "parse_field", None)
    if parse is None:
        raise NotImplementedError(kind)
    return parse(_text(value))


def convert(
    document: Document,
    kind: type[T],
    decode: Callable[[Any, Any], Any] = decode_field,
    *,
    cure: Callable[[str], str] | None = None,
) -> T:
    """Convert a document to its type. *cure*: returns the end of the message about an unknown field.

    Raises: ConfigError: the first mistake, with its line and field.
    """
    try:
        return msgspec.convert(document.value, decodable(kind), strict=False, dec_hook=decode)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        path = path.removesuffix("`").replace("[...]", "") or "$"
        if unknown := re.search(r"unknown field `(.*)`", problem):
            path = f"{path}.{unknown[1]}"
            problem = f"there is no such field{cure(unknown[1]) if cure else ''}"
        elif missing := re.search(r"missing required field `(.*)`", problem):
            problem = f"the field {missing[1]} is missing"
        else:
            problem = problem.replace("Expected `str`, got `array`", "must be a text, and is a list")
        raise ConfigError(f"line {document.line_of(path)}: {path.removeprefix('$').lstrip('.')}: {problem}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value
