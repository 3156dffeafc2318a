"""Compression of what travels and waits: LZ4 blocks with their size before them. Nothing is opened beyond a bound."""

from __future__ import annotations

import lz4.block

#: Less than this is not tried: an event alone has little that repeats, and its time matters.
LEAST_BYTES = 768
#: Of the size, what compression must save; else who opens it pays for nothing.
LEAST_SAVED = 1 / 8
_SIZE_BYTES = 4


def compress(content: bytes) -> bytes | None:
    """Return *content* as an LZ4 block behind its own size (4 bytes, little-endian). None: it does not pay."""
    if len(content) < LEAST_BYTES:
        return None
    block: bytes = lz4.block.compress(content)
    return block if len(block) <= len(content) * (1 - LEAST_SAVED) else None


def decompress(block: bytes, most: int) -> bytes:
    """Return what *block* was made of.

    No memory is taken before the size that it states is known to be at most *most*, and no more than that is written.

    Raises: ValueError: it states more, or is no such block.
    """
    stated = int.from_bytes(block[:_SIZE_BYTES], "little")
    if stated > most:
        raise ValueError(f"opens to {stated} bytes, at most {most}")
    try:
        content: bytes = lz4.block.decompress(block)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from None
    return content
