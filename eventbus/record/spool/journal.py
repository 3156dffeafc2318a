"""The folders of a spool: the process that holds each, and the one file in it, appended to or replaced as a whole.

`list_spool` lists the folders for people.

A folder belongs to the process that holds the lock of the file `lock` in it. This is a POSIX lock: it ends with its
process, and when the process closes *any* descriptor of that file. So this process never opens the lock of a folder
that it holds: these folders are known by name, and skipped.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from eventbus.errors import ConfigError, PoisonBatch
from eventbus.model.encoding.wire import unpack_wire
from eventbus.record.spool.records import Contents, read
from eventbus.util.failpoints import failpoint
from eventbus.util.private_folder import ANYTHING, check_private

LOCK, BATCHES, UNREADABLE = "lock", "batches", "unreadable"
#: Prefix of a folder with a lock that is not taken yet; other processes skip it.
_NEW = "new-"
#: seconds after which such a folder counts as left by a process that died
NEW_S = 60.0
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_NEXT = "batches.next"

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
    """Remove a folder if its process died before it had the lock: nothing was written into it."""
    with suppress(OSError):
        if time.time() - folder.lstat().st_mtime > NEW_S:
            with suppress(FileNotFoundError):
                os.unlink(folder / LOCK)
            folder.rmdir()


class Journal:
    """The file of a folder that this process holds. One thread at a time, except for `sync`.

    A write that fails, because the disk is full or *limit_bytes* is reached, leaves the file unchanged.
    """

    def __init__(self, claim: Claim, *, limit_bytes: int, file: int = -1, size: int = 0) -> None:
        self._claim = claim
        self._limit_bytes = limit_bytes
        self._file = file
        self.size = size
        self.problem = ""  #: why the last write failed; empty: it succeeded
        self.unsynced = False  #: some writes may not be on the disk yet

    @classmethod
    def adopt(cls, claim: Claim, *, limit_bytes: int) -> tuple[Journal, Contents]:
        """Continue the file of another process. Unreadable parts are kept in a second file, for people.

        Raises: OSError: it cannot be read.
        """
        contents = read_file(claim.folder)
        if contents.problem and not contents.torn and contents.header is not None:
            with suppress(FileExistsError):
                os.link(claim.folder / BATCHES, claim.folder / UNREADABLE, follow_symlinks=False)
        file = -1 if contents.problem else os.open(claim.folder / BATCHES, _FLAGS)
        return cls(claim, limit_bytes=limit_bytes, file=file, size=contents.end), contents

    @property
    def folder(self) -> Path:
        """Return its folder."""
        return self._claim.folder

    @property
    def room(self) -> int:
        """Return how many bytes it may still grow."""
        return max(0, self._limit_bytes - self.size)

    def append(self, data: bytes) -> bool:
        """Append *data*. False: there is no room, see *problem*."""
        if self.size + len(data) > self._limit_bytes:
            self.problem = f"it has {self.size} bytes, and may have {self._limit_bytes} (EVENTBUS_SPOOL_BYTES)"
            return False
        failpoint("spool")
        try:
            _write(self._file, data, self.size)
        except OSError as error:
            self.problem = str(error)
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            return False
        failpoint("spooled")
        self.size += len(data)
        self.problem, self.unsynced = "", True
        return True

    def replace(self, data: bytes) -> bool:
        """Replace the whole file by *data*, atomically. False: it failed, and the file is unchanged."""
        if len(data) > self._limit_bytes:
            self.problem = (
                f"the waiting events have {len(data)} bytes, and may have {self._limit_bytes} (EVENTBUS_SPOOL_BYTES)"
            )
            return False
        following = self.folder / _NEXT
        try:
            file = os.open(following, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            self.problem = str(error)
            return False
        try:
            _write(file, data, 0)
            if self.size:  # the old file may be on the disk already: sync the new one before the rename
                os.fdatasync(file)
            failpoint("respool")
            os.rename(following, self.folder / BATCHES)
        except OSError as error:
            os.close(file)
            with suppress(OSError):
                os.unlink(following)
            self.problem = str(error)
            return False
        self._close_file()
        self._file, self.size = file, len(data)
        self.problem, self.unsynced = "", True
        return True

    def cut(self, size: int) -> None:
        """Cut the file to its first *size* bytes."""
        os.ftruncate(self._file, size)
        self.size, self.unsynced = size, True

    def sync(self) -> None:
        """Sync the writes and the names of new files to the disk; blocks until it is done.

        Any thread: it syncs the current file.
        """
        if not self.unsynced:
            return
        self.unsynced = False
        with suppress(OSError):
            file = os.dup(self._file)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            for folder in (self.folder, self.folder.parent):
                _sync_folder(folder)

    def release(self) -> None:
        """Release it for the next process."""
        self._close_file()
        self._claim.release()

    def remove(self) -> None:
        """Remove the file; no event waits any more."""
        self._close_file()
        with suppress(OSError):
            os.unlink(self.folder / _NEXT)
        self._claim.remove()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_file(folder: Path) -> Contents:
    """Read *folder*'s file; a folder without one is empty.

    Raises: OSError: it cannot be read.
    """
    try:
        file = os.open(folder / BATCHES, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return read(b"")
    with open(file, "rb") as opened:
        return read(opened.read())


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class State(StrEnum):
    """The state of a folder."""

    HELD = "held"  #: its process lives, or another one is sending its events
    WAITING = "waiting"  #: its process is gone: the next process sends its events
    UNREADABLE = "unreadable"  #: it cannot be read, or only in part: look at it, and remove it


class SpoolFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The state and content of one folder."""

    name: str
    state: State
    events: int = 0
    bytes: int = 0
    oldest_ms: int = 0  #: when the oldest event was recorded; 0: unknown
    pid: int = 0
    host: str = ""
    bus: str = ""  #: where its process looked for the bus
    prefix: str = ""
    problem: str = ""


