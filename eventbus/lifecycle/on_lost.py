"""Runs a command of the user for each lost node, one at a time, in a thread of its own."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading

from eventbus.model.objects.cluster import UNKNOWN, Node, Transition
from eventbus.util.log import log

#: A command that takes longer is killed, with all it has started: the next node waits for it. Seconds.
LONGEST_S = 60.0


class LostCommand:
    """A shell command, run once a lost node with EVENTBUS_NODE, EVENTBUS_REASON and EVENTBUS_MESSAGE.

    Runs in its own thread from the first node on. *failures* counts runs that failed. A command that waits at the end
    of the process, or was decided by a worker that died, is not run; an event reports the loss as well.
    """

    def __init__(self, command: str) -> None:
        self.runs = self.failures = 0
        self._command = command
        self._waiting: queue.SimpleQueue[tuple[str, str, str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="eventbus-on-lost", daemon=True)

    def __call__(self, node: Node, transition: Transition) -> None:
        """Have it run for *node*, if it is lost now; returns at once."""
        ready = node.status.condition("Ready")
        if transition.reason != "NodeNotReady" or ready is None or ready.status != UNKNOWN:
            return
        self._waiting.put((node.metadata.name, transition.reason, transition.message))
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Start no other command, and wait for the running one."""
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (lost := self._waiting.get()) is not None:
            self.runs += 1
            if problem := self._run_once(*lost):
                self.failures += 1
                log.error("--on-lost for node %s: %s", lost[0], problem)

    def _run_once(self, name: str, reason: str, message: str) -> str:
        variables = {"EVENTBUS_NODE": name, "EVENTBUS_REASON": reason, "EVENTBUS_MESSAGE": message}
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
