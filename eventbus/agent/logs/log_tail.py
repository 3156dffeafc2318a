"""Reads a log while it is written, piece by piece, also if it is rotated in the meantime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

from eventbus.agent.shim.output import CHUNK, MOST_BYTES, MOST_FILES

_BLOCK: Final = 65_536
#: A log is rotated within microseconds, ten times a second at the most.
_TRIES: Final = 200
#: The line that replaces missed output.
LOST: Final = b"[part of the output is not shown: it came faster than it was read]"


class LogTail:
    """The bytes of the log at *path*, in their order. Never blocks; one thread uses it.

    Args: file: the newest of `open_pieces`; it is read from its position on. It becomes the tail's.

    *missed* is True after pieces were removed before they were read, also if no data follow. The caller resets it.
    """

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self.missed = False
        self._path = path
        self._file = file

    def read(self) -> bytes:
        """Return the next output, at most 64 KiB; empty: no output yet."""
        if self._file is None:
            # From the beginning is from the oldest piece: much may have been written before the first look.
            self._file = _opened(self._oldest())
            if self._file is None:
                return b""
        while True:
            if data := self._file.read(_BLOCK):
                return data
            if not self._is_rotated():
                if not os.fstat(self._file.fileno()).st_nlink:
                    self._end_removed()
                return b""
            if data := self._file.read(_BLOCK):  # written before the rotation; it is complete now
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

    def _end_removed(self) -> None:
        """Close the piece of a log that is removed; newer pieces existed if this one has no room for another chunk."""
        assert self._file is not None
        self.missed |= os.fstat(self._file.fileno()).st_size + CHUNK > MOST_BYTES
        self.close()

    def _oldest(self) -> Path:
        return next((piece for piece in reversed(_pieces(self._path)) if piece.exists()), self._path)

    def _is_rotated(self) -> bool:
        assert self._file is not None
        newest = _inode(self._path)
        return newest is not None and newest != os.fstat(self._file.fileno()).st_ino

    def _following(self) -> BinaryIO | None:
        """Open the piece after ours; None: it is being made just now."""
        assert self._file is not None
        own = os.fstat(self._file.fileno()).st_ino
        pieces = _pieces(self._path)
        inodes = [_inode(piece) for piece in pieces]
        if own in inodes:
            place = inodes.index(own) - 1
        else:
            self.missed = True
            place = max(place for place, inode in enumerate(inodes) if inode is not None or place == 0)
        file = _opened(pieces[place]) if place >= 0 else None
        if file is not None and os.fstat(file.fileno()).st_ino != inodes[place]:  # rotated once more in between
            file.close()
            return None
        return file


def open_pieces(path: Path) -> list[BinaryIO]:
    """Open the pieces of the log at *path*, oldest first; a later rotation does not change the open files.

    Returns: files without a buffer, which the caller closes; empty: there is no log.
    """
    for tries_left in reversed(range(_TRIES)):
        files = [_opened(piece) for piece in _pieces(path)]  # newest first: a rotation shows in one that comes again
        opened = [file for file in files if file is not None]
        whole = (
            len({os.fstat(file.fileno()).st_ino for file in opened}) == len(opened) and files[: len(opened)] == opened
        )
        if whole or not tries_left:  # a piece was removed by hand
            break
        for file in opened:
            file.close()
    return opened[::-1]


def _pieces(path: Path) -> list[Path]:
    """Return the paths of all pieces that there may be, newest first."""
    return [path, *(path.with_name(f"{path.name}.{place}") for place in range(1, MOST_FILES))]


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
