"""Isolates pods and limits them: by delegated cgroups, or else by rlimits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventbus.agent.runtime.contract import PodUid
from eventbus.agent.runtime.delegated_cgroup import delegated_cgroup, pass_on, pods_cgroup
from eventbus.agent.runtime.pod_facts import GUARANTEED, qos_class
from eventbus.model.names import parse_quantity
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod

CGROUP, RLIMITS = "cgroup-v2", "rlimits"
#: The label of a Node that names its isolation, because each has other limits.
ISOLATION_LABEL: Final = "eventbus.dev/isolation"
#: Period of cpu.max, µs, as the kubelet has it.
_PERIOD_US: Final = 100_000


class Isolation:
    """One way to limit the processes of pods; this one does not: they live as the process that started us."""

    name = "none"

    def container_cgroup(self, _pod: Pod, _container: Container) -> str:
        """Make the cgroup that a container is to begin in; "": none. Raises: OSError."""
        return ""

    def limits(self, _container: Container) -> dict[str, list[int]]:
        """Return soft and hard rlimits by their names in `resource`."""
        return {}

    def remove(self, _uid: PodUid) -> None:
        """Remove the pod's cgroups, in which no process runs."""


class RlimitIsolation(Isolation):
    """For a system that delegates no cgroup. A memory limit bounds the data of each process (RLIMIT_DATA)."""

    name = RLIMITS

    def limits(self, container: Container) -> dict[str, list[int]]:
        memory = parse_quantity(container.resources.limits.get("memory", 0))
        return {"RLIMIT_DATA": [int(memory), int(memory)]} if memory else {}


class CgroupIsolation(Isolation):
    """cgroup v2 below *root*, which is ours: `<qos class>/pod<uid>/<container>`, as the kubelet has them."""

    name = CGROUP

    def __init__(self, root: Path) -> None:
        self._root = root

    def container_cgroup(self, pod: Pod, container: Container) -> str:
        """Make the container's cgroup below its pod's, both with their limits; return its folder."""
        kind = qos_class(pod)
        parts = ([] if kind == GUARANTEED else [kind.lower()]) + [f"pod{pod.metadata.uid}"]
        folder = self._root
        for part in parts:
            folder = _below(folder, part)
        _write(folder, _limits_of(_sums(pod)))
        own = _below(folder, container.name)
        # As in the kubelet: if the kernel kills one process because of memory, the whole container ends.
        _write(own, _limits_of(container.resources.limits, container.resources.requests) | {"memory.oom.group": "1"})
        return str(own)

    def remove(self, uid: PodUid) -> None:
        for folder in self._root.glob(f"**/pod{uid}"):
            for below in (*(entry for entry in folder.iterdir() if entry.is_dir()), folder):
                with contextlib.suppress(OSError):
                    below.rmdir()


def isolation_name() -> str:
    """Return the name of the isolation that `find_isolation` would return. Changes nothing."""
    return RLIMITS if delegated_cgroup() is None else CGROUP


def find_isolation() -> Isolation:
    """cgroups, where this process may make some (systemd: `Delegate=yes`); else rlimits.

    With cgroups, the processes of our own cgroup move: see `pods_cgroup`.
    """
    root = pods_cgroup()
    return RlimitIsolation() if root is None else CgroupIsolation(root)


def _below(folder: Path, name: str) -> Path:
    cgroup = folder / name
    if not cgroup.exists():
        pass_on(folder)
        cgroup.mkdir(exist_ok=True)
    return cgroup


def _sums(pod: Pod) -> dict[str, float]:
    """The limits of a whole pod: sums, where every container has one."""
    sums: dict[str, float] = {}
    for name in ("cpu", "memory"):
        each = [parse_quantity(container.resources.limits.get(name, 0)) or 0.0 for container in pod.spec.containers]
        if each and all(each):
            sums[name] = sum(each)
    return sums


def _limits_of(limits: Mapping[str, object], requests: Mapping[str, object] | None = None) -> dict[str, str]:
    """Files of a cgroup and their content."""
    files = {}
    if memory := parse_quantity(limits.get("memory", 0)):
        files["memory.max"] = str(int(memory))
    if cpu := parse_quantity(limits.get("cpu", 0)):
        files["cpu.max"] = f"{max(1000, int(cpu * _PERIOD_US))} {_PERIOD_US}"
    if request := parse_quantity((requests or {}).get("cpu", 0)):
        shares = max(2, int(request * 1024))
        files["cpu.weight"] = str(1 + (shares - 2) * 9999 // 262142)
    return files


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if (folder / name).exists():  # the controller may not be ours
            (folder / name).write_text(text)
