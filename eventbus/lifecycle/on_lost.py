"""Runs a command of the user for each lost node, one at a time, in a thread of its own."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading

from eventbus.model.objects.cluster import Transition
from eventbus.util.log import log

#: A command that takes longer is killed, with all processes of its session: the next node waits for it. Seconds.
LONGEST_S = 60.0


class LostCommand:
    """A shell command, run with EVENTBUS_NODE, EVENTBUS_REASON and EVENTBUS_MESSAGE for each lost node.

    It runs at most once for each loss: not if this worker dies first, or is stopped while other nodes wait.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._stopping = False
        self._waiting: queue.SimpleQueue[tuple[str, Transition] | None] = queue.SimpleQueue()  # None: the end
        self._thread = threading.Thread(target=self._run, name="eventbus-on-lost", daemon=True)
        self._thread.start()

    def run_for(self, node: str, transition: Transition) -> None:
        """Have it run for *node*; returns at once."""
        self._waiting.put((node, transition))

    def stop(self, timeout_s: float) -> None:
        """Wait for the running command, at most *timeout_s*, and start no other."""
        self._stopping = True
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (lost := self._waiting.get()) is not None and not self._stopping:
            if problem := self._run_once(*lost):
                log.error("--on-lost for node %s: %s", lost[0], problem)

    def _run_once(self, node: str, transition: Transition) -> str:
        """Run the command. Returns: the problem, or ""."""
        variables = {
            "EVENTBUS_NODE": node,
            "EVENTBUS_REASON": transition.reason,
            "EVENTBUS_MESSAGE": transition.message,
        }
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                env=dict(os.environ) | variables,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror or error}"
        try:
            code = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"killed, it took longer than {LONGEST_S:g} s"
        return f"ended with exit code {code}" if code else ""
