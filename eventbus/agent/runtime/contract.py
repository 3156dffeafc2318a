"""Contract between the agent's loop and a runtime: the values it reads, its calls, and the reports and errors it gets.

The loop decides which pods run, where and when; a runtime runs them, remembers their runs, and knows nothing of the
store. The contract is not about processes alone: another runtime could run containers with the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NewType, Protocol, TypeAlias

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.event import ObjectReference
from eventbus.model.frozen import EMPTY, FrozenStruct
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod

PodUid = NewType("PodUid", str)
#: `<pod uid>/<container name>/<attempt>`: of one run of a container, never given twice.
ContainerId = NewType("ContainerId", str)


class ContainerPhase(StrEnum):
    """The stage of one run of a container."""

    CREATED = "created"  #: its place is made, its process not released; after a crash of its shim it never will be
    RUNNING = "running"
    EXITED = "exited"


#: Why a run ended: `reason` of `ContainerRuntimeStatus`, and of a terminated state.
COMPLETED, ERROR, OOM_KILLED = "Completed", "Error", "OOMKilled"
#: It could not be started; the message says why. Exit code 128.
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
    start_ticks: int = 0  #: of the process, since boot: with the pid it means one process and no other
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
    """The sandbox that holds a pod's processes together: its shim, session and, where there are any, cgroup.

    *ready* is False when the shim is gone: its processes are found by pid and start time, but not their exit codes.
    """

    attempt: int
    ready: bool
    hash: str
    shim_pid: int
    created_at: datetime | None = None


class PodRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as it runs. *containers*: of each the newest run and, if there is one, the run before it.

    Its pod may be unknown by now: uid, name and namespace are those it was started with.
    """

    uid: PodUid
    name: str
    namespace: str
    sandbox: SandboxStatus | None = None
    containers: tuple[ContainerRuntimeStatus, ...] = ()

    def container(self, name: str) -> ContainerRuntimeStatus | None:
        """The newest run of the container *name*."""
        return next((one for one in self.containers if one.name == name), None)

    def previous(self, name: str) -> ContainerRuntimeStatus | None:
        """The run before the newest."""
        runs = [one for one in self.containers if one.name == name]
        return runs[1] if len(runs) > 1 else None

    @property
    def active(self) -> bool:
        """True while any of its containers runs, or its shim does."""
        return any(one.running for one in self.containers) or (self.sandbox is not None and self.sandbox.ready)


class StartFailure(msgspec.Struct, frozen=True):
    """The reason and message of a container's waiting state. *retry_s*: seconds until another try."""

    reason: str
    message: str
    retry_s: float | None = None


class SyncResult(FrozenStruct, frozen=True, kw_only=True):
    """The result of `sync_pod`. *waiting*: container → why it does not run; empty: all is as it should be.

    `retry_s`: in how many seconds to call again though nothing changes (a back-off ends then); None: no need.
    """

    waiting: Mapping[str, StartFailure] = EMPTY
    sandbox_failure: str = ""  #: the sandbox could not be made: message of FailedCreatePodSandBox

    @property
    def failed(self) -> bool:
        """Return True if something does not run as it should: the sandbox, or a container."""
        return bool(self.waiting or self.sandbox_failure)

    @property
    def retry_s(self) -> float | None:
        """Return the shortest `retry_s` of the waiting containers; None: none waits for a time."""
        return min((one.retry_s for one in self.waiting.values() if one.retry_s is not None), default=None)


class ExecResult(msgspec.Struct, frozen=True):
    """The end of a command inside a pod. *output*: both streams, at most 10 KiB. *timed_out*: it was killed."""

    exit_code: int
    output: bytes
    timed_out: bool = False


class PodRuntime(Protocol):
    """Runs pods. Every call about one pod comes from that pod's worker alone, those marked * from any thread."""

    #: How pods are held apart and limited: `cgroup-v2` or `rlimits`. The Node says it.
    isolation: str

    def pods(self) -> Sequence[PodRuntimeStatus]:
        """* All pods there is anything of, running or not. Reads files and /proc; asks no shim, blocks for nothing."""
        ...

    def status(self, uid: PodUid) -> PodRuntimeStatus | None:
        """* One of them, as it is now."""
        ...

    def sync_pod(self, pod: Pod, *, wanted: Callable[[], bool] = lambda: True) -> SyncResult:
        """Bring the pod's processes to the state of *pod*: SyncPod of the runtime, in its order, with its events.

        Kills changed containers, makes the sandbox (`SandboxChanged`), then starts init containers one by one and the
        containers, each after its artifact (`Pulling` …), with back-off (`BackOff`) and hooks. Whether a container
        that ended is started again follows its restart policy. Its volumes must be there (`PodVolumes.mount`).
        Blocks for post-start hooks, artifacts and pre-stop hooks; never for an init container: call again when
        it has ended. Safe to call again after any error or crash.

        Args: wanted: asked again and again; False: it is to be ended, so nothing more is started or waited for.
        """
        ...

    def kill_pod(self, uid: PodUid, pod: Pod | None, grace_s: float | None = None) -> None:
        """End all its containers at once (`Killing`): pre-stop hook, SIGTERM, grace, SIGKILL; then the shim.

        Blocks until nothing of it runs: at most the grace time and a few seconds.

        Args: pod: for hooks and grace; None: the pod is unknown, and its grace is that of its start.
              grace_s: instead of the pod's.
        """
        ...

    def hurry(self, uid: PodUid, grace_s: float) -> None:
        """Limit the grace of a pod's processes to *grace_s*, also if they are being ended. Returns at once."""
        ...

    def kill_container(self, pod: Pod, container: str, reason: str) -> None:
        """End one container. *reason* stands in its `Killing` event: "Container web failed liveness probe"."""
        ...

    def remove(self, uid: PodUid) -> None:
        """Forget a pod: its folder, volumes, logs, back-off. Raises: RuntimeProblem: something of it still runs."""
        ...

    def collect(self) -> None:
        """Remove shared files that no pod has used for long. Call it regularly; most calls are quick."""
        ...

    def exec_in(self, uid: PodUid, container: str, command: Sequence[str], timeout_s: float) -> ExecResult:
        """* Run a command with the environment, user, folder and limits of a running container.

        Raises: RuntimeProblem: it does not run.  CommandNotFound.
        """
        ...


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
    """A volume cannot be made, or not yet: something it needs is not there."""


class CommandNotFound(RuntimeProblem):
    """There is no such command on this machine, or it may not be run."""


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


#: Takes a report; never blocks. False: there is no room; the report is repeated.
Tell: TypeAlias = Callable[[PodLifecycleEvent], bool]
TellProbe: TypeAlias = Callable[[ProbeResult], bool]
