"""Checks that only this user can write to a folder, before a file in it is trusted or run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from eventbus.errors import ConfigError

#: Forbids writing by others. Reading is harmless, because each file of ours has a private mode.
WRITE = 0o022
#: Forbids all access by others: for a folder in a shared place.
ANYTHING = 0o077


def check_private(
    folder: Path,
    names: Iterable[str] = (),
    *,
    forbidden: int = WRITE,
    user: str = "the embedded server",
    variable: str = "EVENTBUS_STATE_DIR",
) -> None:
    """Check that *folder* is a real folder of this user, and that the files *names* in it are this user's, too.

    A user with the right to write to it could put a server there, or the number of any process into `server.pid`. The
    parent folders are not checked.

    Args:   forbidden: bits of the mode that must not be set.  user, variable: for the message.
    Raises: ConfigError: it is not; the message has the cure.  OSError: there is none, or it may not be looked at.
    """

    def refused(path: Path, problem: str, cure: str) -> ConfigError:
        return ConfigError(f"{user} will not use {path}: it {problem}: {cure}", cure=cure)

    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        cure = f"set {variable} to the folder that it leads to, {os.path.realpath(folder)}"
        raise refused(folder, "is a symbolic link", cure)
    if not stat.S_ISDIR(status.st_mode):
        raise refused(folder, "is not a folder", f"remove it, or set {variable} to another")
    if status.st_uid != os.geteuid():
        cure = f"run this as that user, or set {variable} to a folder of user {os.geteuid()}"
        raise refused(folder, f"belongs to user {status.st_uid}", cure)
    if status.st_mode & forbidden:
        verb = "write to" if forbidden == WRITE else "enter"
        cure = f"create it again with mkdir -m 700, or check its files and then chmod 700 {folder}"
        raise refused(folder, f"is open, others may {verb} it (mode {stat.S_IMODE(status.st_mode):03o})", cure)
    for file in (folder / name for name in names):
        if (owner := _owner(file)) not in (None, os.geteuid()):
            raise refused(file, f"belongs to user {owner}", "check it, and remove it")


def _owner(file: Path) -> int | None:
    try:
        return file.lstat().st_uid
    except FileNotFoundError:
        return None
