"""Commands that the agent runs inside a pod, for probes and hooks, with a limit of time and of output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, NamedTuple

from eventbus.agent.shim.launch import NOT_STARTED, launch
from eventbus.agent.shim.output import Output
from eventbus.agent.shim.procfs import all_processes, descendants
from eventbus.agent.shim.protocol import MOST_OUTPUT_BYTES, Process


class _Exec:
    """One command that runs: the descriptor of its client, its output, its deadline."""

    __slots__ = ("client", "deadline", "output", "timed_out")

    def __init__(self, client: int, output: Output, deadline: float) -> None:
        self.client = client
        self.output = output
        self.deadline = deadline
        self.timed_out = False


class ExecReply(NamedTuple):
    """The reply to a command's client. *client*: -1 if the client hung up."""

    client: int
    reply: dict[str, Any]


class Execs:
    """The commands that run. A command dies with its shim, and with the run in which it was started."""

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll
        self._running: dict[int, _Exec] = {}  #: by pid

    def start(self, client: int, process: Process, timeout_s: float) -> dict[str, Any] | None:
        """Start a command. Returns: the reply if it could not be started; None: `ended` returns it later."""
        try:
            launched = launch(process, dies_with_us=True)
        except OSError as error:
            return _reply(NOT_STARTED, f"cannot make a process: {error.strerror}".encode())
        output = Output(launched.output, self._poll, most=MOST_OUTPUT_BYTES)
        if problem := launched.release():
            output.close()
            return _reply(NOT_STARTED, problem.encode())
        self._running[launched.pid] = _Exec(client, output, time.monotonic() + timeout_s)
        return None

    def outputs(self) -> list[Output]:
        """Return the outputs of all commands that run."""
        return [command.output for command in self._running.values()]

    def ended(self, pid: int, code: int) -> ExecReply | None:
        """Process *pid* has ended, by *code* or, below zero, by a signal. Returns: the reply, if it was a command."""
        command = self._running.pop(pid, None)
        if command is None:
            return None
        command.output.close()
        reply = _reply(code if code >= 0 else 128 - code, command.output.content)
        return ExecReply(command.client, reply | {"timed_out": command.timed_out})

    def forget_client(self, client: int) -> None:
        """Answer the commands of *client* no more. They run on until their time is over."""
        for command in self._running.values():
            if command.client == client:
                command.client = -1

    def kill_due(self) -> None:
        """Kill the commands that ran for too long."""
        now = time.monotonic()
        for pid, command in self._running.items():
            if command.deadline <= now and not command.timed_out:
                command.timed_out = True
                _kill(pid)

    def due_at(self) -> float:
        """Return when the next command is to be killed, on the monotonic clock; 0.0: none."""
        return min((command.deadline for command in self._running.values() if not command.timed_out), default=0.0)


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):  # out of descriptors: its children end with the run
        for process in descendants(pid, all_processes()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reply(exit_code: int, output: bytes) -> dict[str, Any]:
    return {"ok": True, "exit_code": exit_code, "output": output.decode("utf-8", "replace"), "timed_out": False}
