"""Protocol of agent and shim: a request and its reply, JSON each, by way of a unix socket in the pod's folder.

A datagram brings two descriptors: a file in memory that holds the request, and a socket for the reply, one line, which
is closed after it. So a shim accepts no connections and waits for no client: each request is whole.

The version goes with every request. A shim outlives the agents it was started by, so a newer agent goes on speaking
VERSION 1 to those it finds; additions are optional, a change of meaning is a new version.

    start  run, process → run               an id that was started before is not started again
    stop   id, grace_s → ok, run            SIGTERM now, SIGKILL after the grace time, by the shim's own clock
    exec   id, argv, timeout_s → exit_code, output, timed_out        in the place of that run; when it has ended
    exit   → ok                             the shim ends; refused while anything runs

A refusal is {"ok": false, "kind": …, "error": …}.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, TypedDict

from eventbus.agent.shim.state import SOCKET

VERSION = 1
#: A request with a large environment; the kernel takes 2 MiB of arguments and environment.
MOST_REQUEST_BYTES = 8 * 1024 * 1024
#: The kubelet's limit for the output of a probe.
MOST_OUTPUT_BYTES = 10 * 1024
#: Of a problem, which may quote the request. A reply that is larger than a socket's buffer is cut.
MOST_PROBLEM_CHARS = 4096

#: Kinds of refusals.
NOT_FOUND, BUSY, BAD_REQUEST, NOT_RUNNING = "CommandNotFound", "Busy", "BadRequest", "NotRunning"

_TWO_DESCRIPTORS = socket.CMSG_LEN(2 * 4)
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Process(TypedDict):
    """A process to be started. *path* is executed with the arguments *argv*; *uid* -1: as the shim itself."""

    path: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    groups: list[int]
    limits: dict[str, list[int]]  #: name of `resource`, as RLIMIT_AS → soft and hard
    nice: int  #: always 0, and the next one None: shims of builds that set both refuse a process without them
    oom_score_adj: None
    cgroup: str  #: folder of the cgroup it begins in; "": the shim's


def ask(folder: str, request: dict[str, Any], timeout_s: float) -> socket.socket:
    """Send a request to the shim of *folder*. Returns: the socket of its reply. Raises: OSError: no shim listens."""
    with _near(folder) as place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(place.name)
        reply = ask_by(connection, request)
        reply.settimeout(timeout_s)
        return reply


def ask_by(connection: socket.socket, request: dict[str, Any]) -> socket.socket:
    """Send a request over *connection*. Returns: the socket of its reply. Raises: OSError."""
    reply, its = socket.socketpair()
    try:
        with its, open(os.memfd_create("request"), "wb") as file:
            file.write(encode(request))
            file.flush()
            socket.send_fds(connection, [b"?"], [file.fileno(), its.fileno()])
    except BaseException:
        reply.close()
        raise
    return reply


def make_listener() -> socket.socket:
    """Return a socket that hears requests once `listen` is called. Raises: OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def listen(listener: socket.socket, folder: str) -> None:
    """Have it listen in *folder*, and replace any earlier listener. Raises: OSError."""
    with _near(folder) as place:
        if os.path.lexists(place.name):
            os.unlink(place.name)
        os.fchmod(listener.fileno(), 0o600)  # the folder lets other users' pods pass
        listener.bind(place.name)


def hear(listener: socket.socket) -> tuple[int, int] | None:
    """Return the descriptors of a request and of the socket for its reply; None: there is none.

    Two must be free: a descriptor without a place is lost. A request with fewer is not answered.
    """
    try:
        ancillary = listener.recvmsg(1, _TWO_DESCRIPTORS)[1]  # `recv_fds` would add to each shim's memory
    except BlockingIOError:
        return None
    data = ancillary[0][2] if ancillary else b""
    brought = memoryview(data).cast("i").tolist()
    if len(brought) != 2:
        for descriptor in brought:
            os.close(descriptor)
        return None
    request, reply_to = brought
    return request, reply_to


def read(request: int) -> bytes:
    """Return the bytes of a request. Raises: ValueError: there are too many. OSError."""
    size = os.fstat(request).st_size
    if size > MOST_REQUEST_BYTES:
        raise ValueError(f"a request of {size} bytes: {MOST_REQUEST_BYTES} are the most")
    return os.pread(request, size, 0)


def encode(message: dict[str, Any]) -> bytes:
    """Return it as one line of JSON."""
    return _encode(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Raises: ValueError."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message


class _near:
    """The socket's name by way of an open folder: a path to a unix socket has room for 107 bytes only."""

    def __init__(self, folder: str) -> None:
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self.name = f"/proc/self/fd/{self._folder}/{SOCKET}"

    def __enter__(self) -> _near:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._folder)
