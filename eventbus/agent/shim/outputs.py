"""Reads the output of processes, as it comes, into a log or into memory."""

from __future__ import annotations

import contextlib
import os
import select

from eventbus.agent.shim.log_file import LogFile

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
