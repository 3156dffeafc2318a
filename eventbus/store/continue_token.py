"""The token in *continue*: where the next page of a list begins, opaque to everybody else."""

from __future__ import annotations

import binascii
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, Self

import msgspec

from eventbus.errors import InvalidObject
from eventbus.model.decodable import decodable


class Continue(msgspec.Struct, frozen=True, array_like=True):
    """The version of the first page, and the partition and index member that the last page ended with."""

    version: str
    partition: int
    member: bytes

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` gave. Raises: InvalidObject: worded as the API server does."""
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(text.encode()), type=decodable(cls))
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            raise InvalidObject(f"continue key is not valid: {_problem(text)}") from None


def _problem(text: str) -> str:
    """Say what Go says of a token that is none: it is unpadded base64 there, of JSON."""
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
