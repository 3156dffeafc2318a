r"""The part of kubectl's JSONPath that selects by names and indexes: `{.items[*].metadata.name}{"\n"}`.

Steps: `.name`, `.a\.b`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*`. A missing field has no values. Source: client-go
`util/jsonpath`; ranges, filters, slices, unions and recursive descent are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias


class Step(Enum):
    """A step that is neither a name nor an index."""

    EVERY = "*"


#: The steps from a value to values in it: names of fields, indexes of lists.
Path: TypeAlias = tuple[str | int | Step, ...]
#: The texts and paths of a template, in order.
Template: TypeAlias = tuple[str | Path, ...]

_PART: Final = re.compile(r"\{((?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*)\}")
_STEP: Final = re.compile(
    r"\.(?P<name>\*|(?:\\.|[^.\[\]\\])+)"
    r"|\[\s*(?P<quoted>'[^']*'|\"[^\"]*\")\s*\]"
    r"|\[\s*(?P<index>-?\d+)\s*\]"
    r"|\[\*\]"
)
_ESCAPED: Final = re.compile(r"\\(.)")


def parse_template(text: str) -> Template:
    """Parse a text with paths and quoted texts in braces. Raises: ValueError."""
    parts: list[str | Path] = []
    end = 0
    for part in _PART.finditer(text):
        parts.append(_literal(text[end : part.start()]))
        end = part.end()
        inner = part[1].strip()
        parts.append(_unquote(inner) if inner[:1] in ("'", '"') else parse_path(inner))
    return (*parts, _literal(text[end:]))


def render(template: Template, value: Any) -> str:
    """Return the text of *template* for one value; several values of a path are separated by a space."""
    return "".join(part if isinstance(part, str) else " ".join(map(_format, find(part, value))) for part in template)


def parse_path(text: str) -> Path:
    """Parse a path without braces: `.a.b`. Raises: ValueError."""
    text = text.strip()
    steps: list[str | int | Step] = []
    at = 1 if text[:1] in ("$", "@") else 0
    while at < len(text) and text[at:] != ".":
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(
                f"cannot read {text[at:]!r} of the JSONPath {text!r}: only .name, ['name'], [0] and [*] are supported. "
                "Use -o json and jq, or kubectl through `eventbus worker api`: "
                "kubectl get events -o jsonpath='{range .items[*]}{.reason}{\"\\n\"}{end}'"
            )
        at = step.end()
        if step["index"] is not None:
            steps.append(int(step["index"]))
        elif step["quoted"] is not None:
            # kubectl reads a quoted name as a path too: its dots are escaped.
            steps += parse_path(f".{step['quoted'][1:-1]}")
        elif step["name"] in (None, "*"):
            steps.append(Step.EVERY)
        else:
            steps.append(_ESCAPED.sub(r"\1", step["name"]))
    return tuple(steps)


def parse_relaxed_path(text: str) -> Path:
    """Parse a path as people type it for `--sort-by`: `{.a.b}`, `.a.b`, `a.b`. Raises: ValueError."""
    return parse_path(in_braces(text)[1:-1])


def in_braces(text: str) -> str:
    """Return the same path, typed in full: `{.a.b}`."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return f"{{{text if text.startswith(('.', '[', '$')) else f'.{text}'}}}"


def find(path: Path, value: Any) -> list[Any]:
    """Return all values that *path* leads to, in order."""
    values = [value]
    for step in path:
        values = [inner for outer in values for inner in _follow(step, outer)]
    return values


def _follow(step: str | int | Step, value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        if step is Step.EVERY:
            return list(value.values())
        return [value[step]] if step in value else []
    if isinstance(value, list):
        if step is Step.EVERY:
            return value
        return [value[step]] if isinstance(step, int) and -len(value) <= step < len(value) else []
    return []


def _format(value: Any) -> str:
    """Format a value as kubectl prints it: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise ValueError(f"unclosed action in {text!r}")
    return text


def _unquote(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise ValueError(f"unterminated quoted string: {text}")
    inner = text[1:-1] if text[0] == '"' else text[1:-1].replace('"', '\\"').replace("\\'", "'")
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        raise ValueError(f"{text} is no quoted string") from None
