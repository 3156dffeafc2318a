"""Contract between the agent's loop and the runtime: the values that it returns, its reports and errors.

The loop decides which pods run, where and when; the runtime (`process_runtime.py`) runs them, remembers their runs, and
knows nothing of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import NewType, Protocol, TypeAlias

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.event import ObjectReference
from eventbus.model.frozen import EMPTY, FrozenStruct
from eventbus.model.objects.config import ConfigMap, Secret

PodUid = NewType("PodUid", str)
#: `<pod uid>/<container name>/<attempt>`: the id of one run of a container, never used twice.
ContainerId = NewType("ContainerId", str)


class ContainerPhase(StrEnum):
    """The stage of one run of a container."""

    CREATED = "created"  #: its place is made, its process not released; after a crash of its shim it never will be
    RUNNING = "running"
    EXITED = "exited"


#: Why a run ended, besides Completed, Error and OOMKilled: `reason` of `ContainerRuntimeStatus`, and of a terminated
#: state. It could not be started; the message says why. Exit code 128.
START_ERROR = "StartError"
#: It has ended, and its exit code is unknown: its shim was gone, or the machine was restarted. Exit code 137.
CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown"

#: Reasons of a container that waits, and of `StartFailure`.
CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"  #: a ConfigMap, Secret or key is missing
RUN_CONTAINER_ERROR = "RunContainerError"  #: no such command, no right to run it
POST_START_HOOK_ERROR = "PostStartHookError"
ERR_IMAGE_PULL, ERR_IMAGE_NEVER_PULL, IMAGE_PULL_BACK_OFF = "ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff"
INVALID_IMAGE_NAME = "InvalidImageName"


class ContainerRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a container. Times are aware."""

    id: ContainerId
    name: str
    attempt: int  #: 0 for the first run: the number of restarts before it
    init: bool = False
    phase: ContainerPhase
    hash: str  #: of its definition when it was started; see `container_hash`
    image: str = ""
    pid: int = 0
    start_ticks: int = 0  #: of the process, since boot; pid and start ticks identify a process
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0  #: 128 + signal of one that a signal ended
    signal: int = 0
    reason: str = ""
    message: str = ""
    grace_exceeded: bool = False  #: it was killed since it did not end in its grace time

    @property
    def running(self) -> bool:
        return self.phase is ContainerPhase.RUNNING


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox that holds a pod's processes together: its shim, session and, if delegated, cgroup.

    *ready* is False when the shim is gone: its processes are found by pid and start time, but not their exit codes.
    """

    attempt: int
    ready: bool
    hash: str
    shim_pid: int
    created_at: datetime | None = None


class PodRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as it runs. *containers*: the newest run of each container, and the run before it.

    Its pod may be unknown by now: uid, name and namespace are those it was started with.
    """

    uid: PodUid
    name: str
    namespace: str
    sandbox: SandboxStatus | None = None
    containers: tuple[ContainerRuntimeStatus, ...] = ()

    def container(self, name: str) -> ContainerRuntimeStatus | None:
        """The newest run of the container *name*."""
        return next((run for run in self.containers if run.name == name), None)

    def previous(self, name: str) -> ContainerRuntimeStatus | None:
        """The run before the newest."""
        runs = [run for run in self.containers if run.name == name]
        return runs[1] if len(runs) > 1 else None

    @property
    def active(self) -> bool:
        """True while any of its containers runs, or its shim does."""
        return any(run.running for run in self.containers) or (self.sandbox is not None and self.sandbox.ready)


class StartFailure(msgspec.Struct, frozen=True):
    """The reason and message of a container's waiting state. *retry_s*: seconds until another try."""

    reason: str
    message: str
    retry_s: float | None = None


class SyncResult(FrozenStruct, frozen=True, kw_only=True):
    """The result of `sync_pod`. *waiting*: container → why it does not run; empty: all is as it should be.

    `retry_s`: seconds until the next call without a change, for example the end of a back-off; None: not needed.
    """

    waiting: Mapping[str, StartFailure] = EMPTY
    sandbox_failure: str = ""  #: the sandbox could not be made: message of FailedCreatePodSandBox

    @property
    def failed(self) -> bool:
        """Return True if the sandbox or a container does not run as it should."""
        return bool(self.waiting or self.sandbox_failure)

    @property
    def retry_s(self) -> float | None:
        """Return the shortest `retry_s` of the waiting containers; None: none waits for a time."""
        return min((failure.retry_s for failure in self.waiting.values() if failure.retry_s is not None), default=None)


class ExecResult(msgspec.Struct, frozen=True):
    """The end of a command inside a pod. *output*: both streams, at most 10 KiB. *timed_out*: it was killed."""

    exit_code: int
    output: bytes
    timed_out: bool = False


class ConfigSource(Protocol):
    """Reads the ConfigMaps and Secrets of pods; None: there is no such object (now). Any thread."""

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...
    def secret(self, namespace: str, name: str) -> Secret | None: ...


class PodEvents(Protocol):
    """Records an event about a pod or container; an EventRecorder is one. Any thread, never blocks."""

    def event(self, about: ObjectReference, type: str, reason: str, message: str) -> object: ...


class RuntimeProblem(EventBusError):
    """A call to the runtime failed; the message says why."""


class MountFailed(RuntimeProblem):
    """A volume cannot be made, perhaps because its source does not exist yet."""


class CommandNotFound(RuntimeProblem):
    """The command does not exist on this machine, or may not be run."""


class ShimGone(RuntimeProblem):
    """The pod's shim does not answer: sync the pod, which makes its sandbox again."""


# Reports of the runtime's side to the loop. Threads of their own pass them to a callback, which fills a channel.


class Change(StrEnum):
    """A difference that a relist found. Source: kubelet `pleg/pleg.go`."""

    CONTAINER_STARTED = "ContainerStarted"
    CONTAINER_DIED = "ContainerDied"
    CONTAINER_REMOVED = "ContainerRemoved"
    #: The sandbox came, went, or lost its shim.
    CONTAINER_CHANGED = "ContainerChanged"


class PodLifecycleEvent(msgspec.Struct, frozen=True):
    """Something happened to the processes of a pod: sync it. *container* "": to its sandbox."""

    uid: PodUid
    change: Change
    container: str = ""


class ProbeType(StrEnum):
    """The question of a probe: shall it be restarted, may it be used, has it come up."""

    LIVENESS = "Liveness"
    READINESS = "Readiness"
    STARTUP = "Startup"


class ProbeResult(msgspec.Struct, frozen=True):
    """A probe has changed its mind, as its thresholds have it. *message* is that of its last failure."""

    uid: PodUid
    container: str
    container_id: ContainerId
    type: ProbeType
    success: bool
    message: str = ""


#: Takes a report; never blocks. Returns False if the channel is full; the report is repeated then.
ReportChange: TypeAlias = Callable[[PodLifecycleEvent], bool]
ReportProbe: TypeAlias = Callable[[ProbeResult], bool]
