"""The processes of the demo, which are pods of it: each one started here is stopped here."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from eventbus.agent.procfile.procfile import line_pod
from eventbus.agent.procfile.procfile_runner import ProcfileRunner, Screen
from eventbus.model.event import ObjectReference
from eventbus.util.clock import SystemClock


class DemoFailed(Exception):
    """Something did not go as it should; the message is what a person is told."""


class Process:
    """One of them: Python with some arguments."""

    def __init__(self, name: str, pods: ProcfileRunner) -> None:
        self.name = name
        self._pods = pods

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._pods.exit_code(self.name)

    @property
    def output(self) -> list[str]:
        """The lines it has printed so far."""
        try:
            return self._pods.log(self.name).read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []

    @property
    def last_words(self) -> str:
        """Return its last three lines, on one."""
        return " | ".join(self.output[-3:]) or "it said nothing"

    def end(self, timeout_s: float) -> int:
        """Wait for it; kill it after *timeout_s*. Returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                self._pods.ask_to_end([self.name], 0.0)
            time.sleep(0.02)
        return code


class Processes:
    """All of them, in the order of their start. Each is a pod that is not started again."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._pods = ProcfileRunner(folder / "pods", events=_NoEvents(), screen=Screen(), clock=SystemClock())
        self._pods.start()
        self._started: list[Process] = []

    def start(self, name: str, *arguments: str) -> Process:
        words = (sys.executable, *arguments)
        self._pods.add([line_pod(name, words, self._environment, Path.cwd(), restart_policy="Never")])
        process = Process(name, self._pods)
        self._started.append(process)
        return process

    def check(self) -> None:
        """Raises: DemoFailed: one of them has ended badly."""
        for process in self._started:
            if process.exit_code:
                raise DemoFailed(f"{process.name} ended with {process.exit_code}: {process.last_words}")

    def stop(self, timeout_s: float = 12.0) -> dict[str, int]:
        """End them all, together; what is left after *timeout_s* is killed. Returns the exit codes."""
        self._pods.ask_to_end([process.name for process in self._started if process.exit_code is None], timeout_s)
        codes = {process.name: process.end(timeout_s) for process in self._started}
        self._started.clear()
        self._pods.close()
        return codes


class _NoEvents:
    """The demo tells what its programs record, and not how they are run."""

    def event(self, about: ObjectReference, type: str, reason: str, message: str) -> None:
        pass
