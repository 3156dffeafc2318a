"""Brings one pod to its desired state, step by step: the agent's SyncPod. Runs in the pod's worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from eventbus.agent.pods.api_status import FAILED, PENDING, TERMINAL, Observed, ended_status, pod_status
from eventbus.agent.pods.mirrors import Mirrors
from eventbus.agent.pods.permission import COMMAND_NOT_FOUND
from eventbus.agent.pods.pod_workers import Done, ExpectedError, PodWork
from eventbus.agent.pods.prober import ProbeManager
from eventbus.agent.pods.status_manager import PodObjects, StatusManager
from eventbus.agent.pods.updates import Work, is_static
from eventbus.agent.runtime.contract import (
    MountFailed,
    PodEvents,
    PodUid,
    ProbeResult,
    ProbeType,
    StartFailure,
)
from eventbus.agent.runtime.pod_facts import about_pod, qos_class
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.errors import EventBusError
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.model.objects.pod import Pod, PodStatus
from eventbus.util.clock import Ages, Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

#: Seconds to the second try to mount the volumes. They double with each try.
MOUNT_FIRST_S: Final = 0.5
#: Seconds after which a sync fails because its volumes cannot be mounted.
MOUNT_WAIT_S: Final = 120.0
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
#: Returns the reason and message of a pod that may not run.
Refuse = Callable[[Pod], tuple[str, str] | None]


class SyncFailed(ExpectedError):
    """A step of the sync failed; it is retried after ERROR_S of `pod_workers.py`, and recorded as FailedSync."""


class PodSyncer:
    """Syncs and ends pods. Calls about one pod come from its worker; `probe_failed` from the loop.

    Args:   refuse: may the pod run here?  store: None while there is no bus.
            is_ending: whether the pod of a uid is to be ended: a sync under way stops at the next step.
    Source: kubelet `kubelet.go` SyncPod, SyncTerminatingPod, SyncTerminatedPod.
    """

    def __init__(
        self,
        *,
        runtime: ProcessRuntime,
        probes: ProbeManager,
        statuses: StatusManager,
        mirrors: Mirrors,
        events: PodEvents,
        clock: Clock,
        refuse: Refuse,
        is_ending: Callable[[str], bool],
        store: Callable[[], PodObjects | None],
        address: str,
    ) -> None:
        self._runtime = runtime
        self._probes = probes
        self._statuses = statuses
        self._mirrors = mirrors
        self._events = events
        self._clock = clock
        self._refuse = refuse
        self._is_ending = is_ending
        self._store = store
        self._address = address
        self._ages = Ages(clock)
        self._lock = threading.Lock()
        self._waiting: dict[str, Mapping[str, StartFailure]] = {}  # uid → container → why it does not run
        self._unmounted: dict[str, tuple[float, int]] = {}  # uid → since when, tries
        self._unhealthy: dict[str, dict[str, ProbeResult]] = {}  # uid → container → its failure

    def perform(self, work: PodWork) -> Done:
        """Do one piece of work. Raises: SyncFailed, and the runtime's errors: try again later."""
        return self._kill(work) if work.kind is Work.KILL else self._sync(work.pod)

    def probe_failed(self, result: ProbeResult) -> None:
        """Note that a container is to be ended, by the next sync of its pod."""
        with self._lock:
            self._unhealthy.setdefault(result.uid, {})[result.container] = result

    def status(self, pod: Pod) -> PodStatus:
        """Return how *pod* is now."""
        uid = PodUid(pod.metadata.uid)
        observed = Observed(
            runtime=self._runtime.status(uid),
            waiting=self._waiting.get(uid, {}),
            started=lambda container, run: self._probes.started(uid, container, run),
            ready=lambda container, run: self._probes.ready(uid, container, run),
            address=self._address,
            qos_class=qos_class(pod),
        )
        return pod_status(pod, observed, self._statuses.get(pod))

    def forget(self, uid: str) -> None:
        """Forget the state of a pod that is gone."""
        with self._lock:
            self._waiting.pop(uid, None)
            self._unmounted.pop(uid, None)
            self._unhealthy.pop(uid, None)
        self._ages.forget(uid)

    def _sync(self, pod: Pod) -> Done:
        status = self._update_status(pod)
        if status.phase in TERMINAL:
            return self._clean_up_finished(pod, status)
        if late := self._past_deadline(pod, status):
            return self._kill(PodWork(Work.KILL, pod, reason=DEADLINE_EXCEEDED, message=late))
        failpoint("pod:status")
        if refused := self._refuse(pod):
            self._statuses.set(pod, _blocked(status, *refused))
            self._runtime.kill_pod(PodUid(pod.metadata.uid), self._with_hooks(pod))
            raise SyncFailed(f"pod may not run here: {refused[1]}")
        self._mirror(pod)
        failpoint("pod:mirror")
        mount_again_s = self._mount(pod)
        if mount_again_s is not None:
            return Done(again_s=mount_again_s)
        failpoint("pod:volumes")
        self._probes.add_pod(pod)
        self._kill_unhealthy(pod)
        return self._run(pod)

    def _update_status(self, pod: Pod) -> PodStatus:
        return self._statuses.set(pod, self.status(pod))

    def _run(self, pod: Pod) -> Done:
        uid = pod.metadata.uid
        result = self._runtime.sync_pod(pod, wanted=lambda: not self._is_ending(uid))
        failpoint("pod:runtime")
        self._waiting[uid] = result.waiting
        status = self._update_status(pod)
        if result.sandbox_failure:
            raise SyncFailed(f"failed to create the sandbox: {result.sandbox_failure}")
        lasting = [(name, failure) for name, failure in result.waiting.items() if failure.retry_s is None]
        if lasting:
            problems = [
                f'failed to "StartContainer" for "{name}" with {failure.reason}: {failure.message}'
                for name, failure in lasting
            ]
            raise SyncFailed(", ".join(problems))
        if status.phase in TERMINAL:
            return self._clean_up_finished(pod, status)
        return Done(again_s=self._soonest(result.retry_s, self._deadline_s(pod, status)))

    def _clean_up_finished(self, pod: Pod, status: PodStatus) -> Done:
        """End the leftovers of a pod with a final phase: its shim, and containers that are not needed any more."""
        uid = PodUid(pod.metadata.uid)
        running = self._runtime.status(uid)
        if running is not None and running.active:
            self._runtime.kill_pod(uid, self._with_hooks(pod))
        self._probes.remove_pod(uid)
        self._mirror(pod)
        self._waiting.pop(uid, None)
        self._statuses.set(pod, self.status(pod) if not status.reason else status)
        return Done(over=True)

    def _kill(self, work: PodWork) -> Done:
        """End a pod, without the steps of a sync before it."""
        pod = work.pod
        uid = PodUid(pod.metadata.uid)
        if work.reason:
            self._statuses.set(pod, ended_status(self.status(pod), work.reason, work.message))
        failpoint("pod:kill")
        self._probes.stop_liveness_and_startup(uid)
        self._runtime.kill_pod(uid, self._with_hooks(pod), work.grace_s)
        failpoint("pod:ended")
        self._probes.remove_pod(uid)
        if pod.spec.containers:  # its spec is known
            self._statuses.set(pod, self._final_status(pod, reason=work.reason))
        self._statuses.finish(pod)
        self.forget(uid)
        return Done(over=True)

    def _with_hooks(self, pod: Pod) -> Pod | None:
        """Return *pod*, so that its hooks run before its end; None: they may not run here, or its spec is not known.

        Permission is asked again: the spec, for example the pre-stop hook, may have changed since the pod started.
        """
        refused = self._refuse(pod)
        return pod if pod.spec.containers and (refused is None or refused[0] == COMMAND_NOT_FOUND) else None

    def _final_status(self, pod: Pod, *, reason: str) -> PodStatus:
        """Return the last status, with a final phase, because no container of *pod* will run again."""
        status = self.status(pod)
        if reason or status.phase in TERMINAL:
            return status
        ended = [
            container.state.terminated or container.last_state.terminated for container in status.container_statuses
        ]
        good = all(state is not None and state.exit_code == 0 for state in ended)
        return msgspec.structs.replace(status, phase="Succeeded" if good else FAILED)

    def _mirror(self, pod: Pod) -> None:
        store = self._store()
        if store is None or not is_static(pod):
            return
        try:
            if self._mirrors.ensure(store, pod):
                self._statuses.write_again(pod)
        except EventBusError as error:  # the pod runs without it; the mirror only makes it visible
            log.info("the mirror of pod %s waits: %s", pod.metadata.name, error)

    def _mount(self, pod: Pod) -> float | None:
        """Mount the volumes of *pod*. Returns: in how many seconds to try again; None: they are mounted.

        Raises: SyncFailed: mounting has failed for MOUNT_WAIT_S.
        """
        uid, now = pod.metadata.uid, self._clock.monotonic()
        try:
            self._runtime.volumes.mount(pod)
        except MountFailed as error:
            since, tries = self._unmounted.get(uid, (now, 0))
            self._event(pod, WARNING, "FailedMount", str(error))
            if now - since >= MOUNT_WAIT_S:
                del self._unmounted[uid]
                raise SyncFailed(f"unable to mount volumes for 2m: {error}") from error
            self._unmounted[uid] = since, tries + 1
            return min(MOUNT_FIRST_S * 2.0**tries, MOUNT_WAIT_S - (now - since))
        self._unmounted.pop(uid, None)
        return None

    def _kill_unhealthy(self, pod: Pod) -> None:
        with self._lock:
            failed = self._unhealthy.pop(pod.metadata.uid, {})
        running = self._runtime.status(PodUid(pod.metadata.uid)) if failed else None
        for name, result in failed.items():
            run = running.container(name) if running is not None else None
            if run is not None and run.running and run.id == result.container_id:
                kind = "liveness" if result.type is ProbeType.LIVENESS else "startup"
                reason = f"Container {name} failed {kind} probe, will be restarted"
                self._runtime.kill_container(pod, name, reason)

    def _past_deadline(self, pod: Pod, status: PodStatus) -> str:
        left_s = self._deadline_s(pod, status)
        if left_s is None or left_s > 0:
            return ""
        message = "Pod was active on the node longer than the specified deadline"
        self._event(pod, NORMAL, DEADLINE_EXCEEDED, message)
        return message

    def _deadline_s(self, pod: Pod, status: PodStatus) -> float | None:
        most_s = pod.spec.active_deadline_seconds
        if most_s is None or status.start_time is None:
            return None
        return most_s - self._ages.age_s(pod.metadata.uid, status.start_time.timestamp())

    @staticmethod
    def _soonest(*times_s: float | None) -> float | None:
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def _event(self, pod: Pod, event_type: str, reason: str, message: str) -> None:
        self._events.event(about_pod(pod), event_type, reason, message)


def _blocked(status: PodStatus, reason: str, message: str) -> PodStatus:
    return msgspec.structs.replace(status, phase=PENDING, reason=reason, message=message)
