"""The volumes of pods: folders of their own, paths of the machine, and files of ConfigMaps and Secrets."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from eventbus.agent.runtime.contract import ConfigSource, MountFailed, PodUid, RuntimeProblem
from eventbus.agent.runtime.environment import ConfigMissing, contents_of
from eventbus.agent.runtime.folders import PodFolders
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.model.objects.volume import FILE_MODE_RULE, HostPathVolumeSource, KeyToPath, Volume

#: Permissions of files, unless the volume has others. Only its owner may read a secret.
CONFIG_MODE, SECRET_MODE = 0o644, 0o400
_CHECKS: Final = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class PodVolumes:
    """Makes the volumes of pods. Each lies in `volumes/<name>` of the pod's folder; a hostPath stays where it is.

    Calls about one pod come from its worker.
    """

    def __init__(self, folders: PodFolders, configs: ConfigSource) -> None:
        self._folders = folders
        self._configs = configs

    def mount(self, pod: Pod) -> None:
        """Make all of them, or bring files of ConfigMaps and Secrets up to date, atomically. Idempotent, quick.

        Raises: MountFailed: names every missing volume, as in `FailedMount`; call again later.
        """
        problems = []
        for volume in pod.spec.volumes:
            try:
                self._mount(pod, volume)
            except RuntimeProblem as problem:
                problems.append(f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}')
            except OSError as error:
                problems.append(f'MountVolume.SetUp failed for volume "{volume.name}" : {error.strerror}')
        if problems:
            raise MountFailed("; ".join(problems))

    def path(self, pod: Pod, name: str) -> Path:
        """Return the path of the volume *name*. Raises: MountFailed: the pod has none of that name."""
        volume = _volume(pod, name)
        if volume.host_path is not None:
            return Path(volume.host_path.path)
        return self._folders.of(PodUid(pod.metadata.uid)).volume(name)

    def is_empty_dir(self, pod: Pod, name: str) -> bool:
        """Return True if the volume *name* is a folder of the pod's own. Raises: MountFailed."""
        volume = _volume(pod, name)
        return not (volume.host_path or volume.config_map or volume.secret)

    def _mount(self, pod: Pod, volume: Volume) -> None:
        folder = self._folders.of(PodUid(pod.metadata.uid))
        namespace = pod.metadata.namespace
        if volume.foreign:
            raise MountFailed(f"volumes of the sort {volume.foreign} do not exist here")
        for field, mode in volume.bad_modes():  # a pod that was written to the bus without the API is not checked
            raise MountFailed(f"{field}: {mode} {FILE_MODE_RULE}")
        if volume.host_path is not None:
            _check_host_path(volume.host_path)
        elif source := volume.config_map:
            config = self._configs.config_map(namespace, source.name)
            files = _files("configmap", source.name, config, source.items, source.optional, source.default_mode)
            write_files(folder.volume(volume.name), files)
        elif secret_source := volume.secret:
            secret = self._configs.secret(namespace, secret_source.secret_name)
            files = _files(
                "secret",
                secret_source.secret_name,
                secret,
                secret_source.items,
                secret_source.optional,
                secret_source.default_mode,
            )
            write_files(folder.volume(volume.name), files)
        else:  # emptyDir, the default of a volume
            folder.volume(volume.name).mkdir(mode=0o770, parents=True, exist_ok=True)


def _volume(pod: Pod, name: str) -> Volume:
    volume = next((named for named in pod.spec.volumes if named.name == name), None)
    if volume is None:
        raise MountFailed(f'there is no volume "{name}"')
    return volume


def _files(
    word: str,
    name: str,
    config: ConfigMap | Secret | None,
    items: Sequence[KeyToPath],
    optional: bool | None,
    default_mode: int | None,
) -> dict[str, File]:
    """The files of a volume, by their paths in it. Raises: MountFailed."""
    if config is None and not optional:
        raise MountFailed(f'{word} "{name}" not found')
    try:
        contents: Mapping[str, bytes] = contents_of(config) or {}
    except ConfigMissing as problem:
        raise MountFailed(str(problem)) from None
    mode = default_mode if default_mode is not None else SECRET_MODE if word == "secret" else CONFIG_MODE
    if not items:
        return {_inside(key): File(content, mode) for key, content in contents.items()}
    missing = [item.key for item in items if item.key not in contents]
    if missing and not optional:
        raise MountFailed(f"{word} references non-existent config key: {missing[0]}")
    return {
        _inside(item.path): File(contents[item.key], mode if item.mode is None else item.mode)
        for item in items
        if item.key in contents
    }


def _inside(path: str) -> str:
    """Return *path*, of a file in a volume. Raises: MountFailed: it leads out of it."""
    parts = path.split("/")
    if not path or path.startswith(("/", "..")) or ".." in parts or "" in parts:
        raise MountFailed(f"{path!r} is no path inside a volume")
    return path


def _check_host_path(source: HostPathVolumeSource) -> None:
    path, kind = source.path, source.type or ""
    if not os.path.isabs(path):
        raise MountFailed(f"hostPath {path!r} is no absolute path")
    if kind == "DirectoryOrCreate":
        os.makedirs(path, mode=0o755, exist_ok=True)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    kind = kind.removesuffix("OrCreate")
    if kind in _CHECKS:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise MountFailed(f"hostPath type check failed: {path}: {error.strerror}") from None
        if not _CHECKS[kind](mode):
            raise MountFailed(f"hostPath type check failed: {path} is not a {kind}")


_DATA, _NEW_DATA = "..data", "..data_tmp"


class File(NamedTuple):
    """The content of a file to be written, and its permissions."""

    content: bytes
    mode: int


def write_files(folder: Path, files: Mapping[str, File]) -> bool:
    """Make *folder* hold *files*, by their paths in it, and no others. Returns: whether it changed. Raises: OSError.

    A reader sees all old files or all new ones: each name is a link into `..data`, the one link that moves.

    Source: kubelet `volume/util/atomic_writer.go`.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if _holds(folder, files):
        return False
    former = _target(folder)
    new = folder / f"..{time.time_ns()}"
    new.mkdir(mode=0o755)
    for name, file in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
            os.fchmod(target.fileno(), file.mode)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / _NEW_DATA)
    os.symlink(new.name, folder / _NEW_DATA)
    os.replace(folder / _NEW_DATA, folder / _DATA)
    _link(folder, {name.split("/")[0] for name in files})
    if former:
        shutil.rmtree(folder / former, ignore_errors=True)
    return True


def _holds(folder: Path, files: Mapping[str, File]) -> bool:
    data = folder / _DATA
    try:
        there = (
            {str(path.relative_to(data)) for path in data.rglob("*") if not path.is_dir()} if data.exists() else None
        )
        return there == set(files) and all(
            (data / name).read_bytes() == file.content and (data / name).stat().st_mode & 0o7777 == file.mode
            for name, file in files.items()
        )
    except OSError:
        return False


def _target(folder: Path) -> str:
    try:
        return os.readlink(folder / _DATA)
    except OSError:
        return ""


def _link(folder: Path, names: set[str]) -> None:
    """Link each top-level name into `..data`, and remove the other links."""
    for name in names:
        if not os.path.lexists(folder / name):
            os.symlink(f"{_DATA}/{name}", folder / name)
    for entry in os.listdir(folder):
        if not entry.startswith("..") and entry not in names:
            os.unlink(folder / entry)
