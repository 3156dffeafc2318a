"""The handlers of the agent's loop, for changes of sources, processes, clocks and probes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.admission import NodeCapacity, refusal
from eventbus.agent.pods.api_status import TERMINAL, ended_status
from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.pod_syncer import PodSyncer
from eventbus.agent.pods.pod_workers import PodWork, PodWorkers
from eventbus.agent.pods.status_manager import StatusManager
from eventbus.agent.pods.updates import Op, PodUpdate, Work, is_mirror
from eventbus.agent.runtime.contract import (
    Change,
    PodEvents,
    PodLifecycleEvent,
    PodRuntimeStatus,
    PodUid,
    ProbeResult,
    ProbeType,
)
from eventbus.agent.runtime.pod_facts import about_pod
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.errors import EventBusError
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import WARNING
from eventbus.model.objects.pod import Pod
from eventbus.util.log import log

#: The least that a pod has which was deleted, also by force, seconds.
LEAST_GRACE_S: Final = 1.0
_EPOCH = datetime.fromtimestamp(0, UTC)


class PodLoop:
    """Decides which work each pod's worker gets. All methods but `failed` are the loop's thread's.

    Source: kubelet `kubelet.go` HandlePodAdditions …, `kubelet_pods.go` HandlePodCleanups.
    """

    def __init__(
        self,
        *,
        config: PodConfig,
        manager: PodManager,
        workers: PodWorkers,
        syncer: PodSyncer,
        statuses: StatusManager,
        capacity: NodeCapacity,
        permission: Permission,
        runtime: ProcessRuntime,
        events: PodEvents,
    ) -> None:
        self.refused = 0
        self._config = config
        self._manager = manager
        self._workers = workers
        self._syncer = syncer
        self._statuses = statuses
        self._capacity = capacity
        self._permission = permission
        self._runtime = runtime
        self._events = events
        self._rejected: set[str] = set()
        self._returning: dict[str, Pod] = {}  # wanted again while they end, by uid; the manager does not know them

    def on_config(self, update: PodUpdate) -> None:
        """A source reports a change."""
        if update.op is Op.ADD:
            for pod in sorted(update.pods, key=_created):
                self._add(pod)
            return
        for pod in update.pods:
            if update.op is Op.REMOVE:
                self._remove(pod)
            elif update.op is not Op.DELETE and pod.metadata.uid in self._returning:
                self._returning[pod.metadata.uid] = pod
            else:
                self._returning.pop(pod.metadata.uid, None)
                self._manager.put(pod)
                self._changed(pod, update.op)

    def on_pleg(self, event: PodLifecycleEvent) -> None:
        """A process began or ended."""
        if event.change is not Change.CONTAINER_REMOVED:
            self._sync(event.uid)

    def on_probe(self, result: ProbeResult) -> None:
        """Sync after a probe's result changed: a container that fails liveness or startup is ended by the sync."""
        if not result.success and result.type is not ProbeType.READINESS:
            self._syncer.probe_failed(result)
        self._sync(result.uid)

    def on_sync(self, _tick: object = None) -> None:
        """Look at the pods that are due."""
        for uid in self._workers.retry_kills(self._workers.due()):
            self._sync(uid)

    def on_housekeeping(self, _tick: object = None) -> None:
        """End unknown pods and forget ended ones, but only after every source has sent its list."""
        self._begin_anew()
        if not self._config.all_ready:
            return
        known = {pod.metadata.uid for pod in self._manager.pods()}
        statuses = list(self._runtime.pods())
        phases = self._workers.phases()
        for status in statuses:
            if status.uid not in known:
                self._clean(status, has_worker=status.uid in phases)
        self._workers.forget(known)
        self._statuses.forget(known)
        self._rejected &= known
        self._runtime.collect()

    def _begin_anew(self) -> None:
        """Start pods again that were wanted again while they ended, after all their traces are removed."""
        for uid, pod in list(self._returning.items()):
            phases = self._workers.phases()
            if (left := self._runtime.status(PodUid(uid))) is not None:
                self._clean(left, has_worker=uid in phases)
            self._workers.forget(phases.keys() - {uid})
            if not self._workers.is_terminating(uid) and self._runtime.status(PodUid(uid)) is None:
                del self._returning[uid]
                self._rejected.discard(uid)
                self._statuses.drop(uid)
                self._add(pod)

    def failed(self, pod: Pod, error: Exception) -> None:
        """Report that a sync failed. The worker's thread."""
        self._events.event(about_pod(pod), WARNING, "FailedSync", f"Error syncing pod, skipping: {error}")

    def active(self) -> list[Pod]:
        """Return the admitted pods that have not ended."""
        return [
            pod
            for pod in self._manager.pods()
            if pod.metadata.uid not in self._rejected
            and not self._workers.is_finished(pod.metadata.uid)
            and self._statuses.get(pod).phase not in TERMINAL
        ]

    def _add(self, pod: Pod) -> None:
        if is_mirror(pod):
            self._manager.put(pod)
            self._mirror_changed(pod)
            return
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp is None and self._workers.is_terminating(uid):
            # A manifest that was taken away and put back, or edited and edited back: it has the uid that it had.
            self._returning[uid] = pod
            return
        others = self.active()
        self._manager.put(pod)
        if pod.metadata.deletion_timestamp is not None:
            self._kill(pod)
            return
        if self._statuses.get(pod).phase not in TERMINAL:
            others = [other for other in others if other.metadata.uid != uid]
            if refused := refusal(pod, others, self._capacity, self._permission):
                self._reject(pod, refused.reason, refused.message)
                return
        self._workers.update(PodWork(Work.CREATE, pod))

    def _reject(self, pod: Pod, reason: str, message: str) -> None:
        self.refused += 1
        self._rejected.add(pod.metadata.uid)
        self._events.event(about_pod(pod), WARNING, reason, message)
        status = ended_status(self._statuses.get(pod), reason, f"Pod was rejected: {message}")
        self._statuses.set(pod, status)
        self._workers.update(PodWork(Work.CREATE, pod))  # its phase is final: it only shows the pod

    def _changed(self, pod: Pod, op: Op) -> None:
        if is_mirror(pod):
            self._mirror_changed(pod)
        elif op is Op.DELETE:
            if pod.metadata.uid in self._rejected:
                self._statuses.finish(pod)
            self._kill(pod)
            if self._workers.is_finished(pod.metadata.uid):
                self._statuses.finish(pod)
        elif op is Op.UPDATE:
            self._workers.update(PodWork(Work.UPDATE, pod))
        elif op is Op.RECONCILE:
            self._statuses.write_again(pod)

    def _mirror_changed(self, mirror: Pod) -> None:
        static = self._manager.static_of(mirror)
        if static is None:
            return  # housekeeping removes it after every source has sent a list
        self._statuses.write_again(static)
        if mirror.metadata.deletion_timestamp is not None:
            self._sync(static.metadata.uid)

    def _remove(self, pod: Pod) -> None:
        self._manager.remove(pod)
        if is_mirror(pod):
            if static := self._manager.static_of(pod):
                self._sync(static.metadata.uid)
            return
        if self._returning.pop(pod.metadata.uid, None) is None:
            self._kill(pod)

    def _kill(self, pod: Pod) -> None:
        """End *pod* within its grace; a shorter one reaches a kill that is under way."""
        uid, grace_s = pod.metadata.uid, _grace(pod)
        ends_already = self._workers.is_terminating(uid) and not self._workers.is_finished(uid)
        self._workers.update(PodWork(Work.KILL, pod, grace_s))
        if ends_already and grace_s is not None:
            self._runtime.hurry(PodUid(uid), grace_s)

    def _sync(self, uid: str) -> None:
        pod = self._manager.by_uid(uid)
        if pod is not None:
            self._workers.update(PodWork(Work.SYNC, pod))

    def _clean(self, status: PodRuntimeStatus, *, has_worker: bool) -> None:
        """End a pod that no source names, or remove its leftovers."""
        if status.active:
            if not has_worker:
                log.warning("pod %s/%s is known to no source: it is ended", status.namespace, status.name)
                self._workers.update(PodWork(Work.KILL, orphan(status)))
            return
        if has_worker and not self._workers.is_finished(status.uid):
            return
        try:
            self._runtime.remove(status.uid)
            self._syncer.forget(status.uid)
        except EventBusError as error:
            log.info("the leftovers of pod %s stay for now: %s", status.name, error)


def orphan(status: PodRuntimeStatus) -> Pod:
    """Return a pod with only the fields that it was started with: it has no containers."""
    return Pod(metadata=ObjectMeta(name=status.name, namespace=status.namespace, uid=status.uid))


def _created(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or _EPOCH


def _grace(pod: Pod) -> float | None:
    """Return the grace of a deleted pod, seconds; None: its spec's. Source: calculateEffectiveGracePeriod."""
    seconds = pod.metadata.deletion_grace_period_seconds
    return max(LEAST_GRACE_S, float(seconds)) if seconds is not None else None
