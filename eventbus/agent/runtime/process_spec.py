"""Makes the process of a container: the program, its arguments, environment, folder, user and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from eventbus.agent.runtime.artifacts import Artifacts
from eventbus.agent.runtime.contract import CommandNotFound, MountFailed, PodUid, RuntimeProblem
from eventbus.agent.runtime.environment import EnvironmentMaker, expand
from eventbus.agent.runtime.folders import PodFolders, let_pass, make_folder
from eventbus.agent.runtime.isolation import Isolation
from eventbus.agent.runtime.volumes import PodVolumes
from eventbus.agent.shim.launch import find_program
from eventbus.agent.shim.protocol import Process
from eventbus.model.objects.container import Container, VolumeMount
from eventbus.model.objects.pod import Pod


class ProcessMaker:
    """Makes the process of a container. Any thread.

    A process sees the machine's own file system. So a volume that is mounted at a relative path is a link in the
    container's folder, at an absolute path a link below `$EVENTBUS_MOUNTS`; `$EVENTBUS_VOLUME_<NAME>` is its own path.
    """

    def __init__(
        self,
        *,
        folders: PodFolders,
        volumes: PodVolumes,
        environments: EnvironmentMaker,
        artifacts: Artifacts,
        isolation: Isolation,
    ) -> None:
        self._folders = folders
        self._volumes = volumes
        self._environments = environments
        self._artifacts = artifacts
        self._isolation = isolation

    def make(self, pod: Pod, container: Container) -> Process:
        """Raises: CommandNotFound.  RuntimeProblem: a ConfigMap, Secret or volume is missing.  OSError."""
        folder = self._folders.of(PodUid(pod.metadata.uid)).container(container.name)
        make_folder(folder)
        home = self._home(container, folder)
        env = self._environments.make(pod, container, self._own_variables(pod, container, folder))
        for mount in container.volume_mounts:
            self._link(pod, mount, folder)
        uid, gid, groups = _user(pod, container)
        if uid > 0 and os.geteuid() == 0:
            self._give(pod, container, folder, home, uid, gid)
        words = [expand(word, env) for word in (*container.command, *container.args)]
        if not words:
            raise CommandNotFound(f"container {container.name} names no command")
        cwd = str(home / container.working_dir) if container.working_dir else str(home)
        return Process(
            path=_program(words[0], env, cwd),
            argv=words,
            env=env,
            cwd=cwd,
            uid=uid,
            gid=gid,
            groups=groups,
            limits=self._isolation.limits(container),
            cgroup=self._isolation.container_cgroup(pod, container),
        )

    def _home(self, container: Container, folder: Path) -> Path:
        archive = self._artifacts.archive_of(container)
        return folder if archive is None else self._artifacts.folder(archive)

    def _own_variables(self, pod: Pod, container: Container, folder: Path) -> Mapping[str, str]:
        variables = {
            "EVENTBUS_POD_NAME": pod.metadata.name,
            "EVENTBUS_POD_NAMESPACE": pod.metadata.namespace,
            "EVENTBUS_POD_UID": pod.metadata.uid,
            "EVENTBUS_CONTAINER": container.name,
            "EVENTBUS_CONTAINER_DIR": str(folder),
            "EVENTBUS_MOUNTS": str(folder / "mounts"),
        }
        for mount in container.volume_mounts:
            name = f"EVENTBUS_VOLUME_{mount.name.upper().replace('-', '_')}"
            variables[name] = str(self._volumes.path(pod, mount.name) / mount.sub_path)
        return variables

    def _give(self, pod: Pod, container: Container, folder: Path, home: Path, uid: int, gid: int) -> None:
        """Give another user access: *folder* becomes the user's, as do emptyDirs without an owner."""
        self._folders.of(PodUid(pod.metadata.uid)).let_in(
            {_user(pod, sibling)[1] for sibling in pod.spec.every_container} - {-1}
        )
        if home != folder:
            let_pass(home.parent)
        os.chown(folder, uid, gid)
        for mount in container.volume_mounts:
            volume = self._volumes.path(pod, mount.name)
            if self._volumes.is_empty_dir(pod, mount.name) and volume.stat().st_uid == 0:
                os.chown(volume, uid, gid)

    def _link(self, pod: Pod, mount: VolumeMount, folder: Path) -> None:
        """Make a link to a volume, below *folder* only: the container's programs may have made links of their own."""
        if ".." in Path(mount.sub_path).parts or ".." in Path(mount.mount_path).parts:
            raise MountFailed(f"volumeMounts of {mount.name}: a path may not lead upwards")
        target = str(self._volumes.path(pod, mount.name) / mount.sub_path)
        place = Path(mount.mount_path)
        *parents, name = ("mounts", *place.parts[1:]) if place.is_absolute() else ("", *place.parts)
        if not name or not parents:
            raise MountFailed(f"volumeMounts of {mount.name}: {mount.mount_path!r} is the whole folder")
        with ExitStack() as opened:
            here = _opened(folder, None, opened)
            for parent in filter(None, parents):
                with suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=here)
                try:
                    here = _opened(parent, here, opened)
                except OSError:
                    problem = (
                        f"{mount.mount_path}: {parent} is a link or a file, and no volume may be mounted within another"
                    )
                    raise MountFailed(problem) from None
            _lay(name, target, here, f"{mount.mount_path} is there already, and is no mount of {mount.name}")


def _opened(folder: str | Path, within: int | None, closed_by: ExitStack) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    closed_by.callback(os.close, descriptor)
    return descriptor


def _lay(name: str, target: str, within: int, problem: str) -> None:
    """Make *name* in the folder *within* a link to *target*. Raises: MountFailed: with *problem*."""
    try:
        if os.readlink(name, dir_fd=within) == target:
            return
        os.unlink(name, dir_fd=within)
    except FileNotFoundError:
        pass
    except OSError:
        raise MountFailed(problem) from None
    os.symlink(target, name, dir_fd=within)


def _program(word: str, env: Mapping[str, str], cwd: str) -> str:
    """The file that *word* means, in the container's own PATH. Raises: CommandNotFound."""
    try:
        return find_program(word, env.get("PATH", ""), cwd)
    except FileNotFoundError as problem:
        raise CommandNotFound(str(problem)) from None


def _user(pod: Pod, container: Container) -> tuple[int, int, list[int]]:
    """User, group and further groups; -1: as the agent. Raises: RuntimeProblem: it must not be root, and would be."""
    own, shared = container.security_context, pod.spec.security_context

    def said(name: str) -> int | None:
        first = getattr(own, name, None) if own else None
        return first if first is not None else getattr(shared, name, None) if shared else None

    uid, gid = said("run_as_user"), said("run_as_group")
    if said("run_as_non_root") and (os.geteuid() if uid is None else uid) == 0:
        raise RuntimeProblem("container has runAsNonRoot and would run as root")
    groups = list(shared.supplemental_groups) if shared else []
    if uid is not None and gid is None and uid != os.geteuid():
        gid = uid
    return -1 if uid is None else uid, -1 if gid is None else gid, groups
