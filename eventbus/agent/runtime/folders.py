"""Paths of a pod's files: one folder a pod, under the agent's state folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from eventbus.agent.runtime.contract import PodUid, RuntimeProblem

#: Root of the kubelet's folders of pods.
FOLDER_MODE = 0o750
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,200}")


class PodFolder(NamedTuple):
    """The folder of one pod. `make` creates it."""

    root: Path

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def volume(self, name: str) -> Path:
        """Return the folder of one volume. Raises: as `checked`."""
        return self.volumes / checked(name)

    def container(self, name: str) -> Path:
        """Return the default working folder of a container."""
        return self.root / "containers" / checked(name)

    def log(self, name: str, attempt: int) -> Path:
        """Return the log file of one run of a container; *attempt* counts its restarts."""
        return self.root / "logs" / checked(name) / f"{attempt}.log"

    def remove_old_logs(self, name: str, attempt: int) -> None:
        """Remove the logs of a container's runs, except *attempt* and the run before it. Raises: OSError."""
        kept = {str(attempt), str(attempt - 1)}
        for piece in self.log(name, attempt).parent.iterdir():
            if piece.name.partition(".")[0] not in kept:
                piece.unlink()

    def make(self) -> None:
        """Make it, and those above it. Raises: OSError."""
        for folder in (self.root.parent, self.root, self.root / "containers", self.root / "logs", self.volumes):
            make_folder(folder)

    def let_in(self, gids: Collection[int]) -> None:
        """Let users of *gids* pass to their files below it; with several groups all users may. Raises: OSError."""
        for folder in (self.root.parent.parent, self.root.parent, self.root / "containers", self.volumes):
            let_pass(folder)
        if len(gids) == 1:
            os.chown(self.root, -1, *gids)
        self.root.chmod(0o710 if len(gids) == 1 else 0o711)


class PodFolders:
    """The folders of all pods, in `<state_dir>/pods`."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir / "pods"

    def of(self, uid: PodUid) -> PodFolder:
        """Raises: RuntimeProblem: *uid* is no part of a path."""
        return PodFolder(self.root / checked(uid))

    def uids(self) -> Iterator[PodUid]:
        """Yield the uids of all pods with a folder."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return
        yield from (PodUid(name) for name in sorted(names) if _PLAIN.fullmatch(name))

    def remove(self, uid: PodUid) -> None:
        """Take a pod's folder away, if it is there. Raises: OSError."""
        folder = self.of(uid).root
        if folder.exists():
            remove_tree(folder)


def make_folder(folder: Path) -> None:
    """Make a folder that other users may not list. An existing folder is not changed. Raises: OSError."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def let_pass(folder: Path) -> None:
    """Let other users pass through a folder, but not list it. Raises: OSError."""
    folder.chmod(folder.stat().st_mode & 0o7777 | 0o011)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also if programs have made parts of it read-only. Raises: OSError."""
    if os.geteuid():  # root needs no permission
        for place, folders, _ in os.walk(folder):
            for path in (Path(place, name) for name in folders):
                if not path.is_symlink():
                    path.chmod(FOLDER_MODE)
    shutil.rmtree(folder)


def checked(part: str) -> str:
    """Return *part*, which becomes part of a path. Raises: RuntimeProblem: it could lead elsewhere."""
    if not _PLAIN.fullmatch(part) or part in (".", ".."):
        raise RuntimeProblem(f"{part!r} is no name of a pod, container or volume")
    return part
