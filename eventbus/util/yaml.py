"""Writes JSON-like data as YAML, as kubectl does: block style, keys sorted, items of a list not indented.

A string is plain only if every reader of YAML 1.1 and 1.2 reads it as a string, which PyYAML, a writer of 1.1, does not
ensure. All other strings are in double quotes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import SafeDumper

#: Begins with a letter, so it can be no number, time or operator; has nothing in it that ends a plain string.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./()' -]*(?<! )\Z", re.ASCII)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
#: Columns; no line is folded.
_NO_LIMIT = 2**31 - 1


def dump_yaml(value: Any) -> str:
    """Return *value* as one YAML document, with a newline at its end.

    Args: value: dict with strings as keys, list, str, int, float, bool or None, nested as you like.
    """
    import yaml

    text = yaml.dump(value, Dumper=_dumper(), default_flow_style=False, allow_unicode=True, width=_NO_LIMIT)
    # No document end after a lone scalar, as kubectl. Control characters are in double-quoted strings and escaped.
    return "".join(map(_shown, text.removesuffix("...\n")))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


@cache
def _dumper() -> type[SafeDumper]:
    """Return PyYAML's own writer, in C where available, with our strings. Imported only when it is needed."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: SafeDumper, text: str) -> yaml.Node:
        plain = _PLAIN.match(text) and text.lower() not in _WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')

    Dumper.add_representer(str, represent)
    return Dumper
