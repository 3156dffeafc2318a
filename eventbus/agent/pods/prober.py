"""Runs the probes of all pods: one thread schedules them, a pool runs them, and each change is reported.

Source: kubelet `prober/prober_manager.go`, `prober/worker.go`. Departure: a pool of threads instead of one per probe.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from eventbus.agent.runtime.ask_container import ask
from eventbus.agent.runtime.contract import (
    ContainerId,
    ContainerRuntimeStatus,
    PodEvents,
    PodUid,
    ProbeResult,
    ProbeType,
    ReportProbe,
)
from eventbus.agent.runtime.pod_facts import about_container
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.model.objects.cluster import WARNING
from eventbus.model.objects.container import Container, Probe
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Ages, Clock
from eventbus.util.log import log
from eventbus.util.text import printable

#: The result that a container has before its first answer.
_AT_FIRST: Final = {ProbeType.LIVENESS: True, ProbeType.READINESS: False, ProbeType.STARTUP: False}


class ProbeState:
    """Counts the answers of one probe against its thresholds. One thread at a time uses it.

    After a failure that ends the container, it does not probe until the next run.
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

    def note_run(self, run: ContainerRuntimeStatus | None) -> bool:
        """Note the current run. Returns: whether it is another run, so that the result starts again."""
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
        # A first failure is reported also if the result was False before, as that of readiness is.
        first = self.result == ok and not self.message and self._in_a_row == threshold and not ok
        changed = self.result != ok or first
        self.result, self.message = ok, "" if ok else message
        if not ok and self.type is not ProbeType.READINESS:
            self._on_hold, self._in_a_row = True, 0
        return changed


def probes_of(container: Container) -> list[tuple[ProbeType, Probe]]:
    """The probes that a container has."""
    probes = (
        (ProbeType.STARTUP, container.startup_probe),
        (ProbeType.LIVENESS, container.liveness_probe),
        (ProbeType.READINESS, container.readiness_probe),
    )
    return [(type, probe) for type, probe in probes if probe is not None]


#: Probes at the same time; a probe that hangs takes one of these places until its timeout.
MOST_AT_ONCE: Final = 32
#: The longest pause between two looks for runs, seconds: a new run is probed this soon.
LOOK_EVERY_S: Final = 1.0
_REPORT_AGAIN_S: Final = 0.1

_Key = tuple[PodUid, str, ProbeType]


