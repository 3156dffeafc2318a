"""Claims on folders of a spool: a folder belongs to the one process that holds the lock of the file `lock` in it.

The lock is a POSIX lock: it ends with its process, and when the process closes *any* descriptor of that file. So this
process never opens the lock of a folder that it holds: these folders are known by name, and skipped.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from eventbus.broker.embedded.private_folder import ANYTHING, check_private
from eventbus.errors import ConfigError

LOCK, BATCHES, UNREADABLE = "lock", "batches", "unreadable"
#: Prefix of a folder whose lock is not taken yet; other processes skip it.
_NEW = "new-"
#: seconds after which such a folder counts as left by a process that died
NEW_S = 60.0

#: Folders that this process holds, with its pid: a child after fork holds none of them.
_held: set[tuple[int, str]] = set()
_held_lock = threading.RLock()


def _after_fork() -> None:
    global _held_lock
    _held_lock = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


class Claim:
    """One folder that this process holds until `release` or `remove`, or until it ends."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock: int | None = lock
        self._pid = os.getpid()

    @classmethod
    def make(cls, root: Path) -> Claim:
        """Make a new folder below *root*, which is made if missing, and hold it.

        Raises: ConfigError: *root* is not this user's alone.  OSError.
        """
        _open_root(root)
        name = f"{time.time_ns():x}-{os.getpid()}-{os.urandom(3).hex()}"
        new = root / f"{_NEW}{name}"
        new.mkdir(mode=0o700)
        lock = _open_lock(new, os.O_CREAT | os.O_EXCL)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with _held_lock:
            _held.add((os.getpid(), str(root / name)))
        new.rename(root / name)
        return cls(root / name, lock)

    @classmethod
    def take(cls, folder: Path) -> Claim | None:
        """Take over *folder* of a process that has ended. None: a process holds it, perhaps this one, or it is gone.

        Raises: ConfigError: it is not this user's alone.  OSError.
        """
        with _held_lock:
            if holds(folder):
                return None
            try:
                check_folder(folder)
                lock = _open_lock(folder, 0)
            except FileNotFoundError:
                return None
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(folder / LOCK).st_ino != os.fstat(lock).st_ino:
                    raise OSError  # its former holder has sent and removed it
            except OSError:
                os.close(lock)
                return None
            _held.add((os.getpid(), str(folder)))
            return cls(folder, lock)

    def release(self) -> None:
        """Release the folder for the next process. Idempotent."""
        if self._lock is None:
            return
        with _held_lock:
            lock, self._lock = self._lock, None
            os.close(lock)
            _held.discard((self._pid, str(self.folder)))

    def remove(self) -> None:
        """Remove our files and the folder. An unreadable file stays, and so does the folder."""
        for name in (BATCHES, LOCK):
            with suppress(FileNotFoundError):
                os.unlink(self.folder / name)
        with suppress(OSError):
            self.folder.rmdir()
        self.release()


def holds(folder: Path) -> bool:
    """Return True if this process holds *folder*."""
    return (os.getpid(), str(folder)) in _held


def _open_root(root: Path) -> None:
    """Make *root* if it is missing, and check that it is this user's alone.

    Raises: ConfigError: it is not; the message has the cure.  OSError: it cannot be made or looked at.
    """
    if not root.is_absolute():
        raise ConfigError(f"EVENTBUS_SPOOL={str(root)!r} must be an absolute path", cure="name the folder from / on")
    with suppress(FileExistsError):
        root.mkdir(mode=0o700, parents=True)
    check_private(root, forbidden=ANYTHING, user="the spool", variable="EVENTBUS_SPOOL")


def folders(root: Path) -> Iterator[Path]:
    """List every folder of a process below *root*, oldest first.

    Raises: ConfigError: *root* is not this user's alone.  OSError: there is none, or it cannot be read.
    """
    check_private(root, forbidden=ANYTHING, user="the spool", variable="EVENTBUS_SPOOL")
    for name in sorted(os.listdir(root)):
        folder = root / name
        if name.startswith(_NEW):
            _remove_stillborn(folder)
        elif not name.startswith("."):
            yield folder


def check_folder(folder: Path) -> None:
    """Check that *folder* is this user's alone.

    Raises: ConfigError: it is not.  OSError: there is none.
    """
    check_private(folder, (LOCK, BATCHES), forbidden=ANYTHING, user="the spool", variable="EVENTBUS_SPOOL")


def is_held(folder: Path) -> bool:
    """Return True if a living process holds *folder*."""
    if not (folder / LOCK).exists():
        return False
    claim = None if holds(folder) else Claim.take(folder)
    if claim is None:
        return True
    claim.release()
    return False


def _open_lock(folder: Path, flags: int) -> int:
    return os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _remove_stillborn(folder: Path) -> None:
    """Remove a folder whose process died before it had the lock: nothing was written into it."""
    with suppress(OSError):
        if time.time() - folder.lstat().st_mtime > NEW_S:
            with suppress(FileNotFoundError):
                os.unlink(folder / LOCK)
            folder.rmdir()
