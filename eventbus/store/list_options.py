"""Checks the options of lists and watches as the API server does, and packs the token of the next page.

Source: apimachinery `pkg/apis/meta/internalversion/validation`.
"""

from __future__ import annotations

import binascii
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Final, Self

import msgspec

from eventbus.errors import InvalidObject
from eventbus.model.decodable import decodable
from eventbus.model.list_watch import ListOptions, VersionMatch

_MATCH = "resourceVersionMatch"
_SEND = "sendInitialEvents"
_KNOWN = frozenset(VersionMatch)


def list_problems(options: ListOptions) -> Iterator[tuple[str, str]]:
    """Yield the invalid fields of a list's options, each with the problem.

    A *version_match* that is any other text is among them.
    """
    match = options.version_match
    if options.limit < 0:
        yield "limit", f"Invalid value: {options.limit}: must be greater than or equal to 0"
    if match != VersionMatch.UNSET:
        if not options.resource_version:
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
        if options.continue_:
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")
        if match not in _KNOWN:
            yield _MATCH, f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        if match == VersionMatch.EXACT and options.resource_version == "0":
            yield _forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')
    if options.send_initial_events is not None:
        yield _forbidden(_SEND, f"{_SEND} is forbidden for list")


def watch_problems(options: ListOptions) -> Iterator[tuple[str, str]]:
    """Yield the invalid fields of a watch's options, each with the problem."""
    match = options.version_match
    if options.send_initial_events is None:
        if match != VersionMatch.UNSET:  # servers before WatchList give only this message, for any match
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_SEND} is provided")
        return
    if match != VersionMatch.NOT_OLDER_THAN:
        yield _forbidden(_MATCH, f"{_SEND} requires setting {_MATCH} to {VersionMatch.NOT_OLDER_THAN}")
        if match != VersionMatch.UNSET:
            yield _MATCH, f'Unsupported value: "{match}": supported values: "{VersionMatch.NOT_OLDER_THAN}"'
    elif options.continue_:
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")


def check_list(options: ListOptions) -> None:
    """Check the options of a list. Raises: InvalidObject."""
    _check(list_problems(options))


def check_watch(options: ListOptions) -> None:
    """Check the options of a watch. Raises: InvalidObject."""
    _check(watch_problems(options))


def _check(problems: Iterator[tuple[str, str]]) -> None:
    for field, problem in problems:
        raise InvalidObject(f"{field}: {problem}", field=field, problem=problem)


def _forbidden(field: str, why: str) -> tuple[str, str]:
    return field, f"Forbidden: {why}"


class Continue(msgspec.Struct, frozen=True, array_like=True):
    """The version of the first page, and the partition and index member that the last page ended with."""

    version: str
    partition: int
    member: bytes

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str`. Raises: InvalidObject: with the API server's message."""
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(text.encode()), type=decodable(cls))
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            raise InvalidObject(f"continue key is not valid: {_problem(text)}") from None


def _problem(text: str) -> str:
    """Return Go's error for an invalid token, which is the unpadded base64 of JSON there."""
    for place, character in enumerate(text):
        if character not in _BASE64:
            return f"illegal base64 data at input byte {place}"
    if len(text) % 4 == 1:
        return f"illegal base64 data at input byte {len(text) - 1}"
    first = chr(urlsafe_b64decode(text + "=" * (-len(text) % 4))[0])
    if first == "{":
        return 'server does not recognize this encoded version ""'
    if first in _JSON_STARTS:
        return "unexpected end of JSON input"
    shown = first if first.isprintable() else f"\\x{ord(first):02x}" if first.isascii() else f"\\u{ord(first):04x}"
    return f"invalid character '{shown}' looking for beginning of value"


_BASE64: Final = frozenset(string.ascii_letters + string.digits + "-_")
_JSON_STARTS: Final = frozenset('["tfn-' + string.digits + string.whitespace)
