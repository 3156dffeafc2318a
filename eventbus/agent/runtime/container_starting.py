"""Starts one container: its back-off, artifact, process and post-start hook, each with its event.

Source: kubelet `kuberuntime_container.go` startContainer, `images/image_manager.go`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from eventbus.agent.runtime.artifacts import ArtifactProblem, Artifacts
from eventbus.agent.runtime.ask_container import Answer, ExecIn, ask
from eventbus.agent.runtime.contract import (
    CRASH_LOOP_BACK_OFF,
    CREATE_CONTAINER_CONFIG_ERROR,
    ERR_IMAGE_NEVER_PULL,
    ERR_IMAGE_PULL,
    IMAGE_PULL_BACK_OFF,
    INVALID_IMAGE_NAME,
    POST_START_HOOK_ERROR,
    RUN_CONTAINER_ERROR,
    START_ERROR,
    CommandNotFound,
    ContainerRuntimeStatus,
    PodEvents,
    PodRuntimeStatus,
    PodUid,
    RuntimeProblem,
    ShimGone,
    StartFailure,
)
from eventbus.agent.runtime.folders import PodFolders, make_folder
from eventbus.agent.runtime.pod_facts import about_container, container_hash, pod_name
from eventbus.agent.runtime.process_spec import ProcessMaker
from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.agent.runtime.shim_client import call
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.text import printable

#: The limit of a post-start hook, which would block its pod's worker. The kubelet has no limit. Seconds.
POST_START_S: Final = 120.0
#: Seconds between two checks if the pod is still wanted, while its hook runs.
_LOOK_EVERY_S: Final = 0.1


class ContainerStarter:
    """Starts containers. Calls about one pod come from one thread.

    Args: kill: ends a container after its post-start hook failed: pod, name of the container, reason.
    """

    def __init__(
        self,
        *,
        folders: PodFolders,
        processes: ProcessMaker,
        artifacts: Artifacts,
        backoff: RestartBackoff,
        events: PodEvents,
        clock: Clock,
        exec_in: ExecIn,
        kill: Callable[[Pod, str, str], object],
    ) -> None:
        self._folders = folders
        self._processes = processes
        self._artifacts = artifacts
        self._backoff = backoff
        self._events = events
        self._clock = clock
        self._exec_in = exec_in
        self._kill = kill
        self._failed_pulls: dict[str, float] = {}  #: key of the back-off → when, seconds since 1970

    def start(
        self,
        pod: Pod,
        container: Container,
        status: PodRuntimeStatus,
        *,
        init: bool,
        wanted: Callable[[], bool] = lambda: True,
    ) -> StartFailure | None:
        """Start *container* in the pod's sandbox. Returns: the reason why it does not run; None: it runs.

        Waits for its post-start hook only while *wanted* returns True.
        """
        run = status.container(container.name)
        if waits := self._back_off(pod, container, run):
            return waits
        if problem := self._make_present(pod, container):
            return problem
        try:
            process = self._processes.make(pod, container)
        except CommandNotFound as error:
            return self._failed(pod, container, RUN_CONTAINER_ERROR, str(error))
        except (RuntimeProblem, OSError) as error:
            return self._failed(pod, container, CREATE_CONTAINER_CONFIG_ERROR, str(error))
        attempt = 0 if run is None else run.attempt + 1
        failpoint("container:start", container.name.encode())
        try:
            started = self._run(pod, container, attempt, init=init, process=process)
        except ShimGone:
            raise
        except (RuntimeProblem, OSError) as error:  # no room on the disk, or for another process
            return self._failed(pod, container, RUN_CONTAINER_ERROR, str(error))
        failpoint("container:started", container.name.encode())
        self._event(pod, container, NORMAL, "Created", f"Created container: {container.name}")
        if started["reason"] == START_ERROR:
            return self._failed(pod, container, RUN_CONTAINER_ERROR, started["message"], retry_s=0.0)
        self._event(pod, container, NORMAL, "Started", f"Started container {container.name}")
        return self._post_start(pod, container, wanted)

    def _run(self, pod: Pod, container: Container, attempt: int, *, init: bool, process: Any) -> dict[str, Any]:
        folder = self._folders.of(PodUid(pod.metadata.uid))
        log = folder.log(container.name, attempt)
        make_folder(log.parent)
        run = {
            "id": f"{pod.metadata.uid}/{container.name}/{attempt}",
            "name": container.name,
            "attempt": attempt,
            "init": init,
            "hash": container_hash(container),
            "image": container.image,
            "grace_s": float(pod.spec.termination_grace_period_seconds),
            "log": str(log),
            "cgroup": process["cgroup"],
        }
        reply: dict[str, Any] = call(folder.root, {"op": "start", "run": run, "process": process})["run"]
        with suppress(OSError):  # the next start tries again
            folder.remove_old_logs(container.name, attempt)
        return reply

    def _back_off(self, pod: Pod, container: Container, run: ContainerRuntimeStatus | None) -> StartFailure | None:
        """Return a failure while the back-off after a crash lasts; None: it is over. Source: kubelet doBackOff."""
        if run is None or run.finished_at is None:
            return None
        key, ended_s = self._key(pod, container), run.finished_at.timestamp()
        left_s = self._backoff.left_s(key, ended_s)
        if left_s <= 0:
            self._backoff.next(key, ended_s)
            return None
        named = pod_name(pod)
        text = f"Back-off restarting failed container {container.name} in pod {named}"
        self._event(pod, container, WARNING, "BackOff", text)
        pause = _go_duration(self._backoff.pause_s(key))
        message = f"back-off {pause} restarting failed container={container.name} pod={named}"
        return StartFailure(CRASH_LOOP_BACK_OFF, message, left_s)

    def _make_present(self, pod: Pod, container: Container) -> StartFailure | None:
        """Have its artifact unpacked. Source: image_manager.go EnsureImageExists."""
        image, key = container.image, self._image_key(pod, container)
        if left_s := self._backoff.left_s(key, self._failed_pulls.get(key, 0.0)):
            self._event(pod, container, NORMAL, "BackOff", f'Back-off pulling image "{image}"')
            return StartFailure(IMAGE_PULL_BACK_OFF, f'Back-off pulling image "{image}"', left_s)
        began_s = self._clock.monotonic()
        try:
            pulled = self._artifacts.ensure(
                container, lambda: self._event(pod, container, NORMAL, "Pulling", f'Pulling image "{image}"')
            )
        except ArtifactProblem as problem:
            return self._not_present(pod, container, problem)
        if pulled:
            took = _go_duration(self._clock.monotonic() - began_s)
            self._event(pod, container, NORMAL, "Pulled", f'Successfully pulled image "{image}" in {took}')
        elif self._artifacts.archive_of(container):
            self._event(pod, container, NORMAL, "Pulled", f'Container image "{image}" already present on machine')
        return None

    def _not_present(self, pod: Pod, container: Container, problem: ArtifactProblem) -> StartFailure:
        reason, message = problem.reason, str(problem)
        if reason == ERR_IMAGE_PULL:  # the image may be there at the next try
            key, now_s = self._image_key(pod, container), self._clock.time_ns() / 1e9
            self._failed_pulls[key] = now_s
            self._backoff.next(key, now_s)
            self._event(pod, container, WARNING, "Failed", f'Failed to pull image "{container.image}": {message}')
        else:
            event_reason = {ERR_IMAGE_NEVER_PULL: ERR_IMAGE_NEVER_PULL, INVALID_IMAGE_NAME: "InspectFailed"}[reason]
            self._event(pod, container, WARNING, event_reason, message)
        self._event(pod, container, WARNING, "Failed", f"Error: {reason}")
        return StartFailure(reason, message, self._backoff.pause_s(self._image_key(pod, container)) or None)

    def _post_start(self, pod: Pod, container: Container, wanted: Callable[[], bool]) -> StartFailure | None:
        hook = container.lifecycle and container.lifecycle.post_start
        if not hook:
            return None
        answers: list[Answer] = []
        uid = PodUid(pod.metadata.uid)

        def run() -> None:
            answers.append(ask(self._exec_in, uid, container, hook, POST_START_S))

        hanging = threading.Thread(target=run, name=f"eventbus-hook-{uid[:8]}", daemon=True)
        hanging.start()
        while hanging.is_alive() and wanted():
            hanging.join(_LOOK_EVERY_S)
        if not answers:  # the thread may be left: its command ends with the container, which is ended next
            return StartFailure(POST_START_HOOK_ERROR, "the pod is ended before its hook was done", 0.0)
        [answer] = answers
        if answer.ok:
            return None
        self._event(pod, container, WARNING, "FailedPostStartHook", f"PostStartHook failed: {answer.text}")
        self._kill(pod, container.name, "FailedPostStartHook")
        return StartFailure(POST_START_HOOK_ERROR, answer.text, 0.0)

    def _failed(
        self, pod: Pod, container: Container, reason: str, problem: str, retry_s: float | None = None
    ) -> StartFailure:
        self._event(pod, container, WARNING, "Failed", f"Error: {problem}")
        return StartFailure(reason, problem, retry_s)

    def _event(self, pod: Pod, container: Container, type: str, reason: str, message: str) -> None:
        self._events.event(about_container(pod, container.name), type, reason, printable(message))

    def _image_key(self, pod: Pod, container: Container) -> str:
        return f"{pod.metadata.uid}/{container.name}@{container.image}"

    def _key(self, pod: Pod, container: Container) -> str:
        return f"{pod.metadata.uid}/{container.name}/{container_hash(container)}"


def _go_duration(seconds: float) -> str:
    """Format a duration as Go does: `10s`, `2m40s`, `300ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
