"""Write docs/settings.md from eventbus/settings.py, as `make docs` does; --check only says if it is out of date."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "eventbus" / "settings.py"
PAGE = ROOT / "docs" / "settings.md"
HEAD = """# Settings

Made by `make docs` from `eventbus/settings.py`; do not edit.

A **setting** belongs to one process. It is an environment variable that is read at start, or an argument of
`Settings(…)`.
An **option** belongs to the whole bus. It is stored in Redis, and all workers use a new value immediately:
`eventbus options set burst=50`, `eventbus options get`.

Units: `_s` is seconds, `_ms` milliseconds, `_bytes` bytes, `ttl` a lifetime.

"""
#: Variables that only one part reads, and that are no fields of `Settings`.
OTHERS = """
## Variables of single commands and sinks

| variable | meaning |
|---|---|
| `EVENTBUS_CONFIG` | file with the contexts of `eventbus config`; default `~/.config/eventbus/config.json` |
| `EVENTBUS_CONTEXT` | the context to use, like `--context` |
| `EVENTBUS_NAMESPACE` | the namespace without `-n` |
| `EVENTBUS_OPTIONS` | for workers: required options of the bus as JSON, such as `{"burst": 50}` |
| `EVENTBUS_MANIFEST_ALLOW_HOSTS` | hosts in your network from which an agent may fetch manifests without TLS |
| `EVENTBUS_COMPLETION_TIMEOUT_S` | time that Tab waits for names from the bus; `1` |
| `EVENTBUS_EXPORT_TO`, `…_FILE` | URL of the sink of `eventbus worker export`, if it is a secret |
| `EVENTBUS_EXPORT_HEADERS`, `…_FILE` | headers for a sink over HTTP, one a line |
| `EVENTBUS_POSTGRES_PASSWORD`, `…_FILE` | password of a PostgreSQL sink |
| `EVENTBUS_WEBHOOK_SECRET`, `…_FILE` | key that signs the requests to a webhook |
| `EVENTBUS_WEBHOOK_TOKEN`, `…_FILE` | bearer token for a webhook |
| `EVENTBUS_WEBHOOK_MODE` | `structured`, `binary` or `batch` CloudEvents |
| `EVENTBUS_WEBHOOK_REQUESTS` | concurrent requests of a partition, 1 to 64, not for `batch`; `8` |
| `EVENTBUS_WEBHOOK_SOURCE` | source of the CloudEvents; `/eventbus` |
| `EVENTBUS_WEBHOOK_CA_FILE` | trusted CAs for all sinks over HTTP |
| `EVENTBUS_WEBHOOK_ALLOW_HOSTS` | hosts in your network for sinks over HTTP and receivers, on any port, without TLS |

See [sinks](sinks.md).
"""


class Field(NamedTuple):
    """A line of the page."""

    name: str
    kind: str
    default: str
    meaning: str


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` return 1 if it is out of date."""
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text("utf-8") == page()
        if not current:
            print("docs/settings.md is out of date: run make docs", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page(), "utf-8")
    print(f"docs: {PAGE.relative_to(ROOT)} written")
    return 0


def page() -> str:
    """Return the page for the current settings.py."""
    from eventbus.settings import Options, Settings

    settings = [
        f"| `EVENTBUS_{one.name.upper()}` | {one.kind} | {one.default} | {one.meaning} |" for one in of(Settings)
    ]
    options = [f"| `{one.name}` | {one.kind} | {one.default} | {one.meaning} |" for one in of(Options)]
    parts = [
        *("## Settings of a process", "", "| variable | type | default | meaning |", "|---|---|---|---|", *settings),
        *("", "## Options of the bus", "", "| option | type | default | meaning |", "|---|---|---|---|", *options),
    ]
    return HEAD + "\n".join(parts) + "\n" + OTHERS


def of(shape: type[msgspec.Struct]) -> Iterator[Field]:
    """Yield the fields of a Struct, in order, with their comments."""
    hints, said = get_type_hints(shape), _comments(shape.__name__)
    for field in msgspec.structs.fields(shape):
        meaning, shown = said.get(field.name, ""), _default(field.default)
        assert meaning or issubclass(_plain(hints[field.name]), StrEnum), f"{field.name} has no comment"
        yield Field(field.name, _kind(hints[field.name]), shown, _sentence(meaning, hints[field.name]))


def _comments(name: str) -> dict[str, str]:
    """Return the text after `#:` on the line of each field."""
    text = SOURCE.read_text("utf-8")
    lines = text.splitlines()
    (shape,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        node.target.id: lines[(node.end_lineno or 1) - 1].partition("#: ")[2]
        for node in shape.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _plain(kind: Any) -> type:
    return kind if isinstance(kind, type) else object


def _kind(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{one}`" for one in kind)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(kind, "texts, with commas")


def _default(value: Any) -> str:
    if value == "" or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and 0 < value < 0.01:
        return f"1/{round(1 / value)}"
    return f"`{value}`"


def _sentence(text: str, kind: Any) -> str:
    if not text and isinstance(kind, type) and issubclass(kind, StrEnum):
        text = " ".join((kind.__doc__ or "").partition("\n")[0].split()).removeprefix("The ").rstrip(".")
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
