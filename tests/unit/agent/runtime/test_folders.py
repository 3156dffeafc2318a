"""folders.py: what is taken away of a pod, by an agent that may not write everywhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.agent.runtime.contract import PodUid
from eventbus.agent.runtime.folders import PodFolders

UID, NOBODY = PodUid("11111111-2222-3333-4444-555555555555"), 65534


@pytest.fixture
def folders() -> Iterator[PodFolders]:
    # Not pytest's own, which nobody else may enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        made = PodFolders(Path(folder))
        made.of(UID).make()
        yield made


def written(folder: Path) -> Path:
    """Write what Go's cache of modules is like: a folder that is read-only, in one that is."""
    deep = folder / "outer" / "inner"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    (folder / "elsewhere").symlink_to("/")
    for made in (deep, deep.parent):
        made.chmod(0o555)
    return deep


def as_another_user(of: Path, step: Callable[[], bool]) -> bool:
    """Take *step* as another user than root, who owns *of*."""
    if os.geteuid():
        return step()
    for place, names, files in os.walk(of):
        for name in (".", *names, *files):
            os.chown(Path(place, name), NOBODY, NOBODY, follow_symlinks=False)
    if (child := os.fork()) == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(0 if step() else 3)
        finally:
            os._exit(4)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 3)
    return code == 0


def test_a_pod_with_something_read_only_is_removed(folders: PodFolders) -> None:
    written(folders.of(UID).root / "containers" / "main")

    def remove() -> bool:
        folders.remove(UID)
        return not folders.of(UID).root.exists()

    assert as_another_user(folders.root.parent, remove)
