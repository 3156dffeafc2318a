"""The zygote: one small process with all that a shim needs in memory, which forks one when the agent asks for it.

A shim forked from it shares most of its memory: 1 MiB is its own, against 3.7 MiB of an interpreter. It ends with
the agent: its standard input is the connection to it. Its shims live on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import traceback
from typing import NoReturn

from eventbus.agent.shim import protocol
from eventbus.agent.shim.prctl import become_subreaper, die_with
from eventbus.agent.shim.shim import Shim
from eventbus.agent.shim.signals import handle_signals, ignore_signals
from eventbus.util.failpoints import failpoint

#: Its own, which its shims inherit.
_NAME = b"eventbus-shim"
#: Calls after which an interpreter does not change a function's code any more.
_WARMING = 12
#: Made of each size before the first fork. They take the free places between older objects, each on a page that a shim
#: would have to copy; objects of a shim lie together.
_FILLING = 120


def main() -> None:
    """Fork a shim for each request at standard input, until its other end is gone.

    It reads none of them, each shim reads its own: a page that this process changes is one that all shims no longer
    share with it, so it does next to nothing.
    """
    ignore_signals()  # an agent that ignores SIGCHLD passes that on, and ended processes could not be waited for
    agent, zygote = socket.socket(fileno=0), os.getpid()
    with open("/proc/self/comm", "wb") as file:
        file.write(_NAME)
    _warm_up()
    handle_signals()  # not before: the workers of a rehearsal are waited for
    gc.collect()
    filling = [bytes(size) for size in range(8, 480, 16) for _ in range(_FILLING)]
    gc.disable()
    gc.freeze()
    while agent.recv(1, socket.MSG_PEEK):
        failpoint("zygote:asked")
        ready, say = os.pipe()
        if os.fork() == 0:
            os.close(ready)
            _be_a_shim(zygote, agent, say)
        failpoint("zygote:forked")
        os.close(say)
        if not os.read(ready, 1):  # it died before it had read its request
            with contextlib.suppress(BlockingIOError):  # or just after it
                agent.recv(protocol.MOST_REQUEST_BYTES, socket.MSG_DONTWAIT)
            agent.sendall(b'{"ok":false,"error":"it died"}\n')
        os.close(ready)
    del filling


def _warm_up() -> None:
    """Use the code of every shim once: Python's changes to its own code on the first calls are shared then."""
    for _ in range(_WARMING):
        Shim().rehearse()


def _be_a_shim(zygote: int, agent: socket.socket, say: int) -> NoReturn:
    try:
        failpoint("shim:forked")
        os.setsid()
        # An agent that gives up on it, as the disk stands still, kills the zygote and has another take the pod over.
        if not die_with(zygote):
            os._exit(1)
        become_subreaper()
        shim = Shim()
        folder = shim.begin(agent)
        with contextlib.suppress(BrokenPipeError):  # the zygote is gone: the agent has our word
            os.write(say, b"+" if folder else b"-")
        os.close(say)
        if folder:
            failpoint("shim:answered")
            _let_go_of_the_agent(folder)
            shim.run()
            os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _let_go_of_the_agent(folder: str) -> None:
    """Close the agent's descriptors, so that readers of its output do not wait for us. A traceback goes into a file."""
    problems = os.open(f"{folder}/shim.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    os.dup2(1, 0)  # /dev/null
    os.dup2(problems, 2)
    os.close(problems)
