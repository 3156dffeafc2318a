"""Writes the output of many processes to one terminal: whole lines, each with its writer's name."""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable

from eventbus.cli.printers.output import wants_colour
from eventbus.cli.process.stderr_relay import write_all

#: cyan, yellow, green, magenta, blue, and their bright ones; no red, which means an error to most eyes
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
#: a Warning of `eventbus worker log`, after the time and the namespace
_WARNING = re.compile(rb"\S+  \S*  Warning  ")


#: most lines that wait for the terminal; then writers block
MOST_LINES = 256
#: during the end, seconds after which a terminal that takes no output counts as paused
PAUSED_S = 1.0


class PrefixedOutput:
    """Standard output, shared by threads: a line is written whole, and at once, by a thread of its own.

    A terminal that is paused (Ctrl-S) blocks writers, as it would without us, but never `say`.

    Args: names: all writers; the longest name sets the width of the prefix.  broken: called once when the reader of
    the output has gone; the rest is dropped, so that no process blocks.
    """

    def __init__(self, names: Iterable[str], *, broken: Callable[[], object]) -> None:
        names = list(names)
        width = max(map(len, names))
        self._coloured = coloured = wants_colour(sys.stdout)
        self._prefixes = {
            name: _prefix(f"{name:<{width}} | ", COLOURS[place % len(COLOURS)] if coloured else None)
            for place, name in enumerate(names)
        }
        self._on_broken = broken
        self.is_broken = False
        self._lines: deque[bytes] = deque()
        self._writing = False
        self._paused = False
        self._patience_s: float | None = None  # None is for ever
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="eventbus-output", daemon=True).start()

    def write(self, name: str, line: bytes) -> None:
        """Write *line*, with or without its newline, with the prefix *name*. Blocks until there is room."""
        with self._changed:
            while len(self._lines) >= MOST_LINES and not self.is_broken and not self._paused:
                if not self._changed.wait(self._patience_s):
                    self._paused = True
            if len(self._lines) < MOST_LINES:
                self._add(name, line)

    def say(self, name: str, line: bytes) -> None:
        """Print a line without blocking; it is dropped if too many lines wait."""
        with self._changed:
            if len(self._lines) < 2 * MOST_LINES:
                self._add(name, line)

    def hurry(self) -> None:
        """Begin the end: from now on a paused terminal blocks no writer for long."""
        with self._changed:
            self._patience_s = PAUSED_S
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until everything is written, unless the terminal is paused."""
        self.hurry()
        with self._changed:
            while (self._lines or self._writing) and not self.is_broken and not self._paused:
                if not self._changed.wait(self._patience_s):
                    self._paused = True

    def _add(self, name: str, line: bytes) -> None:
        if not self.is_broken:
            text = line.removesuffix(b"\n")
            shown = b"\x1b[33m" + text + b"\x1b[0m" if self._coloured and _WARNING.match(line) else text
            self._lines.append(self._prefixes[name] + shown + b"\n")
            self._changed.notify_all()

    def _run(self) -> None:
        while not self.is_broken:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                data = b"".join(self._lines)
                self._lines.clear()
                self._writing = True
                self._changed.notify_all()
            # Not with sys.stdout: its lock, held while this waits for the terminal, would block the interpreter's end.
            written = write_all(1, data)
            with self._changed:
                self._writing = self._paused = False
                self.is_broken = not written
                self._changed.notify_all()
        self._on_broken()


def _prefix(text: str, colour: int | None) -> bytes:
    return (text if colour is None else f"\x1b[{colour}m{text}\x1b[0m").encode()
