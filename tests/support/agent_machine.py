"""A machine with agents that come and go: its manifests, the processes of its pods, and their traces."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from eventbus.agent.logs import LocalPods
from eventbus.agent.runtime.contract import ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.agent.shim.procfs import all_processes, mark_of
from tests.acceptance.programs import Program, environment
from tests.waiting import eventually


class AgentMachine:
    """Runs `eventbus worker agent` again and again over the same folder. A context manager; nothing outlives it.

    Its pods write a line `<name> <pid>` to *starts* when they begin: see `script`.
    """

    def __init__(self, folder: Path, url: str, prefix: str, **settings: str) -> None:
        self.folder = folder
        self.manifests, self.starts_file = folder / "manifests", folder / "starts"
        self.manifests.mkdir(mode=0o700)
        folder.chmod(0o700)
        self.starts_file.touch()
        state = str(folder / "state")
        self.env = environment(url, prefix, state_dir=state, drain_s="20", **settings)
        self.local = LocalPods(folder / "state" / "agent")
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for program in self._programs:
            program.__exit__(kind, error, traceback)
            sys.stderr.write(f"--- an agent\n{program.err[-4000:]}\n")  # shown if the test failed
        for pod in self._pods():
            pids = [run.pid for run in pod.containers if run.running]
            for pid in [*pids, pod.sandbox.shim_pid if pod.sandbox is not None and pod.sandbox.ready else 0]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL) if pid else None
        for process in all_processes():  # a hook outlives its shim
            if f" {self.folder}/" in mark_of(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def agent(self, *options: str, crash: str = "") -> Program:
        """Start an agent that runs the manifests; with *crash* it kills itself at that failpoint."""
        env = self.env | ({"EVENTBUS_CRASH": crash} if crash else {})
        words = ("worker", "agent", "--node-name", "n1", "--manifests", str(self.manifests), *options)
        program = Program(*words, env=env, folder=self.folder)
        self._programs.append(program)
        return program

    def agent_alone(self, *options: str) -> Program:
        """Start an agent without a bus, and wait until it runs and hears signals."""
        program = self.agent("--standalone", *options)
        eventually(lambda: "runs its pods without a bus" in program.err)
        return program

    def write(self, name: str, shell: str, *, container: dict[str, Any] | None = None, **spec: Any) -> None:
        """Write the manifest of a pod of one container, which runs *shell*."""
        made = {"name": "main", "command": ["/bin/sh", "-c", self.script(name, shell)], **(container or {})}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 5, **spec, "containers": [made]},
        }
        path = self.manifests / f"{name}.yaml"
        temporary = self.folder / f".{name}"
        temporary.write_text(yaml.safe_dump(pod))
        temporary.chmod(0o600)
        temporary.replace(path)

    def remove(self, name: str) -> None:
        (self.manifests / f"{name}.yaml").unlink()

    def script(self, name: str, shell: str) -> str:
        """Return *shell*, which says first that it begins."""
        return f"echo {name} $$$$ >> {self.starts_file}; {shell}"

    def starts(self, name: str) -> list[int]:
        """Return the pids of all runs of a pod, oldest first."""
        lines = [line.split() for line in self.starts_file.read_text().splitlines()]
        return [int(pid) for who, pid in lines if who == name]

    def alive(self, name: str) -> list[int]:
        """Return those of them that run now."""
        return [pid for pid in self.starts(name) if _runs(pid)]

    def pod(self, name: str) -> PodRuntimeStatus | None:
        return next(iter(self.local.named(name, "default")), None)

    def run_of(self, name: str) -> ContainerRuntimeStatus | None:
        """Return the newest run of a pod's container."""
        pod = self.pod(name)
        return pod.container("main") if pod is not None else None

    def ended_with(self, name: str) -> int | None:
        """Return the exit code of the newest run; None while there is none."""
        run = self.run_of(name)
        return run.exit_code if run is not None and run.phase == "exited" else None

    def wait_alive(self, name: str) -> int:
        """Wait until exactly one process of the pod runs; return its pid."""
        eventually(lambda: len(self.alive(name)) == 1)
        return self.alive(name)[0]

    def wait_gone(self, name: str) -> None:
        eventually(lambda: not self.alive(name) and not self._shims(name))

    def _shims(self, name: str) -> list[int]:
        pods = self.local.named(name, "default")
        return [pod.sandbox.shim_pid for pod in pods if pod.sandbox is not None and pod.sandbox.ready]

    def _pods(self) -> list[PodRuntimeStatus]:
        return list(self.local.all())


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


__all__ = ["AgentMachine"]
