"""Reads `.env` beside a Procfile, and gives each of its lines a PORT, as foreman and honcho do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from eventbus.errors import ConfigError
from eventbus.process.line_file import said_lines

_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\"": '"', "\\\\": "\\"}
#: foreman's first port, and the step from a line of the Procfile to the next.
FIRST_PORT, PORT_STEP = 5000, 100
LAST_PORT: Final = 65_535
_PORT: Final = re.compile(r"[0-9]{1,5}")


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of *path*; none if there is no such file. `A=b`, `A='b'`, `A="b\\n"`, `export A=b`, `# …`.

    Raises: ConfigError: it cannot be read, or a line is none of these; the message has its number.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_env_file(data, path)


def parse_env_file(data: bytes, path: Path) -> dict[str, str]:
    """Return the variables in what was read from *path*. Raises: ConfigError: as `read_env_file`."""
    found: dict[str, str] = {}
    for number, line in said_lines(data, path):
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ConfigError(f"{path}:{number}: not of the form NAME=value")
        found[matched[1]] = _value(matched[2])
    return found


def _value(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\[nt\"\\]", lambda found: _ESCAPES[found[0]], text[1:-1])
    return text


def ports_of(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the PORT of each line: the variable PORT, or 5000, and 100 more for each next one.

    Raises: ConfigError: PORT is none, or too high for so many lines. Where there are none it may be anything.
    """
    base = environ.get("PORT") or str(FIRST_PORT)
    names = list(names)
    if names and not (_PORT.fullmatch(base) and 0 < int(base) <= LAST_PORT):
        raise ConfigError(f"PORT={base[:80]!r} is not a port, like {FIRST_PORT}")
    ports = {name: int(base) + PORT_STEP * place for place, name in enumerate(names)}
    if any(port > LAST_PORT for port in ports.values()):
        raise ConfigError(
            f"PORT={base!r} leaves none for the last of {len(names)} lines, each {PORT_STEP} above the one before"
        )
    return {name: str(port) for name, port in ports.items()}


__all__ = ["FIRST_PORT", "PORT_STEP", "parse_env_file", "ports_of", "read_env_file"]
