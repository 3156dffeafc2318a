"""Reads the output of processes as it comes, into memory or into a log: files of a bounded size."""

from __future__ import annotations

import contextlib
import os
import select

#: The kubelet's containerLogMaxSize and containerLogMaxFiles.
MOST_BYTES = 10 * 1024 * 1024
MOST_FILES = 5


class LogFile:
    """Appends to *path*; when that is full it becomes `path.1`, the former `path.1` becomes `path.2`, and so on.

    A line that begins in one file may end in the next. Output that cannot be written (the disk is full) is dropped, and
    the next bytes that can be are led in by a line with the number of missing bytes.
    """

    def __init__(self, path: str, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._most_files = most_files
        self.dropped = 0
        self._file, self._size = -1, 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append *data*. Raises nothing."""
        if self._size + len(data) > self._most_bytes and self._size > 0:
            self._rotate()
        if self.dropped:
            data = b"[%d bytes of the log are lost: it could not be written]\n" % self.dropped + data
        try:
            if self._file < 0:
                self._open()
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
            self._size += len(data)
            self.dropped = 0
        except OSError:
            self.dropped += len(data)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._file, self._size = -1, 0
        with contextlib.suppress(OSError):
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            for number in range(self._most_files - 1, 0, -1):
                former = self.path if number == 1 else f"{self.path}.{number - 1}"
                if os.path.exists(former):
                    os.replace(former, f"{self.path}.{number}")
        self._open()


CHUNK = 64 * 1024
#: Read of one process before the next has its turn, bytes.
_AT_ONCE = 16 * CHUNK
#: More than any pipe holds; a process that prints for ever does not delay the end.
_WHOLE = 16 * _AT_ONCE


class Output:
    """The reading end of a process's output: into *log*, or, without one, the first *most* bytes into `content`.

    It is registered with *poll* until the output ends: a closed pipe, though the process may run on, would be ready
    for ever.
    """

    __slots__ = ("_log", "_most", "_poll", "content", "descriptor")

    def __init__(self, descriptor: int, poll: select.poll, *, log: LogFile | None = None, most: int = 0) -> None:
        self.descriptor = descriptor
        self.content = b""
        self._poll = poll
        self._log = log
        self._most = most
        poll.register(descriptor, select.POLLIN)

    def read(self, *, whole: bool = False) -> None:
        """Read the available output, *whole* all of it."""
        left = _WHOLE if whole else _AT_ONCE
        while left > 0:
            try:
                data = os.read(self.descriptor, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._forget()
                return
            left -= len(data)
            if self._log:
                self._log.write(data)
            else:
                self.content = (self.content + data)[: self._most]

    def close(self) -> None:
        """Read the rest, and close the output and its log."""
        self.read(whole=True)
        self._forget()
        os.close(self.descriptor)
        if self._log:
            self._log.close()

    def _forget(self) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(self.descriptor)
