"""Parses numbers that Redis holds as text. A user with the right to write the key can store any text there."""

from __future__ import annotations

from eventbus.errors import ConfigError

#: No counter of Redis is longer; Python refuses to read text of thousands of digits.
_DIGITS = 19
#: The first open of a bus sets the number for ever.
MOST_PARTITIONS = 1024


def whole_number(text: bytes | str | None) -> int | None:
    """Parse decimal digits; return None if *text* is not a number, or too large for a counter of Redis."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def parse_partitions(text: bytes, key: bytes) -> int:
    """Parse the partition count of the bus of *key*. Raises: ConfigError: it is not a number from 1 to 1024."""
    found = whole_number(text)
    if found is None or not 1 <= found <= MOST_PARTITIONS:
        root = key.decode().removesuffix("{0}:bus")
        cure = (
            f"HSET {key.decode()} partitions with what it was, one more than the highest N of the keys {root}{{N}}:meta"
        )
        problem = f"the bus says it has {_shown(text)} partitions, which is no number from 1 to {MOST_PARTITIONS}"
        raise ConfigError(f"{problem}: {cure}", cure=cure)
    return found


def parse_options_version(text: bytes | None) -> int:
    """Parse the version of the bus's options. Raises: ConfigError: it is not a number."""
    found = whole_number(text or b"1")
    if found is None:
        cure = "`eventbus options set` with any option, like burst=25, gives it a new one"
        raise ConfigError(f"the version of the bus's options is {_shown(text or b'')}, no number: {cure}", cure=cure)
    return found


def _shown(text: bytes) -> str:
    return repr(text[:20].decode("utf-8", "replace")) + ("…" if len(text) > 20 else "")


__all__ = ["MOST_PARTITIONS", "parse_options_version", "parse_partitions", "whole_number"]
