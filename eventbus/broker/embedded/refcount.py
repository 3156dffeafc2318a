"""Counts the `eventbus up` processes that use the embedded server: each has a lock of its own while it lives.

Each has a file `up.<random>.lock` with its process id. With one file for all, the last process to write its id may have
ended while another still lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from eventbus.broker.embedded.server_process import has_open, processes_with
from eventbus.errors import ConfigError

_PATTERN = "up.*.lock"


class Reference:
    """The reference of this process to the server of *directory*, from `take` to `release` or its end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _PATTERN.replace("*", secrets.token_hex(4))
        self._lock: int | None = None

    def take(self) -> None:
        """Take the lock of this process. Idempotent. Raises: ConfigError: it cannot be written."""
        if self._lock is not None:
            return
        try:
            _forget_dead(self._directory)
            self._lock = _make(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written ({error.strerror}): mend that, or free space") from error

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


class HeldReference(NamedTuple):
    """A held lock: the process id in it, and the processes that have it open."""

    path: Path
    named: str
    holders: tuple[str, ...]

    @property
    def is_stale(self) -> bool:
        """Return True if its process is gone, and a child of it still holds the lock."""
        return self.named not in self.holders


def holders(directory: Path) -> list[str]:
    """Return the ids of the living processes, unordered; if the system does not report them, the id in the lock."""
    return [pid for lock in held_references(directory) for pid in lock.holders or (lock.named,)]


def held_references(directory: Path) -> list[HeldReference]:
    """Return the held locks, unordered."""
    return [lock for path in directory.glob(_PATTERN) if (lock := _held_reference(path))]


def _make(path: Path) -> int:
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # another process took it for a stale lock, and removed it


def _held_reference(path: Path) -> HeldReference | None:
    file = _open(path)
    if file is None:
        return None
    try:
        if _is_free(file):
            return None
        named = os.pread(file, 20, 0).decode("ascii", "replace")
    finally:
        os.close(file)
    if named.isdecimal() and has_open(int(named), path) is not False:  # None: unknown
        return HeldReference(path, named, (named,))
    return HeldReference(path, named, tuple(map(str, processes_with(path))))


def _forget_dead(directory: Path) -> None:
    for path in directory.glob(_PATTERN):
        file = _open(path)
        if file is not None:
            if _is_free(file):
                path.unlink(missing_ok=True)
            os.close(file)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # released meanwhile
        return None


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two processes that check must not see each other
    except BlockingIOError:
        return False
    return True
