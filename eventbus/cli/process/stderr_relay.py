"""Relays a command's standard error unchanged, and remembers its last line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
import threading
from collections.abc import Callable

from eventbus.util.outcome import last_line

#: bytes a read: the size of a Linux pipe
CHUNK = 65_536
#: bytes remembered; a longer line loses its beginning
TAIL_BYTES = 8_192
#: most bytes relayed after the command's end: the content of a pipe, even if other processes go on writing
MOST_AFTER_END = 1_048_576


class StderrRelay:
    """A terminal or pipe for one run of a command, and a thread that carries its bytes to standard error.

    Standard output is relayed too if both are one file, so that their order stays. If they are a terminal, the command
    gets a pseudo-terminal of the same size that changes no byte. Line modes that it sets there do not affect the real
    terminal, which stays its controlling terminal and has the keyboard. When the real one breaks, the command's end
    breaks too, as without a relay.

    Args:   done: called by the thread at its end.
    Raises: OSError: no pseudo-terminal, pipe, thread or standard error; the command should inherit its streams.
    """

    def __init__(self, *, done: Callable[[], None]) -> None:
        self._target = target = 2
        #: The command's descriptors that `child_end` is for.
        self.streams = (1, 2) if _same_file(1, 2) else (2,)
        self._done = done
        self._tail = b""
        self._left = MOST_AFTER_END
        self._finished = threading.Event()
        self._is_terminal = os.isatty(target)
        os.fstat(target)
        if self._is_terminal:
            self._source, self.child_end = os.openpty()
            _copy_settings(target, self.child_end)
        else:
            self._source, self.child_end = os.pipe()
        os.set_blocking(self._source, False)
        self._end_read, self._end_write = os.pipe()
        self.resize()
        try:
            threading.Thread(target=self._run, name="eventbus-stderr", daemon=True).start()
        except RuntimeError as error:  # the limit of processes is reached
            for descriptor in (self.child_end, self._source, self._end_read, self._end_write):
                os.close(descriptor)
            raise OSError(errno.EAGAIN, str(error)) from error

    def hand_over(self) -> None:
        """Leave its end of the pipe to the command, which is running."""
        os.close(self.child_end)

    def abandon(self) -> None:
        """End the thread, which closes the rest: the command could not be started."""
        os.close(self.child_end)
        self.finish()

    def resize(self) -> None:
        """Give the command's terminal the size of the real one."""
        if self._is_terminal:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._target, termios.TIOCGWINSZ, bytes(struct.calcsize("HHHH")))
                fcntl.ioctl(self._source, termios.TIOCSWINSZ, size)

    def finish(self) -> None:
        """Relay the remaining bytes after the command's end, without waiting for other writers of the pipe."""
        os.close(self._end_write)

    @property
    def finished(self) -> bool:
        """Return True if everything is relayed, or cannot be."""
        return self._finished.is_set()

    @property
    def last_line(self) -> str:
        """Return the last line with anything to read in it, made printable; at most 512 bytes."""
        return last_line(self._tail)

    def _run(self) -> None:
        try:
            while (data := self._read()) and write_all(self._target, data):
                self._tail = (self._tail + data)[-TAIL_BYTES:]
        finally:
            os.close(self._source)
            os.close(self._end_read)
            self._finished.set()
            self._done()

    def _read(self) -> bytes:
        """Read the next bytes; empty: there will be none."""
        while self._left > 0:
            ready, _, _ = select.select([self._source, self._end_read], [], [])
            ended = self._end_read in ready
            try:
                data = os.read(self._source, CHUNK)
            except BlockingIOError:
                if ended:
                    return b""
                continue
            except OSError:  # EIO: no process has the other end of the pseudo-terminal open
                return b""
            if ended:
                self._left -= len(data)
            return data
        return b""


def _same_file(one: int, other: int) -> bool:
    """Return True if two descriptors are one file, pipe or terminal; a closed one is none."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def write_all(descriptor: int, data: bytes) -> bool:
    """Write all of *data*, however long it takes. Returns False if its reader has gone."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another process has made it non-blocking
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True


def _copy_settings(source: int, target: int) -> None:
    settings = termios.tcgetattr(source)
    settings[1] &= ~termios.OPOST  # the real one makes \r\n of \n; twice would show
    settings[3] &= ~(termios.ECHO | termios.ECHONL)
    termios.tcsetattr(target, termios.TCSANOW, settings)
