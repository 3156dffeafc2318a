"""Ties a worker to the `eventbus up` that started it: when that is gone, however it went, the worker drains and ends.

It is a named pipe: `up` alone holds it for writing, the worker reads it, and reads its end when nobody does.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

#: The path of the pipe that the worker is to read.
VARIABLE = "EVENTBUS_LIFELINE"


class ParentPipe:
    """The end that `up` holds, until `close` or its own end, of a pipe in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.absolute() / "lifeline"
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._held = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variable by which a worker finds the pipe."""
        return {VARIABLE: str(self._path)}

    def close(self) -> None:
        os.close(self._held)


def follow_starter(end: Callable[[], object]) -> None:
    """Have *end* called, in a thread, when the `up` that started this process is gone; nothing where none did."""
    path = os.environ.pop(VARIABLE, "")
    if not path:
        return
    try:
        # Whoever opens it for reading waits for a writer, who may be gone already.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        end()  # with its folder, `up` is gone
        return
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    os.set_blocking(descriptor, True)
    threading.Thread(target=_follow, args=(descriptor, end), name="eventbus-lifeline", daemon=True).start()


def _follow(descriptor: int, end: Callable[[], object]) -> None:
    while os.read(descriptor, 1):
        continue  # nobody writes to it
    end()
