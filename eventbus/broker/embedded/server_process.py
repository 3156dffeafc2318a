"""Asks the kernel which process is the embedded server, which listens at a socket, and which other one uses the server.

A file can name any process, and the number of an ended process is reused.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from eventbus.errors import ConfigError

#: sys/un.h of macOS: level, and the options for the credentials and the process at the other end
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_PROC: Final = Path("/proc")


def peer_of(connection: socket.socket) -> tuple[int | None, int | None]:
    """Return the process that listens where *connection*, a unix socket, is connected to, and its user.

    None: unknown, or it is in another container.
    """
    if sys.platform == "darwin":
        _version, uid = struct.unpack("=II", connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[:8])
        return struct.unpack("=i", connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))[0] or None, uid
    if not hasattr(socket, "SO_PEERCRED"):
        return None, None
    pid, uid, _gid = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid or None, uid


def has_open(pid: int, file: Path) -> bool | None:
    """Return True if process *pid* has *file* open. None: unknown, without /proc or for another user's process."""
    if not _PROC.is_dir():
        return None
    try:
        wanted = file.stat()
        descriptors = list(os.scandir(_PROC / str(pid) / "fd"))
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return any(_is_file(Path(descriptor.path), wanted) for descriptor in descriptors)


def processes_with(file: Path) -> list[int]:
    """List every other process of this user that has *file* open; also empty if that is unknown."""
    pids = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal()] if _PROC.is_dir() else []
    return [pid for pid in sorted(pids) if pid != os.getpid() and has_open(pid, file)]


def send_signal(pid: int, number: signal.Signals, *, if_true: Callable[[], bool]) -> bool:
    """Send *number* to process *pid* if *if_true* confirms that it is the right one. False: not, or *pid* is gone.

    With pidfds (Linux 5.3) the number cannot be reused between the check and the signal.
    """
    if pid <= 1:  # a group of processes, all there are, or the first of them
        return False
    try:
        handle = os.pidfd_open(pid) if sys.platform == "linux" else None
    except ProcessLookupError:
        return False
    except OSError:  # an older kernel, or a sandbox without them
        handle = None
    try:
        if not if_true():
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


#: Each `eventbus up` that uses the server of a state directory has a shared lock of this file there. No other code may
#: open the file, see `take_reference`.
_REFERENCE: Final = "users.lock"


def take_reference(directory: Path) -> int:
    """Let the server of *directory* run for this process, until it ends or closes the descriptor that is returned.

    It is a POSIX lock: a child does not inherit it, and closing any other descriptor of the file would end it as well.

    Raises: ConfigError: the file cannot be written.
    """
    path = directory / _REFERENCE
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): mend that, or free space") from error
    return file


def other_user_of(directory: Path) -> int | None:
    """Return one of the other processes with a reference; None: there is none, 0: it is in another container."""
    try:
        file = os.open(directory / _REFERENCE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if sys.platform == "darwin":  # sys/fcntl.h: start, length, process, type, whence
            form, wanted = "=qqihh", (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack(form, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(form, *wanted)))
        else:
            form, wanted = "hhqqi4x", (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(form, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(form, *wanted)))
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _is_file(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), wanted)
    except OSError:  # closed meanwhile
        return False
