"""The processes of the demo: each one started here is stopped here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class DemoFailed(Exception):
    """Something did not go as it should; the message is what a person is told."""


class Process:
    """One child: Python with *arguments*, in a process group of its own, so that Ctrl-C reaches the demo alone."""

    def __init__(self, name: str, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._output, self._errors = folder / f"{name}.out", folder / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._child = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=dict(environment),
                process_group=0,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    @property
    def output(self) -> list[str]:
        """The lines it has printed so far."""
        return self._output.read_text("utf-8", "replace").splitlines()

    @property
    def last_words(self) -> str:
        """Return its last three lines of stderr, on one line."""
        return " | ".join(self._errors.read_text("utf-8", "replace").strip().splitlines()[-3:]) or "it said nothing"

    def ask_to_stop(self) -> None:
        """SIGTERM, if it still runs."""
        if self.exit_code is None:
            self._child.terminate()

    def end(self, timeout_s: float) -> int:
        """Wait for it, and kill its whole group after *timeout_s*. Returns the exit code."""
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            return self._child.wait()


class Processes:
    """All of them, in the order of their start."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._started: list[Process] = []

    def start(self, name: str, *arguments: str) -> Process:
        process = Process(name, arguments, folder=self._folder, environment=self._environment)
        self._started.append(process)
        return process

    def check(self) -> None:
        """Raises: DemoFailed: one of them has ended badly."""
        for process in self._started:
            if process.exit_code:
                raise DemoFailed(f"{process.name} ended with {process.exit_code}: {process.last_words}")

    def stop(self, timeout_s: float = 12.0) -> dict[str, int]:
        """End them all, together; what is left after *timeout_s* is killed. Returns the exit codes."""
        for process in self._started:
            process.ask_to_stop()
        deadline = time.monotonic() + timeout_s
        codes = {process.name: process.end(max(0.0, deadline - time.monotonic())) for process in self._started}
        self._started.clear()
        return codes
