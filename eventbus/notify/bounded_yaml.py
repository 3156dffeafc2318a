"""Reads YAML with bounds on size, depth and nodes, and keeps the line of each value for error messages.

Scalars stay strings, because YAML 1.1 reads `22:00` as a number and `no` as false; the types of the fields decide.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from eventbus.errors import ConfigError

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
#: Values in the document after its aliases are expanded.
MAX_VALUES: Final = 100_000

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})


class Document:
    """The content of a YAML document: mappings, lists and strings; a null value is left out of its mapping.

    *lines*: path, as in `$.route.routes[2].receiver`, → line number from 1.
    """

    def __init__(self, text: str) -> None:
        self.lines: dict[str, int] = {}
        self._values = 0
        try:
            _check_events(text)
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark, problem = error.problem_mark, error.problem or error.context
            if mark and text[mark.index : mark.index + 1] == "\t":
                problem = "there is a tab; indent with spaces"
            raise ConfigError(f"line {mark.line + 1 if mark else 1}: this is not YAML: {problem}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"this is not YAML: {error}") from error
        self.value: Any = self._plain(node, "$", 0) if node is not None else None

    def line_of(self, path: str) -> int:
        """Return the line of *path*, or of the nearest part of the document that contains it."""
        while path not in self.lines and len(path) > 1:
            path = path[: max(path.rfind("."), path.rfind("["), 1)]
        return self.lines.get(path, 1)

    def _plain(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._values += 1
        line = node.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"line {line}: {path}: values are nested more than {MAX_DEPTH} deep")
        if self._values > MAX_VALUES:
            raise ConfigError(f"line {line}: the file has more than {MAX_VALUES} values (aliases count each time)")
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            return None if node.style is None and node.value in _NULL else str(node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(each, f"{path}[{n}]", depth + 1) for n, each in enumerate(node.value)]
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"line {key.start_mark.line + 1}: {path}: a key must be a word")
            name, inside = str(key.value), f"{path}.{key.value}"
            if name in seen:
                raise ConfigError(f"line {key.start_mark.line + 1}: {inside}: this field is there twice")
            seen.add(name)
            self.lines[inside] = key.start_mark.line + 1
            plain = self._plain(value, inside, depth + 1)
            if plain is not None:
                found[name] = plain
        return found


def _check_events(text: str) -> None:
    """Check size and depth before a tree is built: its builder recurses."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigError(f"the file is larger than {MAX_BYTES} bytes")
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"line {line}: values are nested more than {MAX_DEPTH} deep")
        if number > 2 * MAX_VALUES:
            raise ConfigError(f"line {line}: the file has more than {MAX_VALUES} values")
