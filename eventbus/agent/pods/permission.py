"""Decides which programs a pod may run, and as which user: a pod's author runs programs as the agent's user."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from eventbus.agent.pods.updates import Source, source_of
from eventbus.errors import ConfigError
from eventbus.model.objects.container import Container, LifecycleHandler, Probe
from eventbus.model.objects.pod import Pod

#: The reason of a pod that may run, but has a command that is not on this machine.
COMMAND_NOT_FOUND: Final = "CommandNotFound"
#: The prefix of an image that is an archive on this machine.
ARCHIVE: Final = "file:"
#: Names that a shell uses as variables; bash takes functions from variables of other names.
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_PATTERN: Final = re.compile(r"[A-Za-z0-9_*?]+")
_HERE: Final = ("", "localhost", "127.0.0.1", "::1")


class Refusal(NamedTuple):
    """The reason why a pod may not run here; *reason* becomes that of its status and of a Warning."""

    reason: str
    message: str


class Permission:
    """The rules of one agent. *allow_commands* and *allow_env* restrict pods of the bus and of a URL.

    Args:   allow_commands: patterns of absolute paths: `*` stands for anything within a folder, `**` for folders too.
            allow_users: ids that a pod may run as besides our own.
            allow_groups: ids of groups that a pod may have besides our own and those of allowed users, of the same
            number. Our own group root is for files' pods alone, unless it is named here.
            allow_env: patterns of variables that such a pod may set, like `JOB_*`: by many a name (LD_PRELOAD,
            BASH_ENV, MAKEFLAGS, …) an allowed program can be made to run another.
            namespaces: pods of the bus run only if they are of one of these.
    Raises: ConfigError: a pattern is no absolute path, or none of names.
    """

    def __init__(
        self,
        allow_commands: Sequence[str] = (),
        allow_users: Collection[int] = (),
        allow_env: Sequence[str] = (),
        allow_groups: Collection[int] = (),
        namespaces: Collection[str] = (),
    ) -> None:
        self._namespaces = frozenset(namespaces)
        for pattern in allow_commands:
            if not pattern.startswith("/") or os.path.normpath(pattern) != pattern:
                raise ConfigError(f"--allow-command {pattern!r}: give a pattern of absolute paths, as '/opt/jobs/*'")
        self._patterns = [_compiled(pattern) for pattern in allow_commands]
        for pattern in allow_env:
            if not _PLAIN_PATTERN.fullmatch(pattern):
                raise ConfigError(f"--allow-env {pattern!r}: give a pattern of names of variables, as 'JOB_*'")
        self._variables = [_compiled(pattern) for pattern in allow_env]
        self._users = frozenset((*allow_users, os.geteuid()))
        if os.geteuid() == 0:
            self._groups = frozenset((*allow_groups, *(user for user in allow_users if user)))
            self._own_groups = frozenset((os.getegid(),))
        else:  # which can give a process no other group
            self._groups = frozenset[int]()
            self._own_groups = frozenset((os.getegid(), *os.getgroups()))

    def problem(self, pod: Pod) -> Refusal | None:
        """Return the first reason why *pod* may not run; None: it may run."""
        source = source_of(pod)
        from_file = source is Source.FILE
        if source is Source.BUS and (namespace := pod.metadata.namespace) not in self._namespaces:
            return Refusal(
                "NamespaceNotAllowed", f"its node runs no pods of namespace {namespace} (see --pods-from-bus)"
            )
        problems = [*self._rights(pod), *self._pod_groups(pod, from_file=from_file), *_commands_present(pod)]
        if not from_file:
            problems = [*self._foreign(pod), *problems]
        return next(iter(problems), None)

    def _rights(self, pod: Pod) -> Iterator[Refusal]:
        """Yield rights that no pod may have: root's rights, and users that were not named."""
        contexts = [pod.spec.security_context, *(container.security_context for container in pod.spec.every_container)]
        for context in contexts:
            user = context.run_as_user if context is not None else None
            if user is not None and user not in self._users:
                yield Refusal("UserNotPermitted", f"pod may not run as user {user} (see --allow-user)")
            if context is not None and context.run_as_non_root and (user or os.geteuid()) == 0:
                yield Refusal("UserNotPermitted", "pod must not run as root, and the agent does")
            if getattr(context, "privileged", None):
                yield Refusal("PrivilegedNotPermitted", "pod asks to be privileged, and no agent can make it so")

    def _pod_groups(self, pod: Pod, *, from_file: bool) -> Iterator[Refusal]:
        """Yield groups that were not named."""
        allowed = self._groups | (self._own_groups if from_file else self._own_groups - {0})
        shared = pod.spec.security_context
        contexts = [shared, *(container.security_context for container in pod.spec.every_container)]
        groups = [context.run_as_group for context in contexts if context is not None]
        cure = "see --allow-group" if os.geteuid() == 0 else "an agent that is not root can give no other than its own"
        for group in (*groups, *(shared.supplemental_groups if shared is not None else ())):
            if group is not None and group not in allowed:
                yield Refusal("GroupNotPermitted", f"pod may not run with group {group} ({cure})")

    def _foreign(self, pod: Pod) -> Iterator[Refusal]:
        for where, path in _paths(pod):
            if not self._allows(path):
                leads = os.path.realpath(path)
                which = f"{path!r}, which is {leads!r}," if path.startswith("/") and leads != path else repr(path)
                yield Refusal("CommandNotAllowed", f"{where}: {which} is allowed by no --allow-command")
        for container in pod.spec.every_container:
            if container.env_from:
                yield Refusal("CommandNotAllowed", f"{container.name}: envFrom may set any variable: name them in env")
            for variable in container.env:
                if not self._allows_variable(variable.name):
                    message = f"{container.name}: the variable {variable.name!r} is allowed by no --allow-env"
                    yield Refusal("CommandNotAllowed", message)
            for handler in _handlers(container):
                hosts = [action.host for action in (handler.http_get, handler.tcp_socket) if action is not None]
                if any(host not in _HERE for host in hosts):
                    yield Refusal("CommandNotAllowed", f"{container.name}: probes and hooks ask this machine alone")

    def _allows_variable(self, name: str) -> bool:
        return bool(_PLAIN.fullmatch(name)) and any(pattern.fullmatch(name) for pattern in self._variables)

    def _allows(self, path: str) -> bool:
        """Return True if *path* is plain, and both it and its real path match a pattern."""
        if not path.startswith("/") or os.path.normpath(path) != path or "$" in path:  # $(NAME) is put in later
            return False
        return all(
            any(pattern.fullmatch(name) for pattern in self._patterns) for name in (path, os.path.realpath(path))
        )


