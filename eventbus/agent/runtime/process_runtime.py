"""The runtime: starts and ends pods as plain processes (`sync_pod`, `kill_pod`), in the order of SyncPod.

A sandbox is a pod's folder and its shim, the parent process of its containers. The zygote forks the shims.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from eventbus.agent.runtime.artifacts import Artifacts
from eventbus.agent.runtime.container_killing import ContainerKiller
from eventbus.agent.runtime.container_starting import ContainerStarter
from eventbus.agent.runtime.contract import (
    ConfigSource,
    ContainerId,
    ExecResult,
    PodEvents,
    PodRuntimeStatus,
    PodUid,
    RuntimeProblem,
    ShimGone,
    StartFailure,
    SyncResult,
)
from eventbus.agent.runtime.environment import EnvironmentMaker
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.isolation import Isolation, find_isolation
from eventbus.agent.runtime.observed import Observer
from eventbus.agent.runtime.pod_actions import PodActions, pod_actions
from eventbus.agent.runtime.pod_facts import about_pod
from eventbus.agent.runtime.process_spec import ProcessMaker
from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.agent.runtime.sandboxes import HURRY_S, Sandboxes, leftovers, shim_is_dead
from eventbus.agent.runtime.shim_client import ANSWER_S, Zygote, call
from eventbus.agent.runtime.volumes import PodVolumes
from eventbus.model.frozen import EMPTY
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint

#: Seconds between two collections of unused archives.
COLLECT_EVERY_S: Final = 60.0


class ProcessRuntime:
    """Runs pods. Calls about one pod come from that pod's worker alone, those marked * from any thread.

    After any crash, the next agent finds the running pods by the files in *state_dir*.

    Args: state_dir: ours alone, made when it is missing.
          facts: values for `fieldRef` that are not in the Pod, such as the name of the node.
          isolation: None: the best one of this system.
          zygote: forks the shims; `close` ends it.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        events: PodEvents,
        configs: ConfigSource,
        clock: Clock,
        facts: Mapping[str, str] = EMPTY,
        isolation: Isolation | None = None,
        backoff: RestartBackoff | None = None,
        zygote: Zygote | None = None,
    ) -> None:
        self._isolation = isolation or find_isolation()
        self._events = events
        self._folders = PodFolders(state_dir.absolute())
        self._observer = Observer(self._folders, clock)
        self._zygote = zygote or Zygote()
        self._backoff = backoff or RestartBackoff(clock)
        self._must_restart: set[ContainerId] = set()
        self._restart_lock = threading.Lock()  # workers of pods add while the loop forgets
        self.volumes = PodVolumes(self._folders, configs)
        self._sandboxes = Sandboxes(folders=self._folders, observer=self._observer, zygote=self._zygote, clock=clock)
        self._killer = ContainerKiller(
            folders=self._folders, observer=self._observer, events=events, clock=clock, exec_in=self.exec_in
        )
        self._clock, self._collect_at = clock, clock.monotonic()
        artifacts = self._artifacts = Artifacts(state_dir.absolute())
        self._starter = ContainerStarter(
            folders=self._folders,
            processes=ProcessMaker(
                folders=self._folders,
                volumes=self.volumes,
                environments=EnvironmentMaker(configs, facts),
                artifacts=artifacts,
                isolation=self._isolation,
            ),
            artifacts=artifacts,
            backoff=self._backoff,
            events=events,
            clock=clock,
            exec_in=self.exec_in,
            kill=self.kill_container,
        )

    def pods(self) -> Sequence[PodRuntimeStatus]:
        """* Return all pods with any traces, running or not. Reads files and /proc; asks no shim, never blocks."""
        return self._observer.pods()

    def status(self, uid: PodUid) -> PodRuntimeStatus | None:
        """* Return one of them, as it is now."""
        return self._observer.status(uid)

    def sync_pod(self, pod: Pod, *, wanted: Callable[[], bool] = lambda: True) -> SyncResult:
        """Bring the pod's processes to the state of *pod*, with events.

        Kills changed containers, makes the sandbox (`SandboxChanged`), then starts init containers one by one and the
        containers, each after its artifact (`Pulling` …), with back-off (`BackOff`) and hooks. The restart policy
        decides whether a container that ended is started again. Its volumes must be there (`PodVolumes.mount`).
        Blocks for post-start hooks, artifacts and pre-stop hooks; never for an init container: call again when
        it has ended. Safe to call again after any error or crash.

        Args:   wanted: called repeatedly; False: the pod is to be ended, so no container is started or waited for.
        Source: kubelet `kuberuntime_manager.go` SyncPod.
        """
        uid = PodUid(pod.metadata.uid)
        status = self.status(uid)
        actions = pod_actions(pod, status, self._must_restart)
        if actions.kill_pod or actions.create_sandbox:
            if actions.create_sandbox and status is not None and status.sandbox is not None:
                message = "Pod sandbox changed, it will be killed and re-created."
                self._events.event(about_pod(pod), NORMAL, "SandboxChanged", message)
            self.kill_pod(uid, pod)
        elif actions.kill and status is not None:
            self._kill(pod, status, actions.kill)
        failpoint("pod:killed")
        if actions.create_sandbox and (problem := self._create_sandbox(pod, actions)):
            return SyncResult(sandbox_failure=problem)
        failpoint("pod:sandbox")
        return SyncResult(waiting=self._start(pod, actions, wanted))

    def kill_pod(self, uid: PodUid, pod: Pod | None, grace_s: float | None = None) -> None:
        """End all its containers at once (`Killing`): pre-stop hook, SIGTERM, grace, SIGKILL; then the shim.

        Blocks until no process of it runs: at most the grace time and a few seconds.

        Args: pod: for hooks and grace; None: the pod is unknown; the grace recorded at its start is used.
              grace_s: instead of the pod's.
        """
        status = self.status(uid)
        if status is None:
            return
        if not shim_is_dead(status):
            try:
                self._killer.kill(pod, status, {run.name: "" for run in status.containers if run.running}, grace_s)
                self._sandboxes.end(uid)
                return
            except ShimGone:
                pass
        self._sandboxes.kill_without_shim(uid, self._shimless_grace_s(pod, grace_s))

    def kill_container(self, pod: Pod, container: str, reason: str) -> None:
        """End one container. *reason* is the message of its `Killing` event.

        The restart policies Always and OnFailure restart it, also if its exit code is 0.
        """
        status = self.status(PodUid(pod.metadata.uid))
        run = status.container(container) if status else None
        if status is not None and run is not None and run.running:
            with self._restart_lock:
                self._must_restart.add(run.id)
            self._kill(pod, status, {container: reason})

    def kill_at_once(self) -> None:
        """* Kill all processes, also those in their grace time, and have the shims end.

        No sandbox is made any more. It takes no lock, so that a signal's handler may call it.
        """
        self._zygote.hang_up()
        self._sandboxes.kill_at_once()

    def hurry(self, uid: PodUid, grace_s: float) -> None:
        """* Limit the grace of a pod's processes to *grace_s*, also if they are being ended. Returns at once."""
        status = self.status(uid)
        for run in status.containers if status is not None else ():
            if run.running:
                with suppress(RuntimeProblem):  # the shim is gone: `kill_pod` ends the rest
                    call(self._folders.of(uid).root, {"op": "stop", "id": run.id, "grace_s": grace_s}, HURRY_S)

    def remove(self, uid: PodUid) -> None:
        """Forget a pod: its folder, volumes, logs, back-off. Raises: RuntimeProblem: a process of it still runs."""
        status, state = self.status(uid), self._observer.state(uid)
        folder = str(self._folders.of(uid).root)
        if status is not None and state is not None and (status.active or leftovers(state, folder)):
            raise RuntimeProblem(f"pod {status.namespace}/{status.name} still runs: kill it first")
        self._isolation.remove(uid)
        self._folders.remove(uid)
        self._observer.forget(uid)
        self._backoff.forget(f"{uid}/")
        with self._restart_lock:
            self._must_restart = {id for id in self._must_restart if not id.startswith(f"{uid}/")}

    def collect(self) -> None:
        """Remove shared files that no pod has used for long. Call it regularly; most calls are quick."""
        now = self._clock.monotonic()
        if now >= self._collect_at:
            self._collect_at = now + COLLECT_EVERY_S
            self._artifacts.collect({run.image for pod in self.pods() for run in pod.containers})

    def exec_in(self, uid: PodUid, container: str, command: Sequence[str], timeout_s: float) -> ExecResult:
        """* Run a command with the environment, user, folder and limits of a running container.

        Raises: RuntimeProblem: it does not run.  CommandNotFound.
        """
        status = self.status(uid)
        run = status.container(container) if status else None
        if run is None or not run.running:
            raise RuntimeProblem(f"container {container} does not run")
        request = {"op": "exec", "id": run.id, "argv": list(command), "timeout_s": timeout_s}
        reply = call(self._folders.of(uid).root, request, timeout_s + ANSWER_S)
        return ExecResult(reply["exit_code"], reply["output"].encode(), reply["timed_out"])

    def close(self) -> None:
        """Let the zygote end; the shims and all processes live on."""
        self._zygote.close()

    def _create_sandbox(self, pod: Pod, actions: PodActions) -> str:
        """Returns: "", or why it could not be made."""
        try:
            self._sandboxes.create(pod, actions.sandbox_attempt)
        except (RuntimeProblem, OSError) as problem:
            message = f"Failed to create pod sandbox: {problem}"
            self._events.event(about_pod(pod), WARNING, "FailedCreatePodSandBox", message)
            return str(problem)
        return ""

    def _start(self, pod: Pod, actions: PodActions, wanted: Callable[[], bool]) -> dict[str, StartFailure]:
        waiting: dict[str, StartFailure] = {}
        init = bool(actions.start_init)
        names = (actions.start_init,) if init else actions.start
        containers = {
            container.name: container for container in (pod.spec.init_containers if init else pod.spec.containers)
        }
        for name in names:
            if not wanted():
                break
            status = self.status(PodUid(pod.metadata.uid))
            assert status is not None
            try:
                failure = self._starter.start(pod, containers[name], status, init=init, wanted=wanted)
            except ShimGone as problem:
                failure = StartFailure("RunContainerError", str(problem), 0.0)
            if failure is not None:
                waiting[name] = failure
        return waiting

    def _kill(self, pod: Pod, status: PodRuntimeStatus, messages: Mapping[str, str]) -> None:
        try:
            self._killer.kill(pod, status, messages)
        except ShimGone:
            self._sandboxes.kill_without_shim(status.uid, self._shimless_grace_s(pod))

    @staticmethod
    def _shimless_grace_s(pod: Pod | None, grace_s: float | None = None) -> float:
        if grace_s is not None:
            return grace_s
        return 30.0 if pod is None else float(pod.spec.termination_grace_period_seconds)
