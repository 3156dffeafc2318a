"""A worker for each pod: one thread and one slot for waiting work, so that a slow pod delays no other."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final, NamedTuple

from eventbus.agent.pods.updates import Work, full_name, is_static
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: Seconds to the next sync of a pod: 60 s ± 50 % after a sync, 10 s after an error.
RESYNC_S, RESYNC_JITTER, ERROR_S = 60.0, 0.5, 10.0
STOP_GRACE_S: Final = 5.0


class PodWork(NamedTuple):
    """Work for a pod's worker. The last three fields are those of a kill."""

    kind: Work
    pod: Pod
    grace_s: float | None = None  #: None: the grace period of the pod itself
    reason: str = ""  #: for the pod's status, like DeadlineExceeded; "": the pod was deleted
    message: str = ""


class Phase(StrEnum):
    """The phase of a pod's worker. The phases follow each other in this order."""

    SYNCING = "syncing"
    TERMINATING = "terminating"
    FINISHED = "finished"


class Done(NamedTuple):
    """The result of work."""

    over: bool = False  #: the pod has ended, and will not run again
    again_s: float | None = None  #: seconds to the next sync, if it must come before the resync


#: Does the work. It may raise any error: then the pod is synced again after 10 s.
Perform = Callable[[PodWork], Done]


