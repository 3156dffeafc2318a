"""Reads files only if nobody else could have written them: who writes a manifest runs programs as the agent's user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from eventbus.errors import ConfigError


def _check_own(path: Path, found: os.stat_result) -> None:
    """Check that *path* is root's or ours, and writable by nobody else. Raises: ConfigError: says what to do."""
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to uid {found.st_uid}: pods come only from files of root or our own user")
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if writable and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        raise ConfigError(f"{path} can be written by others: chmod go-w {path}")


def read_own(path: Path, most_bytes: int) -> bytes:
    """Return what is in *path*, checked on what was opened, so that nobody can swap it meanwhile.

    Raises: ConfigError: it may be somebody else's, is no file, is too long, or cannot be read.
    """
    try:
        # O_NONBLOCK: a pipe that somebody has put there must not hold us up.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path} is no file")
        _check_own(path, found)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ConfigError(f"{path} is longer than {most_bytes} bytes")
    return data


def check_own_folders(path: Path) -> None:
    """Check *path* and the folders above it: who may rename one of them may put another in its place.

    Raises: ConfigError.
    """
    here = path.resolve()
    for folder in (here, *here.parents):
        try:
            _check_own(folder, folder.stat())
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read: {error.strerror}") from error


__all__ = ["check_own_folders", "read_own"]
