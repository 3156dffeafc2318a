"""The loop of a shim: requests of the agent, ends of processes, their output, and deadlines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
import traceback
from typing import Any

from eventbus.agent.shim import protocol
from eventbus.agent.shim.execs import Execs
from eventbus.agent.shim.runs import Runs, kill_all
from eventbus.agent.shim.state import State, new_run
from eventbus.util.failpoints import failpoint

#: Milliseconds between two checks if the folder exists, while no process runs.
_ALONE_MS = 30_000
#: The longest wait for a deadline: `poll` takes no number above 2^31 ms, 24 days.
_MOST_WAIT_S = 3600.0
#: How often the end of a process is tried to be recorded, and seconds between: memory may be short for a moment.
_TRIES, _TRY_AGAIN_S = 3, 0.5
#: Connections at a time.
_MOST_CLIENTS = 64
#: A pause in accepting connections, if there are too many of them or no free descriptors, seconds.
_ACCEPT_AGAIN_S = 1.0


class EndNotRecorded(Exception):
    """The end of a process cannot be recorded, so the shim has to die with it."""


class Shim:
    """Owns the processes of the pod in *folder*: its children, and their descendants that lose their parents.

    It ends on request if no process runs. On SIGTERM it ends all processes first, each in its grace time.
    """

    def __init__(self, folder: str, state: State) -> None:
        """Take over the pod of *state* and listen. Raises: OSError."""
        self._folder = folder
        self._poll = select.poll()
        self._runs = Runs(folder, state, self._poll)
        self._execs = Execs(self._poll)
        self._clients: dict[int, socket.socket] = {}  #: by descriptor
        self._received: dict[int, bytearray] = {}  #: the beginning of a request, by client
        self._asked_to_end = False
        self._exits = False
        self._accept_at = 0.0  #: when to accept connections again, on the monotonic clock; 0.0: it accepts them
        self._wake, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the loop
        signal.signal(signal.SIGTERM, self._end)
        self._runs.save()
        self._listener = protocol.listen(folder)
        for descriptor in (self._wake, self._listener.fileno()):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Work until the end. Raises: EndNotRecorded."""
        while not self._exits and not (self._asked_to_end and not self._runs.running):
            self._turn()
            if not self._runs.running and not os.access(self._folder, os.F_OK):
                break  # no request can come any more
        kill_all()
        self._runs.save_the_rest()

    def _end(self, *_signal: object) -> None:
        self._asked_to_end = True

    def _turn(self) -> None:
        for descriptor, _ in self._poll.poll(self._next_due_ms()):
            try:
                self._handle(descriptor)
            except EndNotRecorded:
                raise
            except Exception:  # the processes of a pod are worth more than one failed step
                _log_traceback()
            if self._exits:
                return  # nothing is started after that reply
        if self._asked_to_end:
            self._runs.stop_all()
        self._runs.do_due()
        self._execs.kill_due()

    def _next_due_ms(self) -> float | None:
        if 0.0 < self._accept_at <= time.monotonic():
            self._accept_at = 0.0
            self._poll.register(self._listener.fileno(), select.POLLIN)
        due = [at for at in (self._runs.due_at(), self._execs.due_at(), self._accept_at) if at]
        if due:
            return max(0.0, min(min(due) - time.monotonic(), _MOST_WAIT_S)) * 1000 + 1
        return None if self._runs.running else _ALONE_MS

    def _handle(self, descriptor: int) -> None:
        if descriptor == self._wake:
            os.read(descriptor, 4096)
            self._reap()
        elif descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._clients:
            self._receive(descriptor)
        else:
            for output in (*self._runs.outputs.values(), *self._execs.outputs()):
                if output.descriptor == descriptor:
                    output.read()

    def _reap(self) -> None:
        reaped = False
        while child := _ended_child():
            pid, code = child
            self._record_end(pid, code)  # on disk now, if there is room, and only now reaped
            os.waitpid(pid, 0)
            reaped = True
        if reaped and self._runs.leftovers:
            self._runs.sweep()
        self._runs.close_outputs()

    def _record_end(self, pid: int, code: int) -> None:
        if ended := self._execs.ended(pid, code):
            self._answer(ended.client, ended.reply)
            return
        for _ in range(_TRIES):
            try:
                self._runs.ended(pid, code)
                return
            except Exception:
                _log_traceback()
                time.sleep(_TRY_AGAIN_S)
        # Reaped, its pid could belong to another process one day, which would be killed in its place.
        raise EndNotRecorded(f"the end of process {pid} cannot be recorded")

    def _accept(self) -> None:
        client = None
        if len(self._clients) < _MOST_CLIENTS:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left
                pass
        if client is None:  # the connection waits, so the listener stays ready
            self._poll.unregister(self._listener.fileno())
            self._accept_at = time.monotonic() + _ACCEPT_AGAIN_S
            return
        client.setblocking(False)
        self._clients[client.fileno()], self._received[client.fileno()] = client, bytearray()
        self._poll.register(client.fileno(), select.POLLIN)

    def _receive(self, descriptor: int) -> None:
        try:
            data = self._clients[descriptor].recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or descriptor not in self._received:  # the client hung up, or sends more than a request
            self._hang_up(descriptor)
            return
        line = self._received[descriptor]
        line += data
        if len(line) > protocol.MOST_REQUEST_BYTES:
            self._answer(descriptor, _refusal(protocol.BAD_REQUEST, "the request is too long"))
        elif line.endswith(b"\n"):
            del self._received[descriptor]
            if reply := self._reply(descriptor, bytes(line)):
                self._answer(descriptor, reply)

    def _reply(self, client: int, line: bytes) -> dict[str, Any] | None:
        """Do the request. Returns: the reply; None: it comes later."""
        try:
            request = protocol.decode(line)
            if request["v"] != protocol.VERSION:
                return _refusal(protocol.BAD_REQUEST, f"this shim speaks version {protocol.VERSION}")
            return self._do(client, request)
        except OSError as error:
            return _refusal("Failed", str(error))
        except Exception as error:  # the client must get an answer
            return _refusal(protocol.BAD_REQUEST, f"bad request: {error!r}")

    def _do(self, client: int, request: dict[str, Any]) -> dict[str, Any] | None:
        match request["op"]:
            case "start":
                return {"ok": True, "run": self._runs.start(new_run(request["run"]), request["process"])}
            case "stop":
                if run_of := self._runs.find(request["id"]):
                    self._runs.stop(run_of, float(request["grace_s"]))
                    return {"ok": True, "run": run_of}
                return {"ok": True}
            case "exec":
                try:
                    process = self._runs.inside(request["id"], request["argv"])
                except FileNotFoundError as error:
                    return _refusal(protocol.NOT_FOUND, str(error))
                if process is None:
                    return _refusal(protocol.NOT_RUNNING, f"{request['id']} does not run")
                return self._execs.start(client, process, float(request["timeout_s"]))
            case "exit":
                if self._runs.running:
                    return _refusal(protocol.BUSY, "something still runs")
                failpoint("shim:exit")
                self._exits = True
                return {"ok": True}
        return _refusal(protocol.BAD_REQUEST, f"no such request: {request['op']}")

    def _answer(self, descriptor: int, reply: dict[str, Any]) -> None:
        if client := self._clients.get(descriptor):
            with contextlib.suppress(OSError):  # the client hung up
                client.send(protocol.encode(reply))
            self._hang_up(descriptor)

    def _hang_up(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._received.pop(descriptor, None)
        self._clients.pop(descriptor).close()
        self._execs.forget_client(descriptor)


def _ended_child() -> tuple[int, int] | None:
    """Return a child that has ended and how, without reaping it: an exit code or, below zero, a signal."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_pid, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _refusal(kind: str, error: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "error": error[: protocol.MOST_PROBLEM_CHARS]}


def _log_traceback() -> None:
    with contextlib.suppress(OSError):  # the log is on the same full disk
        traceback.print_exc()
