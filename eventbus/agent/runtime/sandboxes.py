"""Makes and ends the sandboxes of pods, their folders and shims; cleans up after dead shims."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Final

from eventbus.agent.runtime.contract import (
    CONTAINER_STATUS_UNKNOWN,
    PodRuntimeStatus,
    PodUid,
    RuntimeProblem,
    ShimGone,
)
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.observed import UNKNOWN_EXIT_CODE, Observer
from eventbus.agent.runtime.pod_facts import sandbox_hash
from eventbus.agent.runtime.shim_client import Zygote, call
from eventbus.agent.shim.procfs import Process, all_processes, boot_id, descendants, is_alive, mark_of
from eventbus.agent.shim.state import (
    EXITED,
    FORMAT,
    RUNNING,
    Sandbox,
    State,
    is_this_boot,
    read_state,
    write_state,
)
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock

_LOOK_EVERY_S: Final = 0.01
_SHIM_ENDS_S: Final = 5.0
#: The longest wait for a shim that stands still when haste is needed, seconds.
HURRY_S: Final = 1.0


class Sandboxes:
    """Makes and ends sandboxes. Calls about one pod come from one thread."""

    def __init__(self, *, folders: PodFolders, observer: Observer, zygote: Zygote, clock: Clock) -> None:
        self._folders = folders
        self._observer = observer
        self._zygote = zygote
        self._clock = clock

    def create(self, pod: Pod, attempt: int) -> None:
        """Make the folder and start the shim. Nothing of the pod runs. Raises: RuntimeProblem.  OSError."""
        metadata, folder = pod.metadata, self._folders.of(PodUid(pod.metadata.uid))
        folder.make()
        former = self._observer.state(PodUid(metadata.uid))
        sandbox = Sandbox(attempt=attempt, hash=sandbox_hash(pod), created_at=time.time(), shim_pid=0, shim_ticks=0)
        state = State(
            format=FORMAT,
            boot_id=boot_id(),
            uid=metadata.uid,
            name=metadata.name,
            namespace=metadata.namespace,
            sandbox=sandbox,
            runs=former["runs"] if former else [],
        )
        self._zygote.fork(folder.root, state)

    def end(self, uid: PodUid) -> None:
        """End the shim of a pod without running containers. Raises: RuntimeProblem: it does not end."""
        state = self._observer.state(uid)
        if state is None:
            return
        sandbox, deadline = state["sandbox"], self._clock.monotonic() + _SHIM_ENDS_S
        try:
            call(self._folders.of(uid).root, {"op": "exit"})
        except ShimGone:
            deadline = 0.0
        while is_alive(sandbox["shim_pid"], sandbox["shim_ticks"]) and self._clock.monotonic() < deadline:
            self._clock.sleep(_LOOK_EVERY_S)
        kill_shim(state, self._clock)

    def kill_at_once(self) -> None:
        """Kill the processes of all pods, and have their shims end after that; waits for neither. Takes no lock."""
        for uid in self._folders.uids():
            folder = self._folders.of(uid).root
            state = read_state(str(folder))
            if state is None or not is_this_boot(state):
                continue
            has_shim = is_alive(state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"])
            for run in state["runs"]:
                if run["phase"] == RUNNING and has_shim:
                    with contextlib.suppress(RuntimeProblem):  # it stands still: it is killed below
                        call(folder, {"op": "stop", "id": run["id"], "grace_s": 0.0}, HURRY_S)
                elif run["phase"] == RUNNING and is_alive(run["pid"], run["start_ticks"]):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(run["pid"], signal.SIGKILL)
            if has_shim:
                send_signal(state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"], signal.SIGTERM)

    def kill_without_shim(self, uid: PodUid, grace_s: float) -> None:
        """End all processes of a pod without its shim's help, and write down that their exit codes are unknown.

        Raises: RuntimeProblem: a process does not end.
        """
        state = self._observer.state(uid)
        if state is None:
            return
        kill_shim(state, self._clock)
        if not end_leftovers(state, str(self._folders.of(uid).root), grace_s, self._clock):
            raise RuntimeProblem(f"processes of pod {state['namespace']}/{state['name']} cannot be killed")
        self._settle(uid)

    def _settle(self, uid: PodUid) -> None:
        """Keep, for later agents, that runs were lost: their shim cannot write it any more."""
        state, status = self._observer.state(uid), self._observer.status(uid)
        if state is None or status is None:
            return
        lost = {str(run.id): run for run in status.containers if run.reason == CONTAINER_STATUS_UNKNOWN}
        runs = []
        for run in state["runs"]:
            record = run.copy()
            if (lost_run := lost.get(run["id"])) and run["phase"] != EXITED:
                record["phase"], record["exit_code"] = EXITED, UNKNOWN_EXIT_CODE
                record["reason"], record["message"] = lost_run.reason, lost_run.message
                record["finished_at"] = lost_run.finished_at.timestamp() if lost_run.finished_at else time.time()
            runs.append(record)
        changed = state.copy()
        changed["runs"] = runs
        with contextlib.suppress(OSError):  # the disk is full; a later agent finds it again
            write_state(str(self._folders.of(uid).root), changed)


def shim_is_dead(status: PodRuntimeStatus) -> bool:
    """Return True if processes of a pod may run without a shim."""
    return status.sandbox is None or not status.sandbox.ready


#: Pauses between two searches of all processes: the first, the factor, the longest.
_FIRST_LOOK_S, _LONGER, _MOST_LOOK_S = 0.02, 1.5, 1.0
#: The longest wait for killed processes: a process may hang in the kernel.
_GONE_WITHIN_S = 5.0


def leftovers(state: State, folder: str) -> list[Process]:
    """Return the processes of the pod in *folder* that run without a shim: its runs and their descendants."""
    if not is_this_boot(state):
        return []
    processes = all_processes()
    by_pid = {process.pid: process for process in processes}
    left: dict[int, Process] = {}
    for run in state["runs"]:
        process = by_pid.get(run["pid"])
        if run["phase"] != EXITED and process and process.start_ticks == run["start_ticks"] and not process.gone:
            left[process.pid] = process
            left |= {below.pid: below for below in descendants(process.pid, processes)}
    # Those that left their session and lost their parents carry the run's mark still.
    begin, end = f"{state['uid']}/", f" {folder}"
    marks = {process: mark_of(process.pid) for process in processes if not process.gone}
    left |= {process.pid: process for process, mark in marks.items() if mark.startswith(begin) and mark.endswith(end)}
    left.pop(state["sandbox"]["shim_pid"], None)
    return list(left.values())


def end_leftovers(state: State, folder: str, grace_s: float, clock: Clock) -> bool:
    """End them: SIGTERM, after *grace_s* SIGKILL. Returns: whether all have ended."""
    _signal(leftovers(state, folder), signal.SIGTERM)
    left = _look(state, folder, grace_s, clock)
    if left:
        left = _look(state, folder, _GONE_WITHIN_S, clock, signal.SIGKILL)
    return not left


def _look(
    state: State, folder: str, seconds: float, clock: Clock, number: signal.Signals | None = None
) -> list[Process]:
    """Wait for the remaining processes, and send them *number* each time. Returns: the processes that did not end."""
    deadline, pause_s = clock.monotonic() + seconds, _FIRST_LOOK_S
    while (left := leftovers(state, folder)) and (left_s := deadline - clock.monotonic()) > 0:
        if number is not None:
            _signal(left, number)
        clock.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * _LONGER, _MOST_LOOK_S)
    return left


def kill_shim(state: State, clock: Clock) -> None:
    """Kill a shim that does not answer, if it is still that process. Raises: RuntimeProblem: it hangs in the kernel."""
    if not is_this_boot(state):
        return
    pid, ticks = state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"]
    deadline = clock.monotonic() + _GONE_WITHIN_S
    while is_alive(pid, ticks):
        if clock.monotonic() > deadline:
            raise RuntimeProblem(f"the shim of pod {state['namespace']}/{state['name']}, pid {pid}, cannot be killed")
        send_signal(pid, ticks, signal.SIGKILL)
        clock.sleep(_FIRST_LOOK_S)


def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(PermissionError):
            send_signal(process.pid, process.start_ticks, number)


def send_signal(pid: int, start_ticks: int, number: signal.Signals) -> None:
    """Send a signal to that process, if it runs. Raises: OSError: it may not be sent.

    A pidfd always means the same process. A pid could be reused after the check.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(pid, start_ticks):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)
