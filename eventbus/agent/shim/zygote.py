"""The zygote: one small process with all that a shim needs in memory, which forks one when the agent asks for it.

A shim forked from it shares most of its memory: 1.8 MiB are its own, against 3.7 MiB of an interpreter. It ends with
the agent, whose end of the connection is its standard input; its shims live on.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from eventbus.agent.shim import protocol
from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.shim import Shim
from eventbus.agent.shim.state import State
from eventbus.failpoints import failpoint

_SET_CHILD_SUBREAPER, _SET_NAME = 36, 15
_NAME = b"eventbus-shim"
#: Calls after which an interpreter does not change a function's code any more.
WARMING = 20


def main() -> None:
    """Fork a shim for each request at standard input, until its other end is gone.

    It reads none of them, each shim reads its own: a page that this process changes is one that all shims no longer
    share with it, so it does next to nothing.
    """
    agent = socket.socket(fileno=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a shim here
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    _warm_up()
    gc.collect()
    gc.disable()
    gc.freeze()
    while agent.recv(1, socket.MSG_PEEK):
        failpoint("zygote:asked")
        ready, say = os.pipe()
        if os.fork() == 0:
            os.close(ready)
            _be_a_shim(prctl, agent, say)
        failpoint("zygote:forked")
        os.close(say)
        if not os.read(ready, 1):  # it died before it had read what it was to do
            with contextlib.suppress(BlockingIOError):  # or just behind it
                agent.recv(protocol.MOST_REQUEST_BYTES, socket.MSG_DONTWAIT)
            agent.sendall(b'{"ok":false,"error":"it died"}\n')
        os.close(ready)


def _warm_up() -> None:
    """Use what every shim uses: what Python changes in its own code on the first calls is shared then."""
    for _ in range(WARMING):
        read_process(os.getpid())
        protocol.decode(protocol.encode({"ok": True, "run": {"id": "", "pid": 1, "at": 0.1}}))


def _be_a_shim(prctl: Any, agent: socket.socket, say: int) -> NoReturn:
    try:
        try:
            failpoint("shim:forked")
            request = protocol.decode(_read_line(agent))
            folder, state = request["folder"], request["state"]
            os.setsid()
            prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            prctl(_SET_NAME, _NAME, 0, 0, 0)
            os.chdir("/")
            shim = _make_shim(folder, state)
            failpoint("shim:begun")
            agent.sendall(protocol.encode({"ok": True, "pid": os.getpid()}))
        except BaseException as error:
            agent.sendall(protocol.encode({"ok": False, "error": f"{type(error).__name__}: {error}"}))
            os.write(say, b"-")
            raise
        with contextlib.suppress(BrokenPipeError):  # the zygote is gone: the agent has our word
            os.write(say, b"+")
        os.close(say)
        failpoint("shim:answered")
        _let_go_of_the_agent(folder)
        shim.run()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _make_shim(folder: str, state: State) -> Shim:
    found = read_process(os.getpid())
    state["sandbox"]["shim_pid"] = os.getpid()
    state["sandbox"]["shim_ticks"] = found.start_ticks if found else 0
    return Shim(folder, state)


def _read_line(agent: socket.socket) -> bytes:
    heard = b""
    while not heard.endswith(b"\n"):
        data = agent.recv(256 * 1024)
        if not data:
            raise ConnectionResetError("the agent hung up")
        heard += data
    return heard


def _let_go_of_the_agent(folder: str) -> None:
    """Keep nothing that the agent gave, or whoever reads its output would wait for us. A traceback gets into a file."""
    nothing = os.open(os.devnull, os.O_RDWR)
    problems = os.open(f"{folder}/shim.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    for target, source in ((0, nothing), (1, nothing), (2, problems)):
        os.dup2(source, target)
    for descriptor in (nothing, problems):
        os.close(descriptor)
