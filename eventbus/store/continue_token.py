"""The token in *continue*: where the next page of a list begins, opaque to everybody else."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Self

import msgspec

from eventbus.decodable import decodable
from eventbus.errors import InvalidObject


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
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            raise InvalidObject(f"continue key is not valid: {error}") from error


__all__ = ["Continue"]
