"""Finds the user id of the process at the other end of a connection.

Linux reports it for a unix socket (SO_PEERCRED) and, by sock_diag, for a TCP connection within this machine. Other
connections need a token.

The kernel reports uid 0 for a TCP socket that no process has open any more. So the uid of a peer counts only while
the peer's socket is ESTABLISHED: closing it changes the state first.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_TCP: Final = 6
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8
_ESTABLISHED: Final = 1
#: Offsets in inet_diag_msg, after the header: family, state, two more bytes, socket id, three numbers, uid, inode.
_STATE_AT: Final = 16 + 1
_UID_AT: Final = 16 + 4 + 48 + 12


def is_unix(transport: asyncio.BaseTransport | None) -> bool:
    """Return True if *transport* is a unix socket: its address is a path, not a tuple."""
    return transport is not None and isinstance(transport.get_extra_info("sockname"), str | bytes)


def unix_peer_uid(connection: Any) -> int | None:
    """Return the uid at the other end of a unix socket; None if the system does not report it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    with suppress(OSError):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", found)[1])
    return None


def tcp_peer_uid(peer: tuple[Any, ...], ours: tuple[Any, ...]) -> int | None:
    """Return the uid of the process with the socket *peer*, within this machine; None if it is unknown.

    Also None if the other end has begun to close.

    Args: peer, ours: the two ends, as getpeername and getsockname give them.
    """
    for ask in (uid_by_sock_diag, uid_by_proc):
        with suppress(OSError, ValueError, struct.error):
            uid = ask(peer, ours)
            # The kernel reads the state before the uid, and the socket may close in between. A second, equal answer
            # shows that the socket was still ESTABLISHED.
            return uid if ask(peer, ours) == uid else None
    return None


def uid_by_sock_diag(peer: tuple[Any, ...], ours: tuple[Any, ...]) -> int:
    """Look this one socket up by netlink. Raises: OSError, ValueError: it is not ESTABLISHED."""
    family = _family(peer)
    addresses = b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (peer, ours))
    identity = struct.pack("!HH", peer[1], ours[1]) + addresses + struct.pack("=I", 0) + _NO_COOKIE
    asked = struct.pack("=BBBBI", family, _TCP, 0, 0, _ALL_STATES) + identity
    header = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:  # type: ignore[attr-defined,unused-ignore]
        netlink.settimeout(1)
        netlink.send(header + asked)
        answer = netlink.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        raise OSError("no such socket")
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    if answer[_STATE_AT] != _ESTABLISHED or not inode:
        raise ValueError("the socket is closing")
    return int(uid)


def uid_by_proc(peer: tuple[Any, ...], ours: tuple[Any, ...]) -> int:
    """Look it up in /proc, for containers without netlink. Raises: OSError, ValueError."""
    family = _family(peer)
    table = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp")
    wanted = [_as_in_proc(family, peer), _as_in_proc(family, ours)]
    for line in table.read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            if int(fields[3], 16) != _ESTABLISHED or fields[9] == "0":
                raise ValueError("the socket is closing")
            return int(fields[7])
    raise ValueError("no such socket")


def _family(end: tuple[Any, ...]) -> int:
    return socket.AF_INET6 if ":" in end[0] else socket.AF_INET


def _as_in_proc(family: int, end: tuple[Any, ...]) -> str:
    packed = socket.inet_pton(family, end[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