def _paths(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield everything of this machine that the pod names to run or to see, and where it does."""
    for container in pod.spec.every_container:
        if container.command:
            yield container.name, container.command[0]
        else:
            yield container.name, ""  # the archive would decide
        if container.image.startswith(ARCHIVE):
            yield f"{container.name}: image", _archive_path(container.image)
        for handler in _handlers(container):
            if handler.exec is not None:
                yield f"{container.name}: exec", (*handler.exec.command, "")[0]
    for volume in pod.spec.volumes:
        if volume.host_path is not None:
            yield f"volume {volume.name}", volume.host_path.path


def _archive_path(image: str) -> str:
    """Return the path in `file:///path@sha256:…`."""
    return image.removeprefix(ARCHIVE).removeprefix("//").partition("@")[0]


def _handlers(container: Container) -> Iterator[Probe | LifecycleHandler]:
    lifecycle = container.lifecycle
    hooks = (lifecycle.post_start, lifecycle.pre_stop) if lifecycle is not None else ()
    for handler in (container.liveness_probe, container.readiness_probe, container.startup_probe, *hooks):
        if handler is not None:
            yield handler


def _commands_present(pod: Pod) -> Iterator[Refusal]:
    """Yield commands that are not in PATH; archives and volumes do not exist yet, so they are not searched."""
    for container in pod.spec.every_container:
        if container.image.startswith(ARCHIVE):
            continue
        if not container.command:
            yield Refusal(COMMAND_NOT_FOUND, f"{container.name}: there is no command, and no archive that has one")
            continue
        command = container.command[0]
        mounts = tuple(mount.mount_path.rstrip("/") + "/" for mount in container.volume_mounts)
        search = next((variable.value for variable in container.env if variable.name == "PATH"), None)
        if "$(" in command or (mounts and command.startswith(mounts)) or ("/" in command and command[0] != "/"):
            continue
        if shutil.which(command, path=search) is None:
            yield Refusal(COMMAND_NOT_FOUND, f"{container.name}: {command!r} is not there, or is no program")


def _compiled(pattern: str) -> re.Pattern[str]:
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", pattern)))
