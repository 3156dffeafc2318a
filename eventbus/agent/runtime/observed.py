"""Reads the state of all pods: their state files, compared with the processes that exist."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import NamedTuple

from eventbus.agent.runtime.contract import (
    CONTAINER_STATUS_UNKNOWN,
    ContainerId,
    ContainerPhase,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUid,
    SandboxStatus,
)
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.shim.procfs import is_alive
from eventbus.agent.shim.state import CREATED, EXITED, RUNNING, STATE, Run, State, is_this_boot, read_state
from eventbus.util.clock import Clock

_LOST = "the exit code is not known: no shim watched it when it ended"
_NEVER_RAN = "it was made and not started: its shim died in between"
#: The exit code of a run without a known one, as in the kubelet.
UNKNOWN_EXIT_CODE = 137


class _Read(NamedTuple):
    """A state file as it was read. *status*: its pod's status while the shim lived; the shim alone changes it.

    *stamp*: None: the file was removed while its shim lives.
    """

    stamp: tuple[int, int, int] | None
    state: State
    status: PodRuntimeStatus | None = None


class Observer:
    """Reads the state of pods. A file that did not change is not read again. Any thread."""

    def __init__(self, folders: PodFolders, clock: Clock) -> None:
        self._folders = folders
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[PodUid, _Read] = {}
        self._paths: dict[PodUid, str] = {}
        self._lost_at: dict[str, datetime] = {}  # runs that ended without a shim → when that was found
        self._learned: dict[PodUid, dict[str, Run]] = {}  # ends that shims have said and could not write down

    def pods(self) -> list[PodRuntimeStatus]:
        """Return all pods with a state."""
        uids = list(self._folders.uids())
        for gone in self._paths.keys() - set(uids):
            if self._read(gone) is not None:
                uids.append(gone)  # its shim lives, and must be known to be ended
            else:
                self.forget(gone)
        return [status for uid in uids if (status := self.status(uid)) is not None]

    def status(self, uid: PodUid) -> PodRuntimeStatus | None:
        """Return one of them, as it is now: the same object as before, if it has not changed."""
        read = self._read(uid)
        if read is None:
            return None
        # A shim without its files is of no use: it cannot be reached, and it cannot write down an end.
        ready = read.stamp is not None and _has_shim(read.state)
        if ready and read.status is not None:
            return read.status
        status = self._status_of(read.state, ready=ready)
        if ready:
            with self._lock:
                self._known[uid] = read._replace(status=status)
        return status

    def state(self, uid: PodUid) -> State | None:
        """Return the written state of a pod. Do not change it."""
        read = self._read(uid)
        return read.state if read is not None else None

    def learn(self, uid: PodUid, run: Run) -> None:
        """Use a shim's report that a run has ended, until the state file has it."""
        if run["phase"] == EXITED:
            with self._lock:
                self._learned.setdefault(uid, {})[run["id"]] = run
                self._known.pop(uid, None)

    def forget(self, uid: PodUid) -> None:
        """Forget a pod with a removed folder: a later one of that uid has runs of the same ids."""
        with self._lock:
            self._forget(uid)

    def _forget(self, uid: PodUid) -> None:
        for cache in (self._known, self._paths, self._learned):
            cache.pop(uid, None)
        self._lost_at = {id: at for id, at in self._lost_at.items() if not id.startswith(f"{uid}/")}

    def _read(self, uid: PodUid) -> _Read | None:
        folder = self._folder(uid)
        stamp = _stamp(folder)
        with self._lock:
            known = self._known.get(uid)
        if stamp is None:
            return _Read(None, known.state) if known is not None and _has_shim(known.state) else None
        if known is not None and known.stamp == stamp:
            return known
        state = read_state(folder)
        if state is None:
            return None
        with self._lock:
            learned = self._learned.get(uid, {})
            state["runs"] = [run if run["phase"] == EXITED else learned.get(run["id"], run) for run in state["runs"]]
            read = self._known[uid] = _Read(stamp, state)
        return read

    def _folder(self, uid: PodUid) -> str:
        """The path as a string, made once: a hundred pods are looked at every second."""
        path = self._paths.get(uid)
        if path is None:
            path = self._paths[uid] = str(self._folders.of(uid).root)
        return path

    def _status_of(self, state: State, *, ready: bool) -> PodRuntimeStatus:
        sandbox, booted = state["sandbox"], is_this_boot(state)
        runs = sorted(state["runs"], key=lambda run: (run["name"], -run["attempt"]))
        return PodRuntimeStatus(
            uid=PodUid(state["uid"]),
            name=state["name"],
            namespace=state["namespace"],
            sandbox=SandboxStatus(
                attempt=sandbox["attempt"],
                ready=ready,
                hash=sandbox["hash"],
                shim_pid=sandbox["shim_pid"],
                created_at=_time(sandbox["created_at"]),
            ),
            containers=tuple(self._container(run, ready=ready, booted=booted) for run in runs),
        )

    def _container(self, run: Run, *, ready: bool, booted: bool) -> ContainerRuntimeStatus:
        # While its shim lives, only the shim decides: it may be about to record the end.
        lost = not ready and (
            run["phase"] == CREATED
            or (run["phase"] == RUNNING and not (booted and is_alive(run["pid"], run["start_ticks"])))
        )
        finished, exit_code, reason, message = (
            _time(run["finished_at"]),
            run["exit_code"],
            run["reason"],
            run["message"],
        )
        if lost:
            with self._lock:
                finished = self._lost_at.setdefault(run["id"], datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC))
            exit_code, reason = UNKNOWN_EXIT_CODE, CONTAINER_STATUS_UNKNOWN
            message = _NEVER_RAN if run["phase"] == CREATED else _LOST
        return ContainerRuntimeStatus(
            id=ContainerId(run["id"]),
            name=run["name"],
            attempt=run["attempt"],
            init=run["init"],
            phase=ContainerPhase(EXITED if lost else run["phase"]),
            hash=run["hash"],
            image=run["image"],
            pid=run["pid"],
            start_ticks=run["start_ticks"],
            created_at=_time(run["created_at"]),
            started_at=_time(run["started_at"]),
            finished_at=finished,
            exit_code=exit_code,
            signal=run["signal"],
            reason=reason,
            message=message,
            grace_exceeded=run["grace_exceeded"],
        )


def _has_shim(state: State) -> bool:
    sandbox = state["sandbox"]
    return is_this_boot(state) and is_alive(sandbox["shim_pid"], sandbox["shim_ticks"])


def _stamp(folder: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(f"{folder}/{STATE}")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _time(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
