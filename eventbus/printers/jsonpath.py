r"""kubectl's JSONPath, the part that people use: `{.items[*].metadata.name}`, `{range .items[*]}{.reason}{"\n"}{end}`.

Steps: `.name`, `['name']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `.*`, `..name`, `[?(@.type=="Ready")]` with == != < <= > >=,
`['a.b','c']`. What is missing gives nothing. Source: client-go `util/jsonpath`; departure: no `$` inside a filter.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

#: Gives what a step finds in one value; a whole step, in all that the steps before it have found.
Step: TypeAlias = Callable[[Any], Iterable[Any]]
WholeStep: TypeAlias = Callable[[list[Any]], list[Any]]

_PART: Final = re.compile(r"\{((?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*)\}")
_STEP: Final = re.compile(
    r"(?P<deep>\.\.)(?P<deep_name>[\w\\.-]+?(?=[.\[]|$))"
    r"|\.(?P<name>\*|(?:\\.|[^.\[\]\\])+)"
    r"|\[(?P<union>\s*(?:'[^']*'|-?\d+)\s*(?:,\s*(?:'[^']*'|-?\d+)\s*)+)\]"
    r"|\[\s*(?P<quoted>'[^']*'|\"[^\"]*\")\s*\]"
    r"|\[\?\(\s*@(?P<left>[^=!<>)]*?)\s*(?:(?P<compare>==|!=|<=|>=|<|>)\s*(?P<right>[^)]*?)\s*)?\)\]"
    r"|\[\s*(?P<index>-?\d+)\s*\]|\[\s*(?P<low>-?\d*):(?P<high>-?\d*)\s*\]|(?P<all>\[\*\])"
)
_UNITED: Final = re.compile(r"'[^']*'|-?\d+")
_COMPARE: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Path:
    """A path from a value to values in it. Raises: ValueError: it cannot be read."""

    def __init__(self, text: str) -> None:
        self._steps = tuple(_steps(text.strip()))

    def find(self, value: Any) -> list[Any]:
        """Return all values it leads to, in order."""
        found = [value]
        for step in self._steps:
            found = step(found)
        return found


class _Node(NamedTuple):
    """A part of a template: text, or a path that is printed, or (*inside*) gone through."""

    text: str = ""
    path: Path | None = None
    inside: tuple[_Node, ...] | None = None


class Template:
    """A text with paths in braces. Raises: ValueError: it cannot be read."""

    def __init__(self, text: str) -> None:
        self._nodes = _parse(text)

    def render(self, value: Any) -> str:
        """Return the text for one value."""
        return _render(self._nodes, value)


def relaxed_path(text: str) -> Path:
    """Parse a path as people type it for `--sort-by`: `{.a.b}`, `.a.b`, `a.b`.

    Raises: ValueError."""
    return Path(in_braces(text)[1:-1])


def in_braces(text: str) -> str:
    """Return the same path, typed in full: `{.a.b}`."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return f"{{{text if text.startswith(('.', '[', '$')) else f'.{text}'}}}"


def _value_text(value: Any) -> str:
    """Format a value as kubectl prints it: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def go_text(value: Any) -> str:
    """Format a value as Go's fmt.Sprint does, which kubectl compares in `wait`: `map[a:b z:x]`, `[1 2]`."""
    match value:
        case str():
            return value
        case Mapping():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list() | tuple():
            return f"[{' '.join(map(go_text, value))}]"
        case None:
            return "<nil>"
    return _value_text(value)


def _parse(text: str) -> tuple[_Node, ...]:
    stack: list[tuple[Path | None, list[_Node]]] = [(None, [])]
    at = 0
    for part in _PART.finditer(text):
        stack[-1][1].append(_Node(_plain(text[at : part.start()])))
        at = part.end()
        inner = part[1].strip()
        if inner.startswith("range "):
            stack.append((Path(inner.removeprefix("range ")), []))
        elif inner == "end":
            if len(stack) == 1:
                raise ValueError("not in range, nothing to end")
            path, nodes = stack.pop()
            stack[-1][1].append(_Node(path=path, inside=tuple(nodes)))
        elif inner[:1] in ("'", '"'):
            stack[-1][1].append(_Node(_unquoted(inner)))
        else:
            stack[-1][1].append(_Node(path=Path(inner)))
    if len(stack) > 1:
        raise ValueError("unclosed range: {end} is missing")
    return (*stack[0][1], _Node(_plain(text[at:])))


def _plain(text: str) -> str:
    if "{" in text or "}" in text:
        raise ValueError(f"unclosed action in {text!r}")
    return text


def _render(nodes: Iterable[_Node], value: Any) -> str:
    parts = []
    for node in nodes:
        if node.path is None:
            parts.append(node.text)
        elif node.inside is None:
            parts.append(" ".join(map(_value_text, node.path.find(value))))
        else:
            parts += [_render(node.inside, found) for found in node.path.find(value)]
    return "".join(parts)


def _steps(text: str) -> Iterator[WholeStep]:
    at = 1 if text[:1] in ("$", "@") else 0
    while at < len(text) and text[at:] != ".":
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"{text!r} is no JSONPath: cannot read {text[at:]!r}")
        at = found.end()
        if found["union"]:
            yield _union([Path(f"[{one.strip()}]") for one in _UNITED.findall(found["union"])])
        else:
            yield _in_each(_step(found))


def _in_each(step: Step) -> WholeStep:
    return lambda values: [inner for outer in values for inner in step(outer)]


def _union(paths: list[Path]) -> WholeStep:
    """Return all that the first path leads to, then all that the second does, as client-go does."""
    return lambda values: [found for path in paths for value in values for found in path.find(value)]


def _step(found: re.Match[str]) -> Step:
    if found["deep"]:
        return _deep(found["deep_name"])
    if found["all"] or found["name"] == "*":
        return _every
    if found["name"] is not None:
        return _named(re.sub(r"\\(.)", r"\1", found["name"]))
    if found["quoted"] is not None:
        return Path(f".{found['quoted'][1:-1]}").find  # a path too: dots of a name stand behind a backslash
    if found["index"] is not None:
        return _at(int(found["index"]))
    if found["left"] is not None:
        return _filter(Path(found["left"]), found["compare"], found["right"])
    low, high = (int(text) if text else None for text in (found["low"], found["high"]))
    return lambda value: value[low:high] if isinstance(value, list) else ()


def _named(name: str) -> Step:
    return lambda value: (value[name],) if isinstance(value, Mapping) and name in value else ()


def _at(index: int) -> Step:
    return lambda value: (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _deep(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping) and name in value:
            yield value[name]
        for inner in _every(value):
            yield from step(inner)

    return step


def _filter(path: Path, compare: str | None, right: str | None) -> Step:
    wanted: Any = None if right is None else _literal(right)

    def matches(value: Any) -> bool:
        found = path.find(value)
        if compare is None:
            return bool(found)
        try:
            return any(_COMPARE[compare](one, wanted) for one in found)
        except TypeError:
            return False

    return lambda value: [inner for inner in _every(value) if matches(inner)]


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return _unquoted(text)
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number, nor true or false, nor in quotes") from None


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise ValueError(f"unterminated quoted string: {text}")
    inner = text[1:-1] if text[0] == '"' else text[1:-1].replace('"', '\\"').replace("\\'", "'")
    try:
        value = json.loads(f'"{inner}"')
    except ValueError:
        raise ValueError(f"{text} is no quoted string") from None
    return str(value)


__all__ = ["Path", "Template", "go_text", "in_braces", "relaxed_path"]
