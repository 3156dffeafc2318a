"""Asks the kernel which process is the embedded server, and which is at the other end of a socket.

A file can name any process, and the number of an ended process is reused.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

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


def _is_file(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), wanted)
    except OSError:  # closed meanwhile
        return False
