"""The formats and codecs that this build reads and writes. All processes that share a bus must agree on them.

The key `eb:{0}:bus` contains the bus's format and the codecs that producers may use. A build refuses a bus with a
format that is not listed here. Only `eventbus format upgrade` changes the format of a bus.
"""

from __future__ import annotations

from typing import Final

#: The supported formats of all data in Redis, ascending. A new bus gets the last one.
FORMATS: Final[tuple[int, ...]] = (3,)

#: The codecs of a batch's events: uncompressed, or an LZ4 block. A reader cannot decode a batch with another codec.
CODEC_NONE, CODEC_LZ4 = 0, 1
#: Not of a batch: producers may send events that workers collect to series (position 19 of an event).
CODEC_SERIES: Final = 2
CODECS: Final[tuple[int, ...]] = (CODEC_NONE, CODEC_LZ4, CODEC_SERIES)
#: The default of a bus that lists none: every build reads these.
BASELINE_CODECS: Final[tuple[int, ...]] = (CODEC_NONE, CODEC_LZ4)


def numbers_text(numbers: tuple[int, ...]) -> str:
    """Format numbers as in the bus's key and the table of builds: `0,1`."""
    return ",".join(map(str, numbers))


def parse_numbers(text: bytes | str | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """Parse the text of `numbers_text`; return *otherwise* if it is invalid."""
    words = (text.decode("ascii", "replace") if isinstance(text, bytes) else text or "").split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        return otherwise
    return tuple(sorted(set(map(int, words))))
