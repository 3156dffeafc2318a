"""Ends containers: the pre-stop hook, SIGTERM, the grace time, SIGKILL, with their events.

Source: kubelet `kuberuntime_container.go` killContainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from eventbus.agent.runtime.ask_container import ExecIn, ask
from eventbus.agent.runtime.contract import (
    ContainerRuntimeStatus,
    PodEvents,
    PodRuntimeStatus,
    PodUid,
    RuntimeProblem,
    ShimGone,
)
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.observed import Observer
from eventbus.agent.runtime.pod_facts import about, about_container
from eventbus.agent.runtime.shim_client import call
from eventbus.agent.shim.procfs import is_alive
from eventbus.model.event import ObjectReference
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock
from eventbus.util.text import printable

#: The least grace of SIGTERM after a slow pre-stop hook: the kubelet's minimumGracePeriodInSeconds.
LEAST_GRACE_S: Final = 2.0
#: The shim's clock decides about the grace time; the agent waits this much longer for its report.
_WORD_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02
#: longer than any grace time that a run may have been given
_A_DAY_S: Final = 86_400.0


class ContainerKiller:
    """Ends containers of one pod at once, and waits for it. Calls about one pod come from one thread."""

    def __init__(
        self, *, folders: PodFolders, observer: Observer, events: PodEvents, clock: Clock, exec_in: ExecIn
    ) -> None:
        self._folders = folders
        self._observer = observer
        self._events = events
        self._clock = clock
        self._exec_in = exec_in

    def kill(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        messages: Mapping[str, str],
        grace_s: float | None = None,
    ) -> None:
        """End the running containers that *messages* names, each with that message ("": the usual).

        Raises: ShimGone: the remaining processes have to be ended by pid.  RuntimeProblem: one does not end.
        """
        runs = [run for name in messages if (run := status.container(name)) is not None and run.running]
        if not runs:
            return
        with ThreadPoolExecutor(len(runs), thread_name_prefix="eventbus-kill") as pool:
            futures = [pool.submit(self._begin, pod, status, run, messages[run.name], grace_s) for run in runs]
        waits_s = max(future.result() for future in futures)
        self._wait(status.uid, runs, waits_s + _WORD_S)
        self._report_exceeded(pod, status, runs)

    def _begin(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        run: ContainerRuntimeStatus,
        message: str,
        grace_s: float | None,
    ) -> float:
        """Ask it to end. Returns: the seconds it has for that."""
        text = message or f"Stopping container {run.name}"
        self._events.event(_about(pod, status, run.name), NORMAL, "Killing", printable(text))
        if grace_s is None:
            grace_s = self._grace_s(pod, status, run)
        began_s = self._clock.monotonic()
        if pod is not None and grace_s > 0:
            self._pre_stop(pod, run, grace_s)
            grace_s = max(min(LEAST_GRACE_S, grace_s), grace_s - (self._clock.monotonic() - began_s))
        call(self._folders.of(status.uid).root, {"op": "stop", "id": run.id, "grace_s": grace_s})
        return grace_s

    def _grace_s(self, pod: Pod | None, status: PodRuntimeStatus, run: ContainerRuntimeStatus) -> float:
        if pod is not None:
            if pod.metadata.deletion_grace_period_seconds is not None:
                return float(pod.metadata.deletion_grace_period_seconds)
            return float(pod.spec.termination_grace_period_seconds)
        state = self._observer.state(status.uid)
        return next((record["grace_s"] for record in (state or {"runs": []})["runs"] if record["id"] == run.id), 30.0)

    def _pre_stop(self, pod: Pod, run: ContainerRuntimeStatus, grace_s: float) -> None:
        container = _container(pod, run.name)
        hook = container and container.lifecycle and container.lifecycle.pre_stop
        if not container or not hook:
            return
        answer = ask(self._exec_in, PodUid(pod.metadata.uid), container, hook, grace_s)
        if not answer.ok:
            message = printable(f"PreStopHook failed: {answer.text}")
            self._events.event(about_container(pod, run.name), WARNING, "FailedPreStopHook", message)

    def _wait(self, uid: PodUid, runs: Sequence[ContainerRuntimeStatus], seconds: float) -> None:
        ids, deadline = {run.id for run in runs}, self._clock.monotonic() + seconds
        while True:
            status = self._observer.status(uid)
            if status is None or not any(run.running for run in status.containers if run.id in ids):
                return
            if status.sandbox is None or not status.sandbox.ready:
                raise ShimGone(f"the shim of pod {uid} went away while its containers were ended")
            for run in status.containers:
                if run.id in ids and run.running and not is_alive(run.pid, run.start_ticks):
                    self._learn(uid, run)
            if self._clock.monotonic() > deadline:
                raise RuntimeProblem(f"containers of pod {uid} do not end: {', '.join(run.name for run in runs)}")
            self._clock.sleep(_LOOK_EVERY_S)

    def _learn(self, uid: PodUid, run: ContainerRuntimeStatus) -> None:
        """Ask the shim how a run ended, because it cannot record that on a full disk."""
        # It may not have noticed the end yet. With a shorter grace time, the end would count as a kill.
        reply = call(self._folders.of(uid).root, {"op": "stop", "id": run.id, "grace_s": _A_DAY_S})
        if record := reply.get("run"):
            self._observer.learn(uid, record)

    def _report_exceeded(
        self, pod: Pod | None, status: PodRuntimeStatus, runs: Sequence[ContainerRuntimeStatus]
    ) -> None:
        now = self._observer.status(status.uid)
        ids = {run.id for run in runs}
        for run in now.containers if now else ():
            if run.id in ids and run.grace_exceeded:
                message = f"Container {run.name} did not end within its grace period and was killed."
                self._events.event(_about(pod, status, run.name), WARNING, "ExceededGracePeriod", message)


def _container(pod: Pod, name: str) -> Container | None:
    return next(
        (container for container in (*pod.spec.containers, *pod.spec.init_containers) if container.name == name), None
    )


def _about(pod: Pod | None, status: PodRuntimeStatus, name: str) -> ObjectReference:
    if pod is not None:
        return about_container(pod, name)
    return about(status.namespace, status.name, status.uid, f"spec.containers{{{name}}}")
