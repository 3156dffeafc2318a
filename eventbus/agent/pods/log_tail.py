"""Reads a log while it is written, piece by piece, whatever is rotated meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

from eventbus.agent.shim.log_file import MOST_FILES

_BLOCK: Final = 65_536
#: The line that takes the place of what was missed.
LOST: Final = b"[part of the output is not shown: it came faster than it was read]"


class LogTail:
    """The bytes that are added to the log at *path* behind *begin*, in their order. Never blocks; one thread uses it.

    *missed* is True once pieces were taken away before they were read; whoever tells people sets it back.
    """

    def __init__(self, path: Path, begin: int = 0) -> None:
        self.missed = False
        self._path = path
        self._begin = begin
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """Return what there is more, at most 64 KiB; empty: nothing now."""
        if self._file is None:
            # From the beginning is from the oldest piece: much may have been written before the first look.
            self._file = _opened(self._path if self._begin else self._oldest())
            if self._file is None:
                return b""
            self._file.seek(self._begin)
        while True:
            if data := self._file.read(_BLOCK):
                return data
            if not self._is_rotated():
                return b""
            if data := self._file.read(_BLOCK):  # written before it was; from now on nobody writes there
                return data
            following = self._following()
            if following is None:
                return b""
            self._file.close()
            self._file = following

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _pieces(self) -> list[Path]:
        """Return the paths of all pieces that there may be, newest first."""
        return [self._path, *(self._path.with_name(f"{self._path.name}.{place}") for place in range(1, MOST_FILES))]

    def _oldest(self) -> Path:
        return next((piece for piece in reversed(self._pieces()) if piece.exists()), self._path)

    def _is_rotated(self) -> bool:
        assert self._file is not None
        newest = _inode(self._path)
        return newest is not None and newest != os.fstat(self._file.fileno()).st_ino

    def _following(self) -> BinaryIO | None:
        """Open the piece behind ours; None: it is just being made."""
        assert self._file is not None
        own = os.fstat(self._file.fileno()).st_ino
        pieces = self._pieces()
        inodes = [_inode(piece) for piece in pieces]
        if own in inodes:
            place = inodes.index(own) - 1
        else:
            self.missed = True
            place = max(place for place, inode in enumerate(inodes) if inode is not None or place == 0)
        found = _opened(pieces[place]) if place >= 0 else None
        if found is not None and os.fstat(found.fileno()).st_ino != inodes[place]:  # rotated once more in between
            found.close()
            return None
        return found


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


__all__ = ["LOST", "LogTail"]
