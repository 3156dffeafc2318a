"""Isolates pods and limits them: by delegated cgroups, or else by rlimits."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from eventbus.agent.runtime.contract import PodUid
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


#: Below our own cgroup: where the agent itself lives, and where pods do.
ASIDE, PODS = "agent", "pods"
#: The controllers that limits need. On a hybrid machine version 1 has them, and version 2 cannot limit.
_NEEDED: Final = frozenset(("cpu", "memory"))
_PASSED_ON: Final = (*sorted(_NEEDED), "pids")
#: The attributes by which systemd marks a delegated cgroup.
_MARKS: Final = ("user.delegate", "trusted.delegate")
_SELF: Final = Path("/proc/self")


class Cgroup(NamedTuple):
    """Our own cgroup. *inside*: its path in /proc; `/` is the top of the visible tree."""

    folder: Path
    inside: str


def delegated_cgroup(proc: Path = _SELF) -> Cgroup | None:
    """Return our own cgroup if it is delegated to us, else None. Changes nothing."""
    try:
        own = own_cgroup(proc)
        return own if own is not None and _is_ours(own) else None
    except OSError:
        return None


def pods_cgroup(proc: Path = _SELF) -> Path | None:
    """Return the cgroup below which pods get theirs, made; None: no cgroup is ours to divide.

    The processes of our own cgroup move aside: they may live in leaves only, before controllers are passed on.
    """
    own = delegated_cgroup(proc)
    if own is None:
        return None
    try:
        aside, pods = own.folder / ASIDE, own.folder / PODS
        aside.mkdir(exist_ok=True)
        for pid in (own.folder / "cgroup.procs").read_text().split():
            (aside / "cgroup.procs").write_text(pid)
        pods.mkdir(exist_ok=True)
        pass_on(own.folder)
        pass_on(pods)
    except OSError:
        return None
    return pods


def own_cgroup(proc: Path = _SELF) -> Cgroup | None:
    """Return the cgroup of version 2 that this process was started in; None: the machine has none. Raises: OSError."""
    lines = (proc / "cgroup").read_text().splitlines()
    inside = next((line[len("0::") :] for line in lines if line.startswith("0::")), None)
    if inside is None:
        return None
    for top, mounted_at in _mounts((proc / "mountinfo").read_text()):
        below = os.path.relpath(inside, top)
        if below != ".." and not below.startswith("../"):
            own = Cgroup(Path(os.path.normpath(mounted_at / below)), inside)
            return Cgroup(own.folder.parent, os.path.dirname(inside)) if _has_moved(own.folder) else own
    return None


def pass_on(folder: Path) -> None:
    """Let the cgroups below *folder* use the controllers that it has. Raises: OSError."""
    there = (folder / "cgroup.controllers").read_text().split()
    for name in _PASSED_ON:
        if name in there:
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _mounts(mountinfo: str) -> Iterator[tuple[str, Path]]:
    """Yield where cgroups of version 2 are mounted, and which of them is the top there: `man proc_pid_mountinfo`."""
    for line in mountinfo.splitlines():
        fields, _, source = line.partition(" - ")
        if source.split(" ", 1)[0] == "cgroup2":
            top, mounted_at = fields.split()[3:5]
            yield _plain(top), Path(_plain(mounted_at))


def _plain(escaped: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped)


def _has_moved(folder: Path) -> bool:
    """Return True for the cgroup of an agent that has moved aside, or was started by such an agent."""
    return folder.name == ASIDE and (folder.parent / PODS).is_dir()


def _is_ours(own: Cgroup) -> bool:
    """Return True if we may divide *own*: it has the controllers for limits, and was delegated to us.

    Root may write everywhere, so write access is no proof: an unmarked cgroup of a session or service is systemd's.
    The top of a container's own view is the container's.
    """
    controllers = own.folder / "cgroup.controllers"
    if not controllers.exists() or not set(controllers.read_text().split()) >= _NEEDED:
        return False
    if not os.access(own.folder, os.W_OK) or not os.access(own.folder / "cgroup.procs", os.W_OK):
        return False
    is_top_of_container = own.inside == "/" and (own.folder / "cgroup.type").exists()
    return os.geteuid() != 0 or is_top_of_container or _is_marked(own.folder)


def _is_marked(folder: Path) -> bool:
    for name in _MARKS:
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:  # it is not there, or the file system knows none
            continue
    return False
