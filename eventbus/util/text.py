"""Makes text from outside storable, printable, short enough. Pure functions; clean ASCII is nearly free."""

from __future__ import annotations

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS: Final = "..."

# The pair comes first: two surrogates that belong together are one character, only lone ones are lost.
_UNSTORABLE: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\0\ud800-\udfff]")

# C0, DEL, C1, the line separators, everything with Unicode's property Bidi_Control, surrogates.
_DECEIVING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_GO_ESCAPED: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"} | {
    "\\": r"\\",
    '"': r"\"",
}


def is_clean(text: str) -> bool:
    """Say whether *text* can be stored as it is: valid UTF-8 once encoded, and no NUL in it."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def repair(text: str) -> str:
    """Return *text* with NUL and each lone surrogate replaced by U+FFFD.

    Python decodes bytes that are not UTF-8 (arguments, file names) to lone surrogates. A high one followed by a low
    one is replaced by the character that they encode.

    Returns:  the same object if there is nothing to repair.
    """
    return text if is_clean(text) else _UNSTORABLE.sub(_storable, text)


def printable(text: str) -> str:
    r"""Return *text* in a form that is safe for terminals and logs: one line, without control sequences.

    Control characters (newline, tab and escape too), line separators, bidirectional controls and surrogates
    become `\xNN` or `\uNNNN`. Backslashes are not escaped, so the result is for display and cannot be decoded.

    Returns:  the same object if there is nothing to neutralise.
    """
    if text.isprintable() and text.isascii():
        return text
    return _DECEIVING.sub(_visible, text)


def cut_bytes(text: str, limit: int, mark: str = ELLIPSIS) -> str:
    """Return *text* if it has at most *limit* bytes of UTF-8, else its beginning and *mark*.

    Args:     limit: bytes, ≥ 0; below 3 even the dots are cut.  mark: `...`, or something else of three bytes.
    Returns:  at most *limit* bytes, never half a character; the same object if it fits.
    """
    if byte_length(text) <= limit:
        return text
    if limit < len(ELLIPSIS):
        return ELLIPSIS[:limit]
    encoded = text.encode("utf-8", "surrogatepass")
    end = limit - len(ELLIPSIS)
    while encoded[end] & 0xC0 == 0x80:
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass") + mark


def byte_length(text: str) -> int:
    """Count the bytes of *text* in UTF-8; a lone surrogate counts three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def shortened(text: object) -> str:
    """Return *text* in quotes for a message, at most 80 characters of it."""
    shown = text if isinstance(text, str) else repr(text)
    return repr(shown if len(shown) <= 80 else shown[:77] + "...")


def quoted(text: str) -> str:
    """Return *text* in quotes, escaped as by Go's %q."""
    shown = "".join(_GO_ESCAPED.get(character) or _go_visible(character) for character in text)
    return f'"{shown}"'


def _storable(match: re.Match[str]) -> str:
    surrogates = match[0]
    if len(surrogates) == 1:
        return REPLACEMENT
    return surrogates.encode("utf-16", "surrogatepass").decode("utf-16")


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _go_visible(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 128 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}"
