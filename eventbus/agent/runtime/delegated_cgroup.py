"""Finds the cgroup of version 2 that was delegated to this process, and makes room in it for pods."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

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
