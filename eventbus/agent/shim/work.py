"""The pieces of a shim's work, each done from the state of the pod, by a worker (`workers.py`)."""

from __future__ import annotations

import contextlib
import socket
import traceback
from collections.abc import Callable
from typing import Any

from eventbus.agent.shim import protocol
from eventbus.agent.shim.execs import answer_when_done
from eventbus.agent.shim.launch import Pipes
from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.runs import Runs
from eventbus.agent.shim.state import new_run
from eventbus.util.failpoints import failpoint

#: The state after a piece of work: all of it, for the next; the processes that run, each with its log; when
#: something is due, on the monotonic clock, 0.0: nothing; whether there is something to sweep.
Known = tuple[bytes, dict[int, str], float, bool]
#: The reply after which the shim ends.
_LEAVES = {"ok": True}


def begin(shim: int, agent: socket.socket, listener: socket.socket) -> tuple[bytes, str, Known | None]:
    """Take over the pod that *agent* names. Returns: the reply, the folder, the state; "", None: it cannot be."""
    try:
        request = protocol.decode(_read_line(agent))
        folder, state, found = request["folder"], request["state"], read_process(shim)
        state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"] = shim, found.start_ticks if found else 0
        runs = Runs(shim, folder, state)
        runs.save()
        protocol.listen(listener, folder)
        failpoint("shim:begun")
        return protocol.encode({"ok": True, "pid": shim}), folder, known(runs)
    except Exception as error:
        return protocol.encode({"ok": False, "error": f"{type(error).__name__}: {error}"}), "", None


def answer(packed: bytes, request: int, reply_to: int, pipes: Pipes | None) -> tuple[bytes, bool, Known]:
    """Answer *request*; a process that is made is started with *pipes*, and waits to be released.

    Returns: the reply, empty if another process gives it; whether the shim shall end; the state.
    """
    runs = Runs.unpack(packed)
    reply = _reply(runs, request, reply_to, pipes)
    return protocol.encode(reply) if reply else b"", reply is _LEAVES, known(runs)


def tell_of_failure(packed: bytes, pid: int, problem: str) -> tuple[bytes, Known]:
    """Write down that a process could not become its program. Returns: the reply to its starter; the state."""
    runs = Runs.unpack(packed)
    return protocol.encode({"ok": True, "run": runs.failed(pid, problem)}), known(runs)


def take(packed: bytes, step: Callable[..., object], *given: object) -> Known:
    """Take a step, a method of `Runs`. Errors are written to the log. Returns: the state."""
    runs = Runs.unpack(packed)
    try:
        step(runs, *given)
    except Exception:  # the processes of a pod are worth more than one step that went wrong
        with contextlib.suppress(OSError):  # the log of it is on the same full disk
            traceback.print_exc()
    return known(runs)


def known(runs: Runs) -> Known:
    """Return the state that the shim keeps."""
    return runs.pack(), {run["pid"]: run["log"] for run in runs.running}, runs.due_at(), runs.leftovers


def _read_line(agent: socket.socket) -> bytes:
    heard = b""
    while not heard.endswith(b"\n"):
        data = agent.recv(256 * 1024)
        if not data:
            raise ConnectionResetError("the agent hung up")
        heard += data
    return heard


def _reply(runs: Runs, request: int, reply_to: int, pipes: Pipes | None) -> dict[str, Any] | None:
    try:
        asked = protocol.decode(protocol.read(request))
        if asked["v"] != protocol.VERSION:
            return _refusal(protocol.BAD_REQUEST, f"this shim speaks version {protocol.VERSION}")
        return _do(runs, asked, reply_to, pipes)
    except OSError as error:
        return _refusal("Failed", str(error))
    except Exception as error:  # the caller must get an answer
        return _refusal(protocol.BAD_REQUEST, f"bad request: {error!r}")


def _do(runs: Runs, request: dict[str, Any], reply_to: int, pipes: Pipes | None) -> dict[str, Any] | None:
    match request["op"]:
        case "start":
            return {"ok": True, "run": runs.start(new_run(request["run"]), request["process"], pipes)}
        case "stop":
            if run_of := runs.find(request["id"]):
                runs.stop(run_of, float(request["grace_s"]))
                return {"ok": True, "run": run_of}
            return {"ok": True}
        case "exec":
            try:
                process = runs.inside(request["id"], request["argv"])
            except FileNotFoundError as error:
                return _refusal(protocol.NOT_FOUND, str(error))
            run_of = runs.find(request["id"])
            if process is None or run_of is None:
                return _refusal(protocol.NOT_RUNNING, f"{request['id']} does not run")
            answer_when_done(reply_to, run_of, process, float(request["timeout_s"]))
            return None
        case "exit":
            if runs.running:
                return _refusal(protocol.BUSY, "something still runs")
            failpoint("shim:exit")
            return _LEAVES
    return _refusal(protocol.BAD_REQUEST, f"no such request: {request['op']}")


def _refusal(kind: str, error: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "error": error[: protocol.MOST_PROBLEM_CHARS]}
