"""Writing JSON-like data as YAML: the little that needs no dependency. Nothing here reads YAML.

Block style, keys sorted, two spaces a level, items of a list not indented, as kubectl writes it. A string is plain
only where every reader of YAML 1.1 and 1.2 agrees that it is one; every other is on one line in double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Begins with a letter, so it can be no number, time or operator; has nothing in it that ends a plain string.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./()' -]*(?<! )\Z", re.ASCII)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def dump_yaml(value: Any) -> str:
    """*value* as one YAML document, with a newline at its end.

    Args:   value: dict with strings as keys, list, str, int, bool or None, nested as you like.
    Raises: TypeError: anything else (floats too: no two versions of YAML read them alike).
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _entry(f"{_string(key)}:", value[key])
    elif isinstance(value, list | tuple) and value:
        for item in value:
            yield from _item(item)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any) -> Iterator[str]:
    if not _is_block(value):
        yield f"{head} {_scalar(value)}"
        return
    yield head
    indent = "  " if isinstance(value, Mapping) else ""
    for line in _lines(value):
        yield indent + line


def _item(item: Any) -> Iterator[str]:
    """A dash in front of the first line, room for it in front of the others."""
    lead = "- "
    for line in _lines(item):
        yield lead + line
        lead = "  "


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    raise TypeError(f"no YAML for {type(value).__name__}")


def _string(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"no YAML key of {type(text).__name__}")
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return str(text)
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    # Not JSON's pairs of surrogates: YAML reads those as two characters.
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
