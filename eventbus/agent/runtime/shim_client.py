"""The agent's side of the protocol with shims, and with the zygote that they are forked from."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import eventbus
from eventbus.agent.runtime.contract import CommandNotFound, RuntimeProblem, ShimGone
from eventbus.agent.shim import protocol
from eventbus.agent.shim.state import State

#: A shim answers within milliseconds; a machine that swaps takes longer.
ANSWER_S: Final = 30.0
#: Shortages of the agent, not of a shim: descriptors, memory.
_OURS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
#: A zygote ends at once when its agent hangs up; after this it is killed, seconds.
_ENDS_S: Final = 2.0
#: Without site: a zygote imports the standard library and this package only.
_ZYGOTE: Final = "import sys; sys.path.append(sys.argv[1]); from eventbus.agent.shim.zygote import main; main()"


def call(folder: Path, request: dict[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
    """Ask the shim of a pod's *folder*, and wait for its reply.

    Raises: ShimGone: it does not answer.  RuntimeProblem: it refuses, or we are too short of something to ask;
    CommandNotFound.
    """
    line = protocol.encode({"v": protocol.VERSION} | request)
    if len(line) > protocol.MOST_REQUEST_BYTES:
        raise RuntimeProblem(f"a request of {len(line)} bytes: {protocol.MOST_REQUEST_BYTES} are the most")
    try:
        with protocol.connect(str(folder), timeout_s) as connection:
            connection.sendall(line)
            reply = protocol.decode(protocol.read_line(connection, protocol.MOST_REPLY_BYTES))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _OURS:
            raise RuntimeProblem(f"the shim of {folder.name} cannot be asked: {error}") from None
        raise ShimGone(f"the shim of {folder.name} does not answer: {error}") from None
    if not reply.get("ok"):
        refusal = CommandNotFound if reply.get("kind") == protocol.NOT_FOUND else RuntimeProblem
        raise refusal(str(reply.get("error")))
    return reply


class Zygote:
    """Forks shims. It is started when the first is asked for, and again when it is gone. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def fork(self, folder: Path, state: State) -> int:
        """Start the shim of a pod's *folder*. Returns: its pid. Raises: RuntimeProblem; also once `close` is called."""
        closes = self._closes
        with self._lock:
            for attempt in range(2):
                if closes != self._closes:
                    raise RuntimeProblem("no shim is forked: the agent ends")
                connection = self._connected()
                try:
                    connection.sendall(protocol.encode({"folder": str(folder), "state": state}))
                    reply = protocol.decode(protocol.read_line(connection, protocol.MOST_REPLY_BYTES))
                    break
                except (OSError, ValueError) as error:
                    self._close()
                    if attempt:
                        raise RuntimeProblem(f"no shim can be forked: {error}") from None
        if not reply.get("ok"):
            raise RuntimeProblem(f"the shim of {folder.name} did not start: {reply.get('error')}")
        return int(reply["pid"])

    @property
    def pid(self) -> int:
        """The zygote's; 0: there is none."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """Let it end; its shims live on. Pending requests are refused, because a zygote may stand still."""
        self.hang_up()
        with self._lock:
            self._close()

    def hang_up(self) -> None:
        """Refuse pending requests for a shim; a shim without a pod ends. Takes no lock."""
        self._closes += 1
        if connection := self._connection:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> socket.socket:
        if self._connection is None:
            ours, its = socket.socketpair()
            root = str(Path(eventbus.__file__).parents[1])
            with its:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _ZYGOTE, root],
                    stdin=its.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            ours.settimeout(ANSWER_S)
            self._connection = ours
        return self._connection

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._process:
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:  # it stands still; later it could fork a shim that is not wanted any more
                self._process.kill()
                self._process.wait()
            self._process = None
