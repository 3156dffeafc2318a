"""The loop of a shim: requests of the agent, ends of processes, what they print, and times that are due."""

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
from eventbus.agent.shim.runs import Runs
from eventbus.agent.shim.state import State, new_run
from eventbus.failpoints import failpoint

#: A shim of which nothing runs looks so often whether its folder is still there, milliseconds.
_ALONE_MS = 30_000
#: The longest wait for what is due: `poll` takes no number above 2^31 ms, 24 days.
_MOST_WAIT_S = 3600.0
#: So long it hears nobody who calls, once it had no descriptor for one, seconds.
_DEAF_S = 1.0


class Shim:
    """Owns the processes of the pod in *folder*: they are its children, and so are those that lose their parents.

    It ends when it is asked to and nothing runs any more. SIGTERM has it end everything first, each in its grace time.
    """

    def __init__(self, folder: str, state: State) -> None:
        self._folder = folder
        self._runs = Runs(folder, state)
        self._execs = Execs()
        self._poll = select.poll()
        self._clients: dict[int, socket.socket] = {}
        self._heard: dict[int, bytes] = {}
        self._ending = False
        self._left = False
        self._deaf_until = 0.0  #: the listener is not looked at until then, on the monotonic clock; 0.0: it is
        self._wake, wakeup = os.pipe()
        for descriptor in (self._wake, wakeup):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self._runs.save()
        self._listener = protocol.listen(folder)
        for descriptor in (self._wake, self._listener.fileno()):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Work until the end."""
        while not self._left and not (self._ending and not self._runs.running):
            for descriptor, _ in self._poll.poll(self._next_due_ms()):
                try:
                    self._handle(descriptor)
                except Exception:  # the processes of a pod are worth more than one step that went wrong
                    with contextlib.suppress(OSError):  # the log of it is on the same full disk
                        traceback.print_exc()
            if self._ending:
                self._stop_all()
            if not self._runs.running and not os.path.isdir(self._folder):
                break  # nobody will ever ask any more
        self._runs.kill_all()
        self._runs.save_due()

    def _next_due_ms(self) -> float | None:
        parts = (self._runs.kill_due(), self._execs.kill_due(), self._runs.save_due(), self._hear_due())
        due = [one for one in parts if one is not None]
        if not due and not self._runs.running:
            return _ALONE_MS
        return min(*due, _MOST_WAIT_S) * 1000 + 1 if due else None

    def _end(self, *_signal: object) -> None:
        self._ending = True

    def _stop_all(self) -> None:
        for run in self._runs.running:
            if not run["kill_at"]:
                self._runs.stop(run, run["grace_s"])

    def _handle(self, descriptor: int) -> None:
        if descriptor == self._wake:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._reap()
        elif descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._clients:
            self._listen_to(descriptor)
        elif output := self._runs.outputs.get(descriptor):
            if not output.read():  # closed, though the process may run on: it would be ready for ever
                self._poll.unregister(descriptor)
        else:
            found = next((one for one in self._execs.running.values() if one.output.descriptor == descriptor), None)
            if found is None or not found.output.read():
                with contextlib.suppress(KeyError):  # it was closed in this very round
                    self._poll.unregister(descriptor)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left, and whoever called stays ready
            self._poll.unregister(self._listener.fileno())
            self._deaf_until = time.monotonic() + _DEAF_S
            return
        client.setblocking(False)
        self._clients[client.fileno()] = client
        self._poll.register(client.fileno(), select.POLLIN)

    def _hear_due(self) -> float | None:
        """Hear again who calls, if it is time. Returns: seconds until then."""
        if not self._deaf_until:
            return None
        if (left := self._deaf_until - time.monotonic()) > 0:
            return left
        self._deaf_until = 0.0
        self._poll.register(self._listener.fileno(), select.POLLIN)
        return None

    def _reap(self) -> None:
        while found := _ended_child():
            pid, code = found
            if self._runs.ended(pid, code):
                pass  # on disk now, if there is room, and only now reaped
            elif answer := self._execs.ended(pid, code):
                self._answer(*answer)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        before = set(self._runs.outputs)
        self._runs.sweep()
        for descriptor in before - set(self._runs.outputs):
            with contextlib.suppress(KeyError):
                self._poll.unregister(descriptor)

    def _listen_to(self, descriptor: int) -> None:
        try:
            data = self._clients[descriptor].recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        heard = self._heard.get(descriptor, b"") + data
        line, end, rest = heard.partition(b"\n")
        if not data or len(heard) > protocol.MOST_REQUEST_BYTES:
            self._hang_up(descriptor)
            return
        self._heard[descriptor] = rest if end else heard
        if end and (reply := self._reply_to(descriptor, line)) is not None:
            self._answer(descriptor, reply)

    def _reply_to(self, asker: int, line: bytes) -> dict[str, Any] | None:
        """Do what is asked. Returns: the reply; None: it comes later."""
        try:
            request = protocol.decode(line)
            if request["v"] != protocol.VERSION:
                return _refusal(protocol.BAD_REQUEST, f"this shim speaks version {protocol.VERSION}")
            return self._do(asker, request)
        except OSError as error:
            return _refusal("Failed", str(error))
        except Exception as error:  # whoever asked must not wait in vain
            return _refusal(protocol.BAD_REQUEST, f"bad request: {error!r}")

    def _do(self, asker: int, request: dict[str, Any]) -> dict[str, Any] | None:
        match request["op"]:
            case "start":
                run = self._runs.start(new_run(request["run"]), request["process"])
                self._watch_outputs()
                return {"ok": True, "run": run}
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
                reply = self._execs.start(asker, process, float(request["timeout_s"]))
                self._watch_outputs()
                return reply
            case "exit":
                if self._runs.running:
                    return _refusal(protocol.BUSY, "something still runs")
                failpoint("shim:exit")
                self._left = True
                return {"ok": True}
        return _refusal(protocol.BAD_REQUEST, f"no such request: {request['op']}")

    def _watch_outputs(self) -> None:
        for descriptor in (*self._runs.outputs, *(one.output.descriptor for one in self._execs.running.values())):
            self._poll.register(descriptor, select.POLLIN)

    def _answer(self, descriptor: int, reply: dict[str, Any]) -> None:
        client = self._clients.get(descriptor)
        if client is not None:
            with contextlib.suppress(OSError):
                client.setblocking(True)
                client.settimeout(1.0)
                client.sendall(protocol.encode(reply))
            client.setblocking(False)

    def _hang_up(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._heard.pop(descriptor, None)
        self._clients.pop(descriptor).close()
        self._execs.forget_asker(descriptor)


def _ended_child() -> tuple[int, int] | None:
    """Return a child that has ended and how, without reaping it: an exit code or, below zero, a signal."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    return found.si_pid, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _refusal(kind: str, error: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "error": error}
