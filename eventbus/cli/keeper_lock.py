"""Whether an `eventbus up` keeps the embedded server of a directory running: it holds a lock as long as it lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_NAME = "up.lock"


def hold(directory: Path) -> int:
    """Say that this process keeps the server of *directory* running, until the descriptor returned is closed.

    Several may. Raises: OSError.
    """
    lock = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def holder(directory: Path) -> str | None:
    """The process id of who does, the latest of several; None: nobody."""
    try:
        lock = os.open(directory / _NAME, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode("ascii", "replace")
    finally:
        os.close(lock)
    return None
