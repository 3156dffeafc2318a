"""The zygote: one small process with all that a shim needs in memory, which forks one when the agent asks for it.

A shim forked from it shares most of its memory. It ends with the agent: its standard input is the connection to it.
Its shims live on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from eventbus.agent.shim import protocol
from eventbus.agent.shim.launch import become_subreaper, die_with, outlive_parent, reset_signals
from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.shim import Shim
from eventbus.util.failpoints import failpoint

#: Its own, which its shims inherit.
_NAME = b"eventbus-shim"
#: Not for a zygote and its shims. SIGXFSZ: a file that may grow no more is a full disk.
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Fork a shim for each request at standard input, until its other end is gone."""
    reset_signals()  # an agent that ignores SIGCHLD passes that on, and ended processes could not be waited for
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps shims
    with open("/proc/self/comm", "wb") as file:
        file.write(_NAME)
    agent = socket.socket(fileno=0)
    gc.disable()  # a collection writes into all pages, which shims share with the zygote
    gc.freeze()
    while True:
        try:
            request = protocol.read_line(agent, protocol.MOST_REQUEST_BYTES)
        except ConnectionResetError:
            return
        _fork(agent, request)


def _fork(agent: socket.socket, request: bytes) -> None:
    """Fork a shim, and answer the agent as soon as the shim listens."""
    failpoint("zygote:asked")
    zygote = os.getpid()
    from_shim, report = os.pipe()
    answered, confirm = os.pipe()
    if os.fork() == 0:
        for descriptor in (from_shim, confirm):
            os.close(descriptor)
        _be_a_shim(zygote, request, report, answered)
    failpoint("zygote:forked")
    for descriptor in (report, answered):
        os.close(descriptor)
    with open(from_shim, "rb") as file:
        reply = file.read()
    with contextlib.suppress(BrokenPipeError):  # the agent hung up, and the shim ends; or the shim is dead
        agent.sendall(reply or protocol.encode({"ok": False, "error": "it died"}))
        os.write(confirm, b"!")
    os.close(confirm)


def _be_a_shim(zygote: int, request: bytes, report: int, answered: int) -> NoReturn:
    try:
        failpoint("shim:forked", request)
        os.setsid()
        # It dies with the zygote until the agent knows of it. If an agent gives up on it, because the disk does not
        # respond, the agent kills the zygote, and another shim takes the pod over. This one must not return.
        if not die_with(zygote):
            os._exit(1)
        become_subreaper()
        shim, folder, reply = None, "", dict[str, Any]()
        try:
            message = protocol.decode(request)
            folder, state = message["folder"], message["state"]
            process = read_process(os.getpid())
            state["sandbox"]["shim_pid"] = os.getpid()
            state["sandbox"]["shim_ticks"] = process.start_ticks if process else 0
            shim = Shim(folder, state)
            failpoint("shim:begun")
            reply = {"ok": True, "pid": os.getpid()}
        except Exception as error:
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"[: protocol.MOST_PROBLEM_CHARS]}
        with open(report, "wb", buffering=0) as file:
            file.write(protocol.encode(reply))
        if shim is not None and os.read(answered, 1):
            os.close(answered)
            outlive_parent()
            failpoint("shim:answered")
            _leave_agent(folder)
            gc.enable()
            shim.run()
            os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _leave_agent(folder: str) -> None:
    """Close the agent's descriptors, so that readers of its output do not wait for us. A traceback goes into a file."""
    problems = os.open(f"{folder}/shim.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    os.dup2(1, 0)  # /dev/null
    os.dup2(problems, 2)
    os.close(problems)
