"""Signals of the runtime's side to the agent's loop: processes that began and ended, results of probes.

Both are given to a `Tell` from threads of their own; the loop's channels stand behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from eventbus.agent.runtime.contract import ContainerId, ContainerRuntimeStatus, PodUid
from eventbus.objects.container import Container
from eventbus.objects.pod import Pod


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


#: Takes what there is to tell; never blocks. False: there is no room; it is told again.
Tell: TypeAlias = Callable[[PodLifecycleEvent], bool]
TellProbe: TypeAlias = Callable[[ProbeResult], bool]


class LifecycleGenerator(Protocol):
    """PLEG: relists all processes every second, and tells differences to a `Tell`."""

    def start(self) -> None: ...
    def stop(self, timeout_s: float = 5.0) -> None: ...

    def problem(self) -> str:
        """Return "" while it relists; else why it is held to be dead: nothing for 3 min. Any thread."""
        ...


class ProbeManager(Protocol):
    """Asks the probes of all pods it was given, and tells each change to a `TellProbe`. Any thread."""

    def add_pod(self, pod: Pod) -> None:
        """Begin to ask its probes. Idempotent; workers of containers that are there stay."""
        ...

    def stop_liveness_and_startup(self, uid: PodUid) -> None:
        """The pod is ending: only its readiness is asked from here on."""
        ...

    def remove_pod(self, uid: PodUid) -> None: ...

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ask nothing any more. Idempotent."""
        ...

    def started(self, uid: PodUid, container: Container, status: ContainerRuntimeStatus | None) -> bool:
        """True once its run came up: it runs, and its startup probe, if any, has succeeded."""
        ...

    def ready(self, uid: PodUid, container: Container, status: ContainerRuntimeStatus | None) -> bool:
        """True if its run is started, and its readiness probe, if any, succeeds."""
        ...


__all__ = [
    "Change",
    "LifecycleGenerator",
    "PodLifecycleEvent",
    "ProbeManager",
    "ProbeResult",
    "ProbeType",
    "Tell",
    "TellProbe",
]
