"""Refuses files that other users can write: a manifest runs programs, a file of tokens names administrators."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from eventbus.errors import ConfigError

#: As many as the kernel follows.
_MOST_LINKS: Final = 40


def _check_own(path: Path, status: os.stat_result) -> None:
    """Check that *path* is root's or ours, and that others cannot write it. Raises: ConfigError: with its cure."""
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to uid {status.st_uid}: only files of root or of our own user are read")
    if stat.S_ISLNK(status.st_mode):  # it has no mode
        return
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if writable and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        raise ConfigError(f"{path} can be written by others: chmod go-w {path}")


def read_own(path: Path, most_bytes: int) -> bytes:
    """Return the content of *path*. The open file is checked, so that it cannot be replaced in between.

    Raises: ConfigError: it may be another user's, is no file, is too long, or cannot be read.
    """
    try:
        # O_NONBLOCK: a pipe in the place of the file must not block us.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no file")
        _check_own(path, status)
        with os.fdopen(handle, "rb", closefd=False) as file:  # which refuses a folder, and would leave it open
            data = file.read(most_bytes + 1)
    finally:
        os.close(handle)
    if len(data) > most_bytes:
        raise ConfigError(f"{path} is longer than {most_bytes} bytes")
    if path.is_symlink():
        check_own_folders(path)
    return data


def check_own_folders(path: Path) -> None:
    """Check *path*, and every folder and link on the way: another user could replace one of them.

    Raises: ConfigError.
    """
    ahead = list(reversed(path.absolute().parts))
    here, links = Path(ahead.pop()), 0
    try:
        _check_own(here, here.lstat())
        while ahead:
            part = ahead.pop()
            if part == "..":  # all folders before it are checked
                here = here.parent
                continue
            there = here / part
            status = there.lstat()
            _check_own(there, status)
            if not stat.S_ISLNK(status.st_mode):
                here = there
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ConfigError(f"{path} leads through too many links")
            target = there.readlink()
            if target.is_absolute():
                here = Path(target.anchor)
            ahead += reversed(target.relative_to(target.anchor).parts)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
