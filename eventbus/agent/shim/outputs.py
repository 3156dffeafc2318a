"""Reads the output of processes, as it comes, into a log or into memory."""

from __future__ import annotations

import os

from eventbus.agent.shim.log_file import LogFile

CHUNK = 64 * 1024
#: Read of one process before the next has its turn, bytes.
_AT_ONCE = 16 * CHUNK
#: More than any pipe holds; a process that prints for ever does not delay the end.
_WHOLE = 16 * _AT_ONCE


class Output:
    """The reading end of a process's output: into *log*, or, without one, the first *most* bytes into `said`."""

    __slots__ = ("_most", "descriptor", "log", "said")

    def __init__(self, descriptor: int, log: LogFile | None, most: int = 0) -> None:
        self.descriptor = descriptor
        self.log = log
        self.said = b""
        self._most = most

    def read(self, *, whole: bool = False) -> bool:
        """Read the available output, *whole* all of it. Returns: False if there will be no more."""
        left = _WHOLE if whole else _AT_ONCE
        while left > 0:
            try:
                data = os.read(self.descriptor, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            left -= len(data)
            if self.log:
                self.log.write(data)
            else:
                self.said = (self.said + data)[: self._most]
        return True

    def close(self) -> None:
        os.close(self.descriptor)
        if self.log:
            self.log.close()


def hold(writing: int) -> int:
    """Return the pipe's end for a process, which holds it for reading too: when the shim dies, writing blocks one day,
    and does not kill the process by SIGPIPE. Raises: OSError."""
    return os.open(f"/proc/self/fd/{writing}", os.O_RDWR)
