"""Commands that the agent runs inside a pod, for probes and hooks: each with a bound of time and of what it may say."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from eventbus.agent.shim.launch import NOT_STARTED, launch
from eventbus.agent.shim.outputs import Output
from eventbus.agent.shim.procfs import all_processes, descendants
from eventbus.agent.shim.protocol import MOST_OUTPUT_BYTES, Process


class _Exec:
    """One command: who asked, what it has said, when it has to be done."""

    def __init__(self, asker: int, pid: int, output: Output, deadline: float) -> None:
        self.asker = asker
        self.pid = pid
        self.output = output
        self.deadline = deadline
        self.timed_out = False


class Execs:
    """The commands that run. One thread uses it."""

    def __init__(self) -> None:
        self.running: dict[int, _Exec] = {}  #: by pid

    def start(self, asker: int, process: Process, timeout_s: float) -> dict[str, Any] | None:
        """Start a command for the connection *asker*. Returns: the reply if it could not be started."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        output = Output(reading, None, most=MOST_OUTPUT_BYTES)
        try:
            launched = launch(process, writing)
        except OSError as error:
            output.close()
            return _reply(NOT_STARTED, f"cannot make a process: {error.strerror}".encode())
        finally:
            os.close(writing)
        if problem := launched.release():
            os.waitpid(launched.pid, 0)
            output.close()
            return _reply(NOT_STARTED, problem.encode())
        self.running[launched.pid] = _Exec(asker, launched.pid, output, time.monotonic() + timeout_s)
        return None

    def ended(self, pid: int, code: int) -> tuple[int, dict[str, Any]] | None:
        """A process has ended. Returns: the connection to answer and the reply, if it was one of these."""
        found = self.running.pop(pid, None)
        if found is None:
            return None
        found.output.read()
        found.output.close()
        reply = _reply(code if code >= 0 else 128 - code, found.output.said)
        return found.asker, reply | {"timed_out": found.timed_out}

    def forget_asker(self, asker: int) -> None:
        """Nobody waits for the commands of that connection any more; they run on until their time is over."""
        for one in self.running.values():
            if one.asker == asker:
                one.asker = -1

    def kill_due(self) -> float | None:
        """Kill what takes too long. Returns: seconds until the next is due."""
        now = time.monotonic()
        for one in self.running.values():
            if one.deadline <= now and not one.timed_out:
                one.timed_out = True
                self._kill(one)
        due = [one.deadline - now for one in self.running.values() if not one.timed_out]
        return max(0.0, min(due)) if due else None

    def _kill(self, one: _Exec) -> None:
        for process in descendants(one.pid, all_processes()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.pid, signal.SIGKILL)


def _reply(exit_code: int, said: bytes) -> dict[str, Any]:
    return {"ok": True, "exit_code": exit_code, "output": said.decode("utf-8", "replace"), "timed_out": False}