class ProbeManager:
    """Runs the probes of all pods it was given, and reports each change to a `ReportProbe`. Any thread.

    Its own threads begin with the first probe and end with `stop`.
    """

    def __init__(self, *, runtime: ProcessRuntime, report: ReportProbe, events: PodEvents, clock: Clock) -> None:
        self._runtime = runtime
        self._report = report
        self._events = events
        self._clock = clock
        self._ages = Ages(clock)
        self._changed = threading.Condition()
        self._states: dict[_Key, ProbeState] = {}
        self._unreported: list[ProbeResult] = []
        self._pool: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.asked = self.failed = 0

    def add_pod(self, pod: Pod) -> None:
        """Begin to run its probes. Idempotent; only a probe with a changed definition begins again."""
        uid = PodUid(pod.metadata.uid)
        with self._changed:
            wanted = {
                (uid, container.name, type): (container, probe)
                for container in pod.spec.containers
                for type, probe in probes_of(container)
            }
            for key in [key for key in self._states if key[0] == uid and key not in wanted]:
                self._drop(key)
            for key, (container, probe) in wanted.items():
                former = self._states.get(key)
                if former is None or former.container != container:
                    now = self._clock.monotonic()
                    self._states[key] = ProbeState(pod, container, key[2], probe, now)
            if wanted:
                self._begin()
                self._changed.notify()

    def stop_liveness_and_startup(self, uid: PodUid) -> None:
        """The pod is ending: only its readiness is asked from here on."""
        self._drop_all(uid, (ProbeType.LIVENESS, ProbeType.STARTUP))

    def remove_pod(self, uid: PodUid) -> None:
        """Stop all its probes."""
        self._drop_all(uid, tuple(ProbeType))

    def started(self, uid: PodUid, container: Container, status: ContainerRuntimeStatus | None) -> bool:
        """True once its run came up: it runs, and its startup probe, if any, has succeeded."""
        if status is None or not status.running:
            return False
        return container.startup_probe is None or self._succeeds((uid, container.name, ProbeType.STARTUP), status)

    def ready(self, uid: PodUid, container: Container, status: ContainerRuntimeStatus | None) -> bool:
        """True if its run is started, and its readiness probe, if any, succeeds."""
        if not self.started(uid, container, status):
            return False
        assert status is not None
        return container.readiness_probe is None or self._succeeds((uid, container.name, ProbeType.READINESS), status)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End; probes that run are not waited for beyond *timeout_s*. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread:
            self._thread.join(timeout_s)
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _succeeds(self, key: _Key, status: ContainerRuntimeStatus) -> bool:
        with self._changed:
            state = self._states.get(key)
            return state is not None and state.run_id == status.id and state.result

    def _begin(self) -> None:
        if self._thread is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="eventbus-probe")
            self._thread = threading.Thread(target=self._run, name="eventbus-probes", daemon=True)
            self._thread.start()

    def _drop_all(self, uid: PodUid, types: tuple[ProbeType, ...]) -> None:
        with self._changed:
            for key in [key for key in self._states if key[0] == uid and key[2] in types]:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        del self._states[key]
        self._ages.forget(key)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                self._changed.wait(self._pause_s())
                due = self._take_due()
            assert self._pool is not None
            for state in due:
                self._pool.submit(self._work, state)
            self._report_again()

    def _pause_s(self) -> float:
        now = self._clock.monotonic()
        waits = [state.due - now for state in self._states.values() if not state.busy]
        most_s = _REPORT_AGAIN_S if self._unreported else LOOK_EVERY_S
        return max(0.0, min([*waits, most_s]))

    def _take_due(self) -> list[ProbeState]:
        now = self._clock.monotonic()
        due = [state for state in self._states.values() if not state.busy and state.due <= now]
        for state in due:
            state.busy = True
        return due

    def _work(self, state: ProbeState) -> None:
        try:
            self._ask(state)
        except Exception:
            log.exception("a probe of container %s could not be asked", state.container.name)
        finally:
            with self._changed:
                state.busy = False
                asked_late = self._clock.monotonic() - state.due
                # A run that is not there yet is looked for again soon, not after a long period.
                waits_s = state.period_s if state.run_id else min(state.period_s, LOOK_EVERY_S)
                # Periods that were missed are skipped.
                state.due += waits_s * (1 + int(asked_late / waits_s))
                self._changed.notify()

    def _ask(self, state: ProbeState) -> None:
        uid = PodUid(state.pod.metadata.uid)
        status = self._runtime.status(uid)
        run = status.container(state.container.name) if status is not None else None
        with self._changed:
            state.note_run(run if run is not None and run.running else None)
        if run is None or run.started_at is None:
            return
        age_s = self._ages.age_s(state.key, run.started_at.timestamp())
        if not state.wants(run, age_s, started=self.started(uid, state.container, run)):
            return
        self.asked += 1
        answer = ask(
            self._runtime.exec_in, uid, state.container, state.probe, float(max(1, state.probe.timeout_seconds))
        )
        if not answer.ok and not self._still_runs(uid, run):
            return  # it ended meanwhile, which says nothing about its health
        if not answer.ok:
            self.failed += 1
        with self._changed:
            if self._states.get(state.key) is not state:
                return  # the pod was removed
            changed = state.count(ok=answer.ok, message=answer.text)
            result = ProbeResult(uid, state.container.name, state.run_id, state.type, state.result, state.message)
        if not answer.ok:
            message = printable(f"{state.type} probe failed: {answer.text}")
            self._events.event(about_container(state.pod, state.container.name), WARNING, "Unhealthy", message)
        if changed and not self._report(result):
            with self._changed:
                self._unreported.append(result)

    def _still_runs(self, uid: PodUid, run: ContainerRuntimeStatus) -> bool:
        status = self._runtime.status(uid)
        newest = status.container(run.name) if status is not None else None
        return newest is not None and newest.id == run.id and newest.running

    def _report_again(self) -> None:
        with self._changed:
            waiting, self._unreported = self._unreported, []
        left = [result for result in waiting if not self._report(result)]
        with self._changed:
            self._unreported = left + self._unreported
