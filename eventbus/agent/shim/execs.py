"""Commands that the agent runs inside a pod, for probes and hooks, with a limit of time and of output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any

from eventbus.agent.shim.launch import NOT_STARTED, Pipes, close_all_but, launch
from eventbus.agent.shim.outputs import Output
from eventbus.agent.shim.procfs import all_processes, descendants, is_alive
from eventbus.agent.shim.protocol import MOST_OUTPUT_BYTES, Process, encode
from eventbus.agent.shim.signals import wake_by_signals
from eventbus.agent.shim.state import Run


def answer_when_done(reply_to: int, run: Run, process: Process, timeout_s: float) -> None:
    """Have a process of its own run a command in the place of *run*, and report its end at *reply_to*.

    Raises: OSError: there can be none.

    It outlives a shim that dies, and its command does not outlive it: the time of each command is bounded.
    """
    if os.fork():
        return
    try:
        with contextlib.suppress(OSError):  # the caller does not wait any more
            os.closerange(3, reply_to)  # to look for the others takes one
            close_all_but(reply_to)  # the command must not reach the pod's shim, or its listening socket
            reply = encode(_run(run, process, timeout_s))
            with socket.socket(fileno=reply_to) as replying:
                replying.settimeout(1.0)
                replying.sendall(reply)
    finally:
        os._exit(0)


def _run(run: Run, process: Process, timeout_s: float) -> dict[str, Any]:
    wake = wake_by_signals()
    try:
        pipes = Pipes()
        pid, _ = launch(process, pipes.writing, pipes, maker=os.getpid())
    except OSError as error:
        return _reply(NOT_STARTED, f"cannot make a process: {error.strerror}".encode())
    if problem := pipes.release():
        return _reply(NOT_STARTED, problem.encode())
    # A command is swept with the run by the mark in its environment, which it has from now on.
    if not is_alive(run["pid"], run["start_ticks"]):
        _kill(pid)
    os.set_blocking(pipes.reading, False)
    output = Output(pipes.reading, None, most=MOST_OUTPUT_BYTES)
    timed_out, code = _wait(pid, output, wake, time.monotonic() + timeout_s)
    output.read()
    return _reply(code if code >= 0 else 128 - code, output.said) | {"timed_out": timed_out}


def _wait(pid: int, output: Output, wake: int, deadline: float) -> tuple[bool, int]:
    """Wait until *pid* ends, by itself or by us at *deadline*. Returns: whether by us, and how."""
    poll, timed_out = select.poll(), False
    for descriptor in (output.descriptor, wake):
        poll.register(descriptor, select.POLLIN)
    while True:
        left_s = None if timed_out else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            timed_out = True
            _kill(pid)
            continue
        for descriptor, _ in poll.poll(None if left_s is None else min(left_s, 3600.0) * 1000 + 1):
            if descriptor == wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            elif not output.read():  # closed, though the process may run on: it would be ready for ever
                poll.unregister(descriptor)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return timed_out, os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> None:
    for process in descendants(pid, all_processes()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reply(exit_code: int, said: bytes) -> dict[str, Any]:
    return {"ok": True, "exit_code": exit_code, "output": said.decode("utf-8", "replace"), "timed_out": False}
