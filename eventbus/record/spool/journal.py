"""The journal: the one file of a spool's folder. It is appended to, or replaced as a whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from eventbus.failpoints import failpoint
from eventbus.record.spool.claim import BATCHES, UNREADABLE, Claim
from eventbus.record.spool.records import Contents, read

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_NEXT = "batches.next"


class Journal:
    """The file of a folder that this process holds. One thread at a time, except for `sync`.

    A write that fails, because the disk is full or *limit_bytes* is reached, leaves the file unchanged.
    """

    def __init__(self, claim: Claim, *, limit_bytes: int, file: int = -1, size: int = 0) -> None:
        self._claim = claim
        self._limit_bytes = limit_bytes
        self._file = file
        self.size = size
        self.problem = ""  #: why the last write failed; empty: it succeeded
        self.unsynced = False  #: some writes may not be on the disk yet

    @classmethod
    def adopt(cls, claim: Claim, *, limit_bytes: int) -> tuple[Journal, Contents]:
        """Continue the file of another process. Unreadable parts are kept in a second file, for people.

        Raises: OSError: it cannot be read.
        """
        contents = read_file(claim.folder)
        if contents.problem and not contents.torn and contents.header is not None:
            with suppress(FileExistsError):
                os.link(claim.folder / BATCHES, claim.folder / UNREADABLE, follow_symlinks=False)
        file = -1 if contents.problem else os.open(claim.folder / BATCHES, _FLAGS)
        return cls(claim, limit_bytes=limit_bytes, file=file, size=contents.end), contents

    @property
    def folder(self) -> Path:
        """Return its folder."""
        return self._claim.folder

    @property
    def room(self) -> int:
        """Return how many bytes it may still grow."""
        return max(0, self._limit_bytes - self.size)

    def append(self, data: bytes) -> bool:
        """Append *data*. False: there is no room, see *problem*."""
        if self.size + len(data) > self._limit_bytes:
            self.problem = f"it has {self.size} bytes, and may have {self._limit_bytes} (EVENTBUS_SPOOL_BYTES)"
            return False
        failpoint("spool")
        try:
            _write(self._file, data, self.size)
        except OSError as error:
            self.problem = str(error)
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            return False
        failpoint("spooled")
        self.size += len(data)
        self.problem, self.unsynced = "", True
        return True

    def replace(self, data: bytes) -> bool:
        """Replace the whole file by *data*, atomically. False: it failed, and the file is unchanged."""
        if len(data) > self._limit_bytes:
            self.problem = f"what waits has {len(data)} bytes, and may have {self._limit_bytes} (EVENTBUS_SPOOL_BYTES)"
            return False
        following = self.folder / _NEXT
        try:
            file = os.open(following, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            self.problem = str(error)
            return False
        try:
            _write(file, data, 0)
            if self.size:  # the old file may be on the disk already: sync the new one before the rename
                os.fdatasync(file)
            failpoint("respool")
            os.rename(following, self.folder / BATCHES)
        except OSError as error:
            os.close(file)
            with suppress(OSError):
                os.unlink(following)
            self.problem = str(error)
            return False
        self._close_file()
        self._file, self.size = file, len(data)
        self.problem, self.unsynced = "", True
        return True

    def cut(self, size: int) -> None:
        """Cut the file to its first *size* bytes."""
        os.ftruncate(self._file, size)
        self.size, self.unsynced = size, True

    def sync(self) -> None:
        """Sync the writes and the names of new files to the disk; blocks until it is done.

        Any thread: it syncs the current file.
        """
        if not self.unsynced:
            return
        self.unsynced = False
        with suppress(OSError):
            file = os.dup(self._file)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            for folder in (self.folder, self.folder.parent):
                _sync_folder(folder)

    def release(self) -> None:
        """Release it for the next process."""
        self._close_file()
        self._claim.release()

    def remove(self) -> None:
        """Remove the file; no event waits any more."""
        self._close_file()
        with suppress(OSError):
            os.unlink(self.folder / _NEXT)
        self._claim.remove()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_file(folder: Path) -> Contents:
    """Read *folder*'s file; a folder without one is empty.

    Raises: OSError: it cannot be read.
    """
    try:
        file = os.open(folder / BATCHES, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return read(b"")
    with open(file, "rb") as opened:
        return read(opened.read())


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