def list_spool(root: Path) -> list[SpoolFolder]:
    """List every folder below *root*, oldest first; none if *root* is missing.

    Raises: ConfigError: *root* is not this user's alone.  OSError: it cannot be read.
    """
    if not os.path.lexists(root):
        return []
    return [found for folder in folders(root) if (found := _look_at(folder)) is not None]


def _look_at(folder: Path) -> SpoolFolder | None:
    """Return None if another process has sent its events meanwhile, and has removed it."""
    try:
        check_folder(folder)
        held = is_held(folder)
        contents = read_file(folder)
    except (ConfigError, OSError) as error:
        if not os.path.lexists(folder):
            return None
        return SpoolFolder(name=folder.name, state=State.UNREADABLE, problem=str(error))
    size, problem = 0, contents.problem
    with suppress(OSError):
        size = (folder / BATCHES).stat().st_size
    bad = bool(problem) and not contents.torn
    if (folder / UNREADABLE).exists():
        bad, problem = True, f"the file {UNREADABLE!r} has parts that cannot be read"
    header = contents.header
    return SpoolFolder(
        name=folder.name,
        state=State.HELD if held else State.UNREADABLE if bad else State.WAITING,
        events=contents.events,
        bytes=size,
        oldest_ms=_oldest_ms(contents),
        pid=header.pid if header else 0,
        host=header.host if header else "",
        bus=header.address if header else "",
        prefix=header.prefix if header else "",
        problem=problem,
    )


def _oldest_ms(contents: Contents) -> int:
    firsts = [line.in_order()[0].packed.events()[0] for line in contents.lines.values() if line.batches]
    return min(_times((*firsts, *contents.unplaced[:1])), default=0)


def _times(events: Iterable[bytes]) -> Iterable[int]:
    for event in events:
        with suppress(PoisonBatch, msgspec.MsgspecError):
            if us := unpack_wire(event).last_us:
                yield us // 1000
