"""Ties a worker to the `eventbus up` that started it: when `up` ends, for any reason, the worker drains and exits.

It uses a named pipe: only `up` has it open for writing. The worker reads it, and gets EOF when `up` has ended.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

#: Variable with the path of the pipe.
VARIABLE = "EVENTBUS_LIFELINE"


class ParentPipe:
    """The writing end of a pipe in *folder*, which `up` keeps open until `close` or its exit."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.absolute() / "lifeline"
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._held = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variable with which a worker finds the pipe."""
        return {VARIABLE: str(self._path)}

    def close(self) -> None:
        os.close(self._held)


def follow_starter(end: Callable[[], object]) -> None:
    """Call *end*, in a thread, when the `up` that started this process has ended. Without `up`, do nothing."""
    path = os.environ.pop(VARIABLE, "")
    if not path:
        return
    try:
        # A blocking open would wait for a writer, which may have ended already.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        end()  # the folder is gone, so `up` has ended
        return
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    os.set_blocking(descriptor, True)
    threading.Thread(target=_follow, args=(descriptor, end), name="eventbus-lifeline", daemon=True).start()


def _follow(descriptor: int, end: Callable[[], object]) -> None:
    while os.read(descriptor, 1):
        continue  # `up` writes no data
    end()
