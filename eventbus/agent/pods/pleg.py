"""PLEG, the pod lifecycle event generator: relists all pods every second and reports the differences.

Source: kubelet `pleg/generic.go`. A pidfd of each process only shortens the delay; the list decides.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from eventbus.agent.runtime.contract import (
    Change,
    ContainerPhase,
    PodLifecycleEvent,
    PodRuntimeStatus,
    PodUid,
    ReportChange,
)
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.agent.shim.procfs import read_process
from eventbus.util.clock import Clock
from eventbus.util.log import log

RELIST_EVERY_S: Final = 1.0
#: The kubelet's relistThreshold.
DEAD_AFTER_S: Final = 180.0
#: A process has ended; its shim writes that down a moment later. So often is looked, seconds.
_SOON_S: Final = (0.003, 0.01, 0.03, 0.1)


class _Record(NamedTuple):
    """A pod as the last relist saw it."""

    sandbox: tuple[int, bool] | None
    runs: dict[str, tuple[str, ContainerPhase]]  #: id → name, phase


class Pleg:
    """Relists all processes every second, and reports differences, in a thread of its own.

    If the channel is full, the next relist reports the differences.
    """

    def __init__(
        self, runtime: ProcessRuntime, report: ReportChange, clock: Clock, every_s: float = RELIST_EVERY_S
    ) -> None:
        self._runtime = runtime
        self._report = report
        self._clock = clock
        self._every_s = every_s
        self._records: dict[PodUid, _Record] = {}
        self._reported: dict[PodUid, PodRuntimeStatus] = {}
        self._watched = _ProcessWatch()
        self._thread = threading.Thread(target=self._run, name="eventbus-pleg", daemon=True)
        self._stopping = threading.Event()
        self._last_relist = clock.monotonic()
        self.unreported = 0

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End. Idempotent."""
        self._stopping.set()
        self._watched.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._watched.close()

    def problem(self) -> str:
        """Return "" while it relists; else that the last relist was over 3 min ago. Any thread."""
        silent_s = self._clock.monotonic() - self._last_relist
        if silent_s <= DEAD_AFTER_S:
            return ""
        return f"pleg was last seen active {silent_s:.0f}s ago; threshold is {DEAD_AFTER_S:.0f}s"

    def relist(self) -> None:
        """Look at all pods once and report the differences. Any error of the runtime is logged and counted."""
        try:
            pods = self._runtime.pods()
        except Exception:
            log.exception("the pods of this machine cannot be listed")
            return
        # The same object means that the pod has not changed.
        changed = [pod for pod in pods if self._reported.get(pod.uid) is not pod]
        gone = self._records.keys() - {pod.uid for pod in pods}
        for pod in changed:
            if self._compare(pod.uid, _record_of(pod)):
                self._reported[pod.uid] = pod
        for uid in gone:
            self._compare(uid, None)
        if changed or gone:
            self._watched.watch(pods)
        self._last_relist = self._clock.monotonic()

    def _compare(self, uid: PodUid, now: _Record | None) -> bool:
        """Report the differences. Returns: True: there was room for all of them."""
        before = self._records.get(uid)
        if now == before:
            return True
        accepted = [self._report(event) for event in _differences(uid, before, now)]
        if not all(accepted):
            self.unreported += accepted.count(False)
            return False
        if now is None:
            del self._records[uid]
            self._reported.pop(uid, None)
        else:
            self._records[uid] = now
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.relist()
            if self._watched.wait(self._every_s):
                for pause_s in _SOON_S:
                    if not self._stopping.wait(pause_s):
                        self.relist()


class _ProcessWatch:
    """Waits for the end of processes, by their pidfds. One thread uses it; `wake` is any thread's."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._open: dict[tuple[int, int], int] = {}  # pid and start time → pidfd; -1: it cannot be had
        self._read_end, self._write_end = os.pipe()
        self._poll.register(self._read_end, select.POLLIN)

    def watch(self, pods: Sequence[PodRuntimeStatus]) -> None:
        """Watch the processes that run in *pods*, and no others."""
        wanted = {(run.pid, run.start_ticks) for pod in pods for run in pod.containers if run.running}
        for gone in self._open.keys() - wanted:
            self._forget(gone)
        for process in wanted - self._open.keys():
            self._open[process] = _pidfd(*process)
            if self._open[process] >= 0:
                self._poll.register(self._open[process], select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait until a process ends or *seconds* are over. Returns: whether one did."""
        ready = [descriptor for descriptor, _ in self._poll.poll(seconds * 1000)]
        for process, descriptor in list(self._open.items()):
            if descriptor in ready:  # it stays ready for ever
                self._poll.unregister(descriptor)
                os.close(descriptor)
                self._open[process] = -1
        return bool(ready)

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"!")

    def close(self) -> None:
        """Let all descriptors go. Idempotent."""
        for process in list(self._open):
            self._forget(process)
        for descriptor in (self._read_end, self._write_end):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._read_end = self._write_end = -1

    def _forget(self, process: tuple[int, int]) -> None:
        descriptor = self._open.pop(process)
        if descriptor >= 0:
            self._poll.unregister(descriptor)
            os.close(descriptor)


def _pidfd(pid: int, start_ticks: int) -> int:
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):  # gone already, an old kernel, no more descriptors: the relist will see it
        return -1
    process = read_process(pid)
    if process is None or process.start_ticks != start_ticks:
        os.close(descriptor)
        return -1
    return descriptor


def _record_of(pod: PodRuntimeStatus) -> _Record:
    sandbox = None if pod.sandbox is None else (pod.sandbox.attempt, pod.sandbox.ready)
    return _Record(sandbox, {run.id: (run.name, run.phase) for run in pod.containers})


def _differences(uid: PodUid, before: _Record | None, now: _Record | None) -> Iterator[PodLifecycleEvent]:
    former = before.runs if before else {}
    latter = now.runs if now else {}
    for id in former.keys() | latter.keys():
        old, new = former.get(id), latter.get(id)
        if old == new:
            continue
        if new is None:
            assert old is not None
            # A run that makes room for a newer one is no news.
            if now is None:
                yield PodLifecycleEvent(uid, Change.CONTAINER_REMOVED, old[0])
        elif new[1] is ContainerPhase.RUNNING:
            yield PodLifecycleEvent(uid, Change.CONTAINER_STARTED, new[0])
        elif new[1] is ContainerPhase.EXITED:
            yield PodLifecycleEvent(uid, Change.CONTAINER_DIED, new[0])
    if (before.sandbox if before else None) != (now.sandbox if now else None):
        yield PodLifecycleEvent(uid, Change.CONTAINER_CHANGED)
