"""Protocol of agent and shim: a request and its reply, one line of JSON each, over a unix socket in the pod's folder.

A connection carries one request; the shim closes it after the reply. Both sides bound a line before they parse it.

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
#: Of a problem, which may quote the request.
MOST_PROBLEM_CHARS = 4096
#: A run, a problem or an output in JSON's escapes. It fits into a socket's buffer, so a reply never blocks.
MOST_REPLY_BYTES = 128 * 1024
#: Connections that wait until the shim accepts them.
_BACKLOG = 128

#: Kinds of refusals.
NOT_FOUND, BUSY, BAD_REQUEST, NOT_RUNNING = "CommandNotFound", "Busy", "BadRequest", "NotRunning"

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
    cgroup: str  #: folder of the cgroup it begins in; "": the shim's


def connect(folder: str, timeout_s: float) -> socket.socket:
    """Connect to the shim of *folder*. Raises: OSError: no shim listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _near(folder) as place:
            connection.connect(place.name)
    except BaseException:
        connection.close()
        raise
    return connection


def listen(folder: str) -> socket.socket:
    """Return a socket that listens in *folder* and replaces any earlier one. Raises: OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with _near(folder) as place:
        if os.path.lexists(place.name):
            os.unlink(place.name)
        os.fchmod(listener.fileno(), 0o600)  # the folder lets other users' pods pass
        listener.bind(place.name)
    listener.listen(_BACKLOG)
    return listener


def read_line(connection: socket.socket, most_bytes: int) -> bytes:
    """Return the next line. Raises: ValueError: it is longer.  OSError: the other end hung up, or is too slow."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = connection.recv(256 * 1024)
        if not data:
            raise ConnectionResetError("it hung up")
        line += data
        if len(line) > most_bytes:
            raise ValueError(f"a line of more than {most_bytes} bytes")
    return bytes(line)


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
