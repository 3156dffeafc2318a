"""The console command on a real terminal of its own: what a person would see, colours and width included."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.acceptance.programs import COMMAND
from tests.starting import Process, start
from tests.waiting import PATIENCE_S, reached

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`eventbus *arguments*` on a terminal *columns* wide, until the block ends; `raw` is all it has written.

    Args: command: what runs instead of `eventbus`.
    """

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        columns: int = 100,
        folder: Path | None = None,
        command: Sequence[str] = COMMAND,
        afresh: bool = False,
    ) -> None:
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        settings = dict(env) | {"TERM": "xterm-256color"}
        self._process: Process = start(
            [*command, *arguments],
            env=settings,
            stdin=its,
            stdout=its,
            stderr=its,
            folder=folder,
            terminal=True,
            afresh=afresh,
        )
        os.close(its)
        self._terminal = ours
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All it has written, with its control sequences."""
        return self._written.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """The same as a person reads it."""
        return _SEQUENCE.sub("", self.raw)

    def press(self, text: str) -> None:
        """Press these keys; Ctrl-C is \\x03."""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        """Wait until *text* stands there. Raises: AssertionError: it never did."""
        assert reached(lambda: text in self.text), f"{text!r} never came; there is: {self.text!r}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal, as pulling at the window does."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code, once everything it wrote has been read."""
        code = self._process.wait(timeout_s)
        self._reader.join(PATIENCE_S)
        return code

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press("\x03")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._terminal)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65_536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self._written += data


def run_on_terminal(
    *arguments: str,
    env: Mapping[str, str],
    columns: int = 100,
    folder: Path | None = None,
    afresh: bool = False,
) -> tuple[int, Terminal]:
    """Run to the end; the exit code, and what stands on the terminal."""
    with Terminal(*arguments, env=env, columns=columns, folder=folder, afresh=afresh) as terminal:
        return terminal.wait(), terminal
