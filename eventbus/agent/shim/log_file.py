"""The log of one run of a container: bytes as they came, in files of a bounded size."""

from __future__ import annotations

import contextlib
import os

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
