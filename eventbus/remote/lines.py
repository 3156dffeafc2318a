"""Lines out of pieces of bytes, however they were cut on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

#: Longer than any object with all its metadata.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024


class LineTooLong(ValueError):
    """Text came without an end of line: it is no stream of JSON lines."""


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Every line without its end, also the last one if it has none; empty ones are passed over.

    Raises: LineTooLong.
    """
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > MAX_LINE_BYTES:
                raise LineTooLong(f"a line of more than {MAX_LINE_BYTES} bytes")
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield bytes(rest)
