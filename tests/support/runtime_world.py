"""A runtime with real processes in a folder of its own, its events and ConfigMaps in lists of the test's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eventbus.agent.logs import LocalPods
from eventbus.agent.runtime.contract import ContainerRuntimeStatus, PodRuntimeStatus, PodUid, SyncResult
from eventbus.agent.runtime.isolation import Isolation, RlimitIsolation
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.agent.runtime.shim_client import Zygote
from eventbus.agent.shim.procfs import Process, all_processes, mark, mark_of
from eventbus.model.event import ObjectReference
from eventbus.model.kinds import POD
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import SystemClock
from tests.waiting import eventually

UID = PodUid("11111111-2222-3333-4444-555555555555")


class Configs:
    """ConfigMaps and Secrets by name."""

    def __init__(self) -> None:
        self.config_maps: dict[str, ConfigMap] = {}
        self.secrets: dict[str, Secret] = {}

    def config_map(self, _namespace: str, name: str) -> ConfigMap | None:
        return self.config_maps.get(name)

    def secret(self, _namespace: str, name: str) -> Secret | None:
        return self.secrets.get(name)


class Told:
    """The events that were recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, about: ObjectReference, type: str, reason: str, message: str) -> None:
        self.events.append((type, reason, about.field_path, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _, _ in self.events]

    def message(self, reason: str) -> str:
        return next(message for _, one, _, message in self.events if one == reason)


class LastingZygote(Zygote):
    """A zygote of several worlds, one after the other: what ends is only their use of it."""

    def close(self) -> None: ...
    def hang_up(self) -> None: ...

    def end(self) -> None:
        super().close()


class RuntimeWorld:
    """One state folder, and the agents that use it one after the other. *zygote*: None: each has its own."""

    def __init__(self, folder: Path, isolation: Isolation | None = None, zygote: Zygote | None = None) -> None:
        self.folder = folder
        self.zygote = zygote
        self.isolation = isolation or RlimitIsolation()
        self.configs = Configs()
        self.told = Told()
        self.clock = SystemClock()
        self.runtime = self.open()

    def open(self) -> ProcessRuntime:
        """Another agent's runtime over the same folder."""
        return ProcessRuntime(
            state_dir=self.folder,
            events=self.told,
            configs=self.configs,
            clock=self.clock,
            isolation=self.isolation,
            zygote=self.zygote,
        )

    def sync(self, pod: Pod) -> SyncResult:
        self.runtime.volumes.mount(pod)
        return self.runtime.sync_pod(pod)

    def status(self, uid: PodUid = UID) -> PodRuntimeStatus:
        found = self.runtime.status(uid)
        assert found is not None
        return found

    @property
    def shim_pid(self) -> int:
        sandbox = self.status().sandbox
        assert sandbox is not None
        return sandbox.shim_pid

    def run(self, name: str = "main") -> ContainerRuntimeStatus:
        """The newest run of a container."""
        found = self.status().container(name)
        assert found is not None
        return found

    def ended(self, name: str = "main", attempt: int = 0) -> ContainerRuntimeStatus:
        """Wait until that run has ended."""
        eventually(lambda: self.run(name).attempt >= attempt and not self.run(name).running)
        return self.run(name)

    def log(self, name: str = "main", *, previous: bool = False) -> str:
        status = self.runtime.status(UID)
        run = status and (status.previous(name) if previous else status.container(name))
        if not run:
            return ""
        said = b""
        for file in LocalPods(self.folder).open_log(self.status(), run):
            with file:
                said += file.read()
        return said.decode()

    def processes(self) -> list[Process]:
        """All processes of its pods that there are."""
        uids = {pod.uid for pod in self.runtime.pods()} | {UID}
        marks = {mark(f"{uid}/", str(self.folder / "pods" / uid)).partition(" ") for uid in uids}
        found = [(one, mark_of(one.pid).partition(" ")) for one in all_processes() if not one.gone]
        return [one for one, (id, _, place) in found if any(id.startswith(u) and place == f for u, _, f in marks)]

    def end(self) -> None:
        for pod in self.runtime.pods():
            self.runtime.kill_pod(pod.uid, None, 0.0)
        self.runtime.close()


@contextmanager
def runtime_world(folder: Path, zygote: Zygote | None = None) -> Iterator[RuntimeWorld]:
    """A world. At its end, none of its processes runs."""
    world = RuntimeWorld(folder, zygote=zygote)
    try:
        yield world
    finally:
        world.end()


def make_pod(*scripts: str, **spec: Any) -> Pod:
    """A pod of shell scripts: one is called `main`, several `c0`, `c1`, … *spec*: more of it, by JSON's names."""
    names = ["main"] if len(scripts) == 1 else [f"c{number}" for number in range(len(scripts))]
    containers = [container(name, script) for name, script in zip(names, scripts, strict=True)]
    metadata = {"name": "web-0", "namespace": "shop", "uid": UID}
    return POD.decode(
        {"metadata": metadata, "spec": {"containers": containers, "terminationGracePeriodSeconds": 20} | spec}
    )


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["/bin/sh", "-c", script]} | more


def children(pid: int) -> list[Process]:
    """The children of *pid*."""
    return [one for one in all_processes() if one.parent == pid]


def lowest_free(pid: int) -> int:
    """Return the number that a process's next descriptor gets."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in range(len(used) + 1) if number not in used)


def is_idle(pid: int) -> bool:
    """Return True if the process has used no CPU in a moment."""
    before = _cpu_ticks(pid)
    time.sleep(0.5)
    return _cpu_ticks(pid) == before


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
