"""Reads a file that says one thing a line, as a Procfile and `.env` do."""

from __future__ import annotations

from pathlib import Path

from eventbus.errors import ConfigError


def said_lines(data: bytes, path: Path) -> list[tuple[int, str]]:
    """Return the lines in what was read from *path*, stripped, each with its number; not empty ones and comments.

    Raises: ConfigError: it is no UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


__all__ = ["said_lines"]
