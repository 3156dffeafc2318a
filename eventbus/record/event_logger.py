"""Logs this process's own events, in client-go's words: plain and structured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from eventbus.model.event import Event, ObjectReference
from eventbus.util.text import printable

_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_GO_ESCAPES |= {'"': '\\"', "\\": "\\\\"}
_GO_FIELDS = {
    "uid": "UID",
    "api_version": "APIVersion",
    "resource_version": "ResourceVersion",
    "field_path": "FieldPath",
}


def log_line(logf: Callable[..., object], event: Event) -> None:
    """Call *logf* with client-go's `Event(%#v): type: '%v' reason: '%v' %v`; always one line."""
    about, words = _go_syntax(event.involved_object), (event.type, event.reason, event.message)
    logf("Event(%s): type: '%s' reason: '%s' %s", about, *map(printable, words))


def log_structured(logger: Any, event: Event) -> None:
    """Log `Event occurred` with client-go's keys in its order. Values are printable: a console renderer shows them."""
    ref = event.involved_object
    values = {
        "object": f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name,
        "fieldPath": ref.field_path,
        "kind": ref.kind,
        "apiVersion": ref.api_version,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
    }
    logger.info("Event occurred", **{key: printable(value) for key, value in values.items()})


def _go_syntax(reference: ObjectReference) -> str:
    values = msgspec.structs.asdict(reference).items()
    fields = ", ".join(f"{_GO_FIELDS.get(name, name.capitalize())}:{_go_quoted(value)}" for name, value in values)
    return f"v1.ObjectReference{{{fields}}}"


def _go_quoted(text: str) -> str:
    """Quote *text* as Go's strconv.Quote does: names come from outside, and must not begin a line of their own."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_go_character, text))}"'


def _go_character(character: str) -> str:
    if character in _GO_ESCAPES:
        return _GO_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
