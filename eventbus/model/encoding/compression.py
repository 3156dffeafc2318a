"""Compression of batches: LZ4 blocks prefixed with their size. Decompression is limited to a maximum size."""

from __future__ import annotations

import lz4.block

#: Smaller contents are not compressed: a single event has little repetition, and its latency matters.
LEAST_BYTES = 768
#: The share of the size that compression must save; else the cost of decompression has no benefit.
LEAST_SAVED = 1 / 8
_SIZE_BYTES = 4


def compress(content: bytes) -> bytes | None:
    """Return *content* as an LZ4 block, prefixed with its size (4 bytes, little-endian). None: it saves too little."""
    if len(content) < LEAST_BYTES:
        return None
    block: bytes = lz4.block.compress(content)
    return block if len(block) <= len(content) * (1 - LEAST_SAVED) else None


def decompress(block: bytes, most: int) -> bytes:
    """Return the content of *block*.

    The stated size is checked against *most* before memory is allocated, and no more bytes than that are written.

    Raises: ValueError: the stated size is larger than *most*, or *block* is not an LZ4 block with a size.
    """
    stated = int.from_bytes(block[:_SIZE_BYTES], "little")
    if stated > most:
        raise ValueError(f"opens to {stated} bytes, at most {most}")
    try:
        content: bytes = lz4.block.decompress(block)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from None
    return content
