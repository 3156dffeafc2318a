"""Writes to standard output: text, with escapes for characters that it cannot show, JSON in ASCII, and colours."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.util.text import repair

if TYPE_CHECKING:
    from eventbus.model.event import Event

#: The values of `-o` for objects, for help and error messages.
FORMS: Final = "wide, json, yaml, name, jsonpath={.PATH}"

S = TypeVar("S", bound=msgspec.Struct)


def write(text: str, stream: TextIO | None = None) -> None:
    """Write *text* at once. Characters that the encoding of *stream* does not have are escaped.

    Raises: OSError: it cannot be written: BrokenPipeError where the reader has gone, EBADF where it was closed.
    """
    stream = _opened(stream or sys.stdout)
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes, as they are, to standard output. Otherwise as `write`."""
    stream = _opened(sys.stdout)
    stream.buffer.write(data)
    stream.flush()


def _opened(stream: TextIO | None) -> TextIO:
    if stream is None:  # Python's value for a stream that was closed at the start
        raise OSError(errno.EBADF, "standard output is closed")
    return stream


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if *stream* is a terminal; None: it was closed when the program started."""
    return stream is not None and stream.isatty()


def wants_colour(stream: TextIO | None, environ: Mapping[str, str] | None = None) -> bool:
    """Return True if *stream* is a terminal that may be coloured: NO_COLOR is empty, TERM is not `dumb`."""
    environ = os.environ if environ is None else environ
    return is_terminal(stream) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def dump_json(value: Any, *, indent: int | None = 4) -> str:
    """Format JSON in ASCII, keys sorted as kubectl does; *indent* None: one compact line.

    No newline at its end."""
    import json

    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True, indent=indent, separators=separators)


def core_of(event: Event) -> dict[str, Any]:
    """Return an event's core/v1 JSON; NUL in its texts, which a foreign producer may send, is replaced."""
    from eventbus.model.encoding.event_json import to_core

    try:
        return to_core(event)
    except InvalidEvent:
        return to_core(_repaired(event))


def _repaired(struct: S) -> S:
    return msgspec.structs.replace(struct, **{name: _value(getattr(struct, name)) for name in struct.__struct_fields__})


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, msgspec.Struct):
        return _repaired(value)
    if isinstance(value, Mapping):
        return {repair(key): repair(text) for key, text in value.items()}
    return value
