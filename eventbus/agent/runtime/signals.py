"""Signals of the runtime's side to the agent's loop: processes that began and ended, results of probes.

Both are passed to a callback from threads of their own, which fills a channel of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from eventbus.agent.runtime.contract import ContainerId, PodUid


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
