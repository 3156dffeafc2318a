"""Compares the pods of each source with its last list, and sends only the differences to the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from eventbus.agent.pods.updates import Op, PodUpdate, Source
from eventbus.model.objects.pod import Pod

#: The order of sending: pods that left, came, changed, were deleted, and those with another status only.
_ORDER = (Op.REMOVE, Op.ADD, Op.UPDATE, Op.DELETE, Op.RECONCILE)


class PodConfig:
    """Merges sources into one stream of updates. Thread-safe; `deliver` is called by the source's thread.

    A source that is unavailable sends nothing, and its pods stay. Sources are independent.

    Source: kubelet `config/config.go` podStorage.
    """

    def __init__(self, deliver: Callable[[PodUpdate], object]) -> None:
        self._deliver = deliver
        self._lock = threading.Lock()
        self._pods: dict[Source, dict[str, Pod]] = {}
        self._expected: set[Source] = set()

    def expect(self, source: Source) -> None:
        """Expect a list from *source*: until it comes, an unknown pod may be one of its pods."""
        self._expected.add(source)

    @property
    def all_ready(self) -> bool:
        """Return True when every source has sent a list."""
        return self._expected <= self._pods.keys()

    def set(self, source: Source, pods: Sequence[Pod]) -> None:
        """Take *pods* as all pods of *source*, and send the differences. A full loop makes it wait."""
        with self._lock:
            pods = self._without_forged(source, pods)
            first = source not in self._pods
            changes = self._compare(source, pods)
            for op in _ORDER:
                if changes[op] or (op is Op.ADD and first):  # the loop learns that the source is there
                    self._deliver(PodUpdate(op, tuple(changes[op]), source))

    def _without_forged(self, source: Source, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return *pods* without pods of the bus that have the uid of a static pod.

        Otherwise a user of the bus could end a pod of a file, also in a namespace that this agent does not accept.
        """
        if source is Source.BUS:
            own = {uid for other, by_uid in self._pods.items() if other is not Source.BUS for uid in by_uid}
            return [pod for pod in pods if pod.metadata.uid not in own]
        pods_of_bus = self._pods.get(Source.BUS, {})
        if forged := tuple(pods_of_bus.pop(pod.metadata.uid) for pod in pods if pod.metadata.uid in pods_of_bus):
            self._deliver(PodUpdate(Op.REMOVE, forged, Source.BUS))
        return pods

    def _compare(self, source: Source, pods: Sequence[Pod]) -> dict[Op, list[Pod]]:
        former_pods = self._pods.get(source, {})
        new = {pod.metadata.uid: pod for pod in pods}
        changes: dict[Op, list[Pod]] = {op: [] for op in Op}
        for uid, pod in new.items():
            former = former_pods.get(uid)
            if former is None:
                changes[Op.ADD].append(pod)
            elif op := _difference(former, pod):
                changes[op].append(pod)
        changes[Op.REMOVE] = [pod for uid, pod in former_pods.items() if uid not in new]
        self._pods[source] = new
        return changes


def _difference(former: Pod, pod: Pod) -> Op | None:
    if pod.metadata.deletion_timestamp is not None and former.metadata.deletion_timestamp is None:
        return Op.DELETE
    if _wanted(former) != _wanted(pod):
        return Op.UPDATE if pod.metadata.deletion_timestamp is None else Op.DELETE
    return Op.RECONCILE if former.status != pod.status else None


def _wanted(pod: Pod) -> tuple[object, ...]:
    metadata = pod.metadata
    return pod.spec, metadata.labels, metadata.annotations, metadata.deletion_grace_period_seconds