class PodWorkers:
    """Hands work to the workers of pods. Thread-safe.

    A busy worker keeps only the latest work that arrived in the meantime; but other work never replaces a kill. A
    static pod begins after the former pod of its name has ended.

    Args:   perform: does the work, in the pod's thread.
            failed: called with each error of *perform*.
    Source: kubelet `pod_workers.go`.
    """

    def __init__(
        self,
        perform: Perform,
        *,
        clock: Clock,
        failed: Callable[[Pod, Exception], object],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.errors = 0
        self._perform = perform
        self._clock = clock
        self._failed = failed
        self._chance = chance
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._due: dict[str, float] = {}
        self._names: dict[str, str] = {}  # full name → uid of the static pod that has it
        self._queued: dict[str, list[PodWork]] = {}  # full name → static pods that wait for it
        self._stopped = False

    def update(self, work: PodWork) -> None:
        """Hand over *work*; returns at once."""
        uid = work.pod.metadata.uid
        with self._lock:
            if self._stopped:
                return
            worker = self._workers.get(uid)
            if worker is None:
                if work.kind is Work.KILL and self._withdraw(uid):
                    return
                if work.kind is not Work.KILL and not self._may_begin(work):
                    return
                worker = self._workers[uid] = _Worker(uid)
            if worker.phase is Phase.FINISHED:
                return
            worker.keep(work)
            if worker.busy:
                return
            worker.busy = True
        self._start(worker)

    def is_terminating(self, uid: str) -> bool:
        """Return True once the pod was asked to end, and after it has ended."""
        with self._lock:
            worker = self._workers.get(uid)
            return worker is not None and worker.phase is not Phase.SYNCING

    def is_finished(self, uid: str) -> bool:
        """Return True if nothing of the pod runs, and its worker is done."""
        with self._lock:
            worker = self._workers.get(uid)
            return worker is not None and worker.phase is Phase.FINISHED

    def phases(self) -> dict[str, Phase]:
        """Return how far each worker is, by uid."""
        with self._lock:
            return {uid: worker.phase for uid, worker in self._workers.items()}

    def due(self) -> list[str]:
        """Return the uids of the pods with a sync that is due, each once."""
        now = self._clock.monotonic()
        with self._lock:
            uids = [uid for uid, at in self._due.items() if at <= now]
            for uid in uids:
                del self._due[uid]
            return uids

    def sync_after(self, uid: str, in_s: float) -> None:
        """Have `due` return *uid* in *in_s* seconds, or earlier if an earlier time is set."""
        at = self._clock.monotonic() + in_s
        with self._lock:
            self._due[uid] = min(at, self._due.get(uid, at))

    def forget(self, known: Collection[str]) -> None:
        """Forget finished pods that are not among *known*, the uids of all wanted pods."""
        with self._lock:
            for uid, worker in list(self._workers.items()):
                if worker.phase is Phase.FINISHED and uid not in known:
                    del self._workers[uid]
                    self._due.pop(uid, None)

    def stop(self, timeout_s: float = STOP_GRACE_S) -> bool:
        """Take no more work, and wait for the running work. Returns: False: some work still runs."""
        with self._lock:
            self._stopped = True
            workers = list(self._workers.values())
            for worker in workers:
                worker.waiting = None
        deadline = self._clock.monotonic() + timeout_s
        for worker in workers:
            if worker.thread is not None:
                worker.thread.join(max(0.0, deadline - self._clock.monotonic()))
        return not any(worker.thread is not None and worker.thread.is_alive() for worker in workers)

    def _may_begin(self, work: PodWork) -> bool:
        """Return True if the pod can begin.

        A static pod waits until the former pod of its name has ended. Of several that wait, only the latest begins.
        """
        if not is_static(work.pod):
            return True
        name, uid = full_name(work.pod), work.pod.metadata.uid
        holder = self._names.get(name)
        former = self._workers.get(holder) if holder is not None else None
        if holder in (None, uid) or former is None or former.phase is Phase.FINISHED:
            self._names[name] = uid
            return True
        waiting = [queued for queued in self._queued.get(name, []) if queued.pod.metadata.uid != uid]
        self._queued[name] = [*waiting, work]
        return False

    def _withdraw(self, uid: str) -> bool:
        """Remove a static pod from the queue of its name. Returns: True if it waited there."""
        for name, queue in list(self._queued.items()):
            left = [work for work in queue if work.pod.metadata.uid != uid]
            if len(left) != len(queue):
                self._queued[name] = left
                return True
        return False

    def _start(self, worker: _Worker) -> None:
        name = f"eventbus-pod-{worker.uid[:8]}"
        worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        worker.thread.start()

    def _run(self, worker: _Worker) -> None:
        """Do the waiting work until there is none. Then the thread ends, and the next work starts another thread."""
        while True:
            with self._lock:
                work, worker.waiting = worker.waiting, None
                if work is None:
                    worker.busy = False
                    return
            self._do(worker, work)

    def _do(self, worker: _Worker, work: PodWork) -> None:
        try:
            done = self._perform(work)
        except Exception as error:
            self.errors += 1
            log.warning("pod %s: %s", full_name(work.pod), error, exc_info=not isinstance(error, ExpectedError))
            self._failed(work.pod, error)
            self.sync_after(worker.uid, ERROR_S)
            with self._lock:
                if work.kind is Work.KILL and worker.waiting is None and not self._stopped:
                    worker.retry = work  # a kill is tried again, even if the pod is gone from the API
            return
        worker.retry = None
        if done.over:
            self._finish(worker, work)
            return
        resync_s = RESYNC_S * (1 + RESYNC_JITTER * (2 * self._chance() - 1))
        self.sync_after(worker.uid, resync_s if done.again_s is None else min(done.again_s, resync_s))

    def retry_kills(self, uids: Collection[str]) -> list[str]:
        """Retry kills that failed. Returns: the *uids* without a failed kill."""
        rest = []
        for uid in uids:
            with self._lock:
                worker = self._workers.get(uid)
                work = worker.retry if worker is not None else None
            if work is None:
                rest.append(uid)
            else:
                self.update(work)
        return rest

    def _finish(self, worker: _Worker, work: PodWork) -> None:
        """Finish the worker, and start the static pod that waits for its name.

        If a kill arrived while the pod completed, do the kill first: only a kill deletes the object of a deleted pod.
        """
        with self._lock:
            waiting = worker.waiting
            if waiting is not None and waiting.kind is Work.KILL and work.kind is not Work.KILL:
                return
            worker.phase, worker.waiting = Phase.FINISHED, None
            self._due.pop(worker.uid, None)
            name = full_name(work.pod)
            if self._names.get(name) == worker.uid:
                del self._names[name]
            queue = self._queued.pop(name, [])
        if queue:
            self.update(queue[-1])


class ExpectedError(Exception):
    """An expected error of a sync. An event reports it, so it is logged without a traceback."""


class _Worker:
    """The waiting work and the phase of one pod. Protected by the lock of PodWorkers."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.phase = Phase.SYNCING
        self.waiting: PodWork | None = None
        self.retry: PodWork | None = None
        self.busy = False
        self.thread: threading.Thread | None = None

    def keep(self, work: PodWork) -> None:
        """Store *work* as the next work.

        After a kill, other work is dropped, and another kill can only shorten the grace period of one that waits.
        """
        waiting = self.waiting
        if work.kind is Work.KILL:
            self.phase = Phase.TERMINATING
            if waiting is not None and waiting.kind is Work.KILL:
                work = work._replace(
                    grace_s=_shorter(waiting.grace_s, work.grace_s), reason=waiting.reason or work.reason
                )
            self.waiting = work
        elif self.phase is Phase.SYNCING:
            self.waiting = work


def _shorter(first: float | None, second: float | None) -> float | None:
    graces = [grace for grace in (first, second) if grace is not None]
    return min(graces) if graces else None
