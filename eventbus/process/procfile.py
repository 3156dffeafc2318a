"""Reads a Procfile: `name: command` a line, as foreman and honcho read it."""

from __future__ import annotations

import re
from pathlib import Path

from eventbus.errors import ConfigError
from eventbus.process.line_file import said_lines

_LINE = re.compile(r"([A-Za-z0-9_-]+):\s*(\S.*)")
#: What `up` calls itself in its output.
RESERVED = "up"


def read_procfile(path: Path) -> dict[str, str]:
    """Return the commands of *path* by name, in its order. Empty lines and those that begin with # do not count.

    Raises: ConfigError: it cannot be read, or a line is wrong; the message has its number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_procfile(data, path)


def parse_procfile(data: bytes, path: Path) -> dict[str, str]:
    """Return the commands of what was read from *path*. Raises: ConfigError: as `read_procfile`."""
    commands: dict[str, str] = {}
    for number, line in said_lines(data, path):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(f"{path}:{number}: not of the form `name: command` (names: letters, digits, - and _)")
        name, command = found.groups()
        if name in commands or name == RESERVED:
            raise ConfigError(f"{path}:{number}: the name {name!r} is {'taken' if name == RESERVED else 'used twice'}")
        commands[name] = command
    return commands
