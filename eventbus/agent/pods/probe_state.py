"""One probe of one container: when it is due, and the meaning of an answer. Pure; time and answers are arguments.

Source: kubelet `prober/worker.go`.
"""

from __future__ import annotations

from typing import Final

from eventbus.agent.runtime.contract import ContainerId, ContainerRuntimeStatus, PodUid
from eventbus.agent.runtime.signals import ProbeType
from eventbus.model.objects.container import Container, Probe
from eventbus.model.objects.pod import Pod

#: The result that a container has before its first answer.
_AT_FIRST: Final = {ProbeType.LIVENESS: True, ProbeType.READINESS: False, ProbeType.STARTUP: False}


class ProbeState:
    """Counts the answers of one probe against its thresholds. One thread at a time uses it.

    After a failure that ends the container it asks nothing until there is a new run.
    """

    def __init__(self, pod: Pod, container: Container, type: ProbeType, probe: Probe, due: float) -> None:
        self.pod = pod
        self.container = container
        self.type = type
        self.probe = probe
        self.due = due  #: when it is to be asked next, on the monotonic clock
        self.busy = False
        self.run_id = ContainerId("")
        self.result = _AT_FIRST[type]
        self.message = ""
        self._on_hold = False
        self._in_a_row = 0
        self._last: bool | None = None

    @property
    def key(self) -> tuple[PodUid, str, ProbeType]:
        return PodUid(self.pod.metadata.uid), self.container.name, self.type

    @property
    def period_s(self) -> float:
        return float(max(1, self.probe.period_seconds))

    def meet(self, run: ContainerRuntimeStatus | None) -> bool:
        """See which run there is. Returns: whether it is another than before, and the result is the first again."""
        id = run.id if run is not None else ContainerId("")
        if id == self.run_id:
            return False
        self.run_id, self.result, self.message = id, _AT_FIRST[self.type], ""
        self._on_hold, self._in_a_row, self._last = False, 0, None
        return True

    def wants(self, run: ContainerRuntimeStatus | None, age_s: float, *, started: bool) -> bool:
        """Return whether *run*, which began *age_s* ago, is to be probed now."""
        if run is None or not run.running or self._on_hold or age_s < self.probe.initial_delay_seconds:
            return False
        # Until it has started only its startup probe is asked, from then on only the others.
        return started != (self.type is ProbeType.STARTUP)

    def count(self, *, ok: bool, message: str) -> bool:
        """Take an answer. Returns: whether the result has changed, as the thresholds have it."""
        self._in_a_row = self._in_a_row + 1 if ok == self._last else 1
        self._last = ok
        threshold = self.probe.success_threshold if ok else self.probe.failure_threshold
        if self._in_a_row < threshold:
            return False
        first = self.result == ok and not self.message and self._in_a_row == threshold and not ok
        changed = self.result != ok or first
        self.result, self.message = ok, "" if ok else message
        if not ok and self.type is not ProbeType.READINESS:
            self._on_hold, self._in_a_row = True, 0
        return changed


def probes_of(container: Container) -> list[tuple[ProbeType, Probe]]:
    """The probes that a container has."""
    found = (
        (ProbeType.STARTUP, container.startup_probe),
        (ProbeType.LIVENESS, container.liveness_probe),
        (ProbeType.READINESS, container.readiness_probe),
    )
    return [(type, probe) for type, probe in found if probe is not None]
