"""Says which pod has to go when the machine is short of memory or disk: the kubelet's hard eviction, one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from eventbus.agent.machine import Machine
from eventbus.agent.pods.admission import is_critical, requests_of
from eventbus.agent.runtime.contract import PodRuntimeStatus, PodUid
from eventbus.agent.shim.procfs import all_processes, descendants
from eventbus.agent.thresholds import Thresholds
from eventbus.clock import Clock
from eventbus.objects.conditions import DISK_PRESSURE, MEMORY_PRESSURE
from eventbus.objects.pod import Pod

#: The kubelet's monitoring interval, seconds.
LOOK_EVERY_S: Final = 10.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class _Shortage(NamedTuple):
    """What is short: the node's condition, a resource of pods, what should be left of it, what is."""

    condition: str
    resource: str
    threshold: str
    available: float


class Eviction:
    """Looks every ten seconds. One thread.

    Args: usage: bytes that a pod uses of `memory` or `ephemeral-storage`.
    """

    def __init__(
        self, *, machine: Machine, thresholds: Thresholds, usage: Callable[[Pod, str], float], clock: Clock
    ) -> None:
        self._machine = machine
        self._thresholds = thresholds
        self._usage = usage
        self._clock = clock
        self._looked_at = -LOOK_EVERY_S

    def choose(self, pods: Sequence[Pod], reclaim: Callable[[], bool] = lambda: False) -> tuple[Pod, str] | None:
        """Return which of *pods*, that run, has to go now, and the message for it; None: none. Raises: OSError.

        While disk is short, *reclaim* is asked first to free what nobody needs; if it did, no pod has to go yet.

        Source: kubelet `eviction/eviction_manager.go` synchronize, `helpers.go` rankMemoryPressure: first what uses
        more than it asked for, then the lower priority, then who is furthest above what it asked for.
        """
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        shortage = next(iter(self._shortages()), None)
        pods = [pod for pod in pods if not is_critical(pod)]
        if shortage is None or (shortage.condition == DISK_PRESSURE and reclaim()) or not pods:
            return None
        used = {pod.metadata.uid: self._usage(pod, shortage.resource) for pod in pods}

        def rank(pod: Pod) -> tuple[bool, int, float]:
            above = used[pod.metadata.uid] - requests_of(pod, shortage.resource)
            return above <= 0, pod.spec.priority or 0, -above

        chosen = min(pods, key=rank)
        return chosen, _message(chosen, shortage, used[chosen.metadata.uid])

    def pressures(self) -> list[str]:
        """Return the node's conditions that are so now; what cannot be measured is none."""
        try:
            return [shortage.condition for shortage in self._shortages()]
        except OSError:
            return []

    def _shortages(self) -> list[_Shortage]:
        memory, disk = self._machine.memory(), self._machine.disk()
        found = []
        if memory.available < self._thresholds.memory.least(memory.total):
            found.append(_Shortage(MEMORY_PRESSURE, "memory", self._thresholds.memory.text, memory.available))
        if disk.free < self._thresholds.disk.least(disk.total):
            found.append(_Shortage(DISK_PRESSURE, "ephemeral-storage", self._thresholds.disk.text, disk.free))
        return found


def _message(pod: Pod, shortage: _Shortage, used: float) -> str:
    asked = requests_of(pod, shortage.resource)
    said = (
        f"The node was low on resource: {shortage.resource}. Threshold quantity: {shortage.threshold}, "
        f"available: {_kib(shortage.available)}. The pod was using {_kib(used)}, request is {_kib(asked)}"
    )
    return f"{said}, has larger consumption of {shortage.resource}." if used > asked else f"{said}."


def _kib(amount: float) -> str:
    return f"{int(amount / 1024)}Ki" if amount else "0"


class PodUsage:
    """Measures what pods use. Any thread.

    Args: status: of a pod, as it runs.  folder: of a pod.
    """

    def __init__(self, status: Callable[[PodUid], PodRuntimeStatus | None], folder: Callable[[PodUid], Path]) -> None:
        self._status = status
        self._folder = folder

    def __call__(self, pod: Pod, resource: str) -> float:
        """Return bytes: of memory that its processes hold, or of its logs and volumes on disk."""
        uid = PodUid(pod.metadata.uid)
        if resource != "memory":
            return float(sum(_sizes(self._folder(uid))))
        status, processes = self._status(uid), all_processes()
        runs = [run.pid for run in status.containers if run.running] if status is not None else []
        pids = {*runs, *(below.pid for pid in runs for below in descendants(pid, processes))}
        return float(sum(_resident(pid) for pid in pids))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:  # it has ended
        return 0


def _sizes(folder: Path) -> Iterable[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue


__all__ = ["LOOK_EVERY_S", "Eviction", "PodUsage"]
