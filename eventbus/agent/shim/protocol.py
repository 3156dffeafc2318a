"""Protocol of agent and shim: a request and its reply, a line of JSON each, over a unix socket in the pod's folder.

The version goes with every request. A shim outlives the agents it was started by, so a newer agent goes on speaking
VERSION 1 to those it finds; what is added is optional, what changes meaning is a new version.

    start  run, process → run               an id that was started before is not started again
    stop   id, grace_s → ok, run            SIGTERM now, SIGKILL after the grace time, by the shim's own clock
    exec   id, argv, timeout_s → exit_code, output, timed_out        in the place of that run; when it has ended;
                                                                     the connection ends with it
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
#: The kubelet's limit for what a probe says.
MOST_OUTPUT_BYTES = 10 * 1024

#: Kinds of refusals.
NOT_FOUND, BUSY, BAD_REQUEST, NOT_RUNNING = "CommandNotFound", "Busy", "BadRequest", "NotRunning"


_LISTENER = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Process(TypedDict):
    """A process to be started. *path* is what is executed, *argv* what it is told; *uid* -1: as the shim itself."""

    path: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    groups: list[int]
    limits: dict[str, list[int]]  #: name of `resource`, as RLIMIT_AS → soft and hard
    nice: int
    oom_score_adj: int | None
    cgroup: str  #: folder of the cgroup it begins in; "": the shim's


def connect(folder: str, timeout_s: float) -> socket.socket:
    """Connect to the shim of *folder*. Raises: OSError: nobody listens there."""
    with _near(folder) as place:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(place.name)
        except BaseException:
            connection.close()
            raise
        return connection


class Listener(socket.socket):
    """A unix socket that listens once `listen` is called. Raises: OSError."""

    # What `accept` asks for. As the properties that they are they would make an enum's member each time, and 150 KiB of
    # each shim's own.
    family = socket.AF_UNIX
    type = socket.SOCK_STREAM

    def __init__(self) -> None:
        super().__init__(socket.AF_UNIX, _LISTENER)


def listen(listener: Listener, folder: str) -> None:
    """Have it listen in *folder*, in the place of whoever did so before. Raises: OSError."""
    with _near(folder) as place:
        if os.path.lexists(place.name):
            os.unlink(place.name)
        listener.bind(place.name)
        os.chmod(place.name, 0o600)  # the folder lets other users' pods pass
        listener.listen(16)


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
