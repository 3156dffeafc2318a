"""The output of many processes on one terminal: whole lines, each with the name of who wrote it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO

from eventbus.cli.output import wants_colour
from eventbus.cli.stderr_relay import last_line

#: cyan, yellow, green, magenta, blue, and their bright ones; no red, which means an error to most eyes
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
#: bytes after which a line without an end is shown as one
LONGEST_LINE = 65_536


class PrefixedOutput:
    """Standard output, shared by threads: a line is written whole, and at once.

    Args: names: everybody who will write; the longest decides where the lines begin.  broken: called once when nobody
    reads any more; the rest is thrown away, so that no process has to wait.
    """

    def __init__(self, names: Iterable[str], *, broken: Callable[[], object]) -> None:
        names = list(names)
        width = max(map(len, names))
        coloured = wants_colour(sys.stdout)
        self._prefixes = {
            name: _prefix(f"{name:<{width}} | ", COLOURS[place % len(COLOURS)] if coloured else None)
            for place, name in enumerate(names)
        }
        self._lock = threading.Lock()
        self._on_broken = broken
        self.is_broken = False
        self._last: dict[str, bytes] = {}

    def write(self, name: str, line: bytes) -> None:
        """Write *line*, with or without its newline, as said by *name*."""
        whole = self._prefixes[name] + line + (b"" if line.endswith(b"\n") else b"\n")
        with self._lock:
            if self.is_broken:
                return
            try:
                sys.stdout.buffer.write(whole)
                sys.stdout.buffer.flush()
            except OSError:
                self.is_broken = True
        if self.is_broken:
            self._on_broken()

    def copy(self, name: str, stream: IO[bytes]) -> None:
        """Write every line of *stream* until its end."""
        with stream:
            while line := stream.readline(LONGEST_LINE):
                self.write(name, line)
                if line.strip():
                    self._last[name] = line

    def take_last_line(self, name: str) -> str:
        """The last line copied for *name* since this was asked before, made printable; empty: none."""
        return last_line(self._last.pop(name, b""))


def _prefix(text: str, colour: int | None) -> bytes:
    return (text if colour is None else f"\x1b[{colour}m{text}\x1b[0m").encode()
