"""Writes a folder of files that are all replaced at once: a reader sees all old ones, or all new ones.

Source: kubelet `volume/util/atomic_writer.go`: each name is a link into `..data`, the one link that moves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_DATA, _NEW_DATA = "..data", "..data_tmp"


class File(NamedTuple):
    """The content of a file to be written, and its permissions."""

    content: bytes
    mode: int


def write_files(folder: Path, files: Mapping[str, File]) -> bool:
    """Make *folder* hold *files*, by their paths in it, and no others. Returns: whether it changed. Raises: OSError."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if _holds(folder, files):
        return False
    former = _target(folder)
    made = folder / f"..{time.time_ns()}"
    made.mkdir(mode=0o755)
    for name, file in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
            os.fchmod(target.fileno(), file.mode)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / _NEW_DATA)
    os.symlink(made.name, folder / _NEW_DATA)
    os.replace(folder / _NEW_DATA, folder / _DATA)
    _link(folder, {name.split("/")[0] for name in files})
    if former:
        shutil.rmtree(folder / former, ignore_errors=True)
    return True


def _holds(folder: Path, files: Mapping[str, File]) -> bool:
    data = folder / _DATA
    try:
        there = (
            {str(path.relative_to(data)) for path in data.rglob("*") if not path.is_dir()} if data.exists() else None
        )
        return there == set(files) and all(
            (data / name).read_bytes() == file.content and (data / name).stat().st_mode & 0o7777 == file.mode
            for name, file in files.items()
        )
    except OSError:
        return False


def _target(folder: Path) -> str:
    try:
        return os.readlink(folder / _DATA)
    except OSError:
        return ""


def _link(folder: Path, names: set[str]) -> None:
    """Let each top-level name lead into `..data`; take away those that lead to nothing any more."""
    for name in names:
        if not os.path.lexists(folder / name):
            os.symlink(f"{_DATA}/{name}", folder / name)
    for entry in os.listdir(folder):
        if not entry.startswith("..") and entry not in names:
            os.unlink(folder / entry)
