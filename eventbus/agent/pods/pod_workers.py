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

#: After a sync the pod is looked at again after 60 s ± 50 %, after an error after 10 s.
RESYNC_S, RESYNC_JITTER, ERROR_S = 60.0, 0.5, 10.0
STOP_GRACE_S: Final = 5.0


class PodWork(NamedTuple):
    """An order to a pod's worker. *grace_s*: of a kill; None is the pod's own."""

    kind: Work
    pod: Pod
    grace_s: float | None = None
    #: Why it is killed: "" it was deleted, else a reason for its status, as DeadlineExceeded.
    reason: str = ""
    message: str = ""


class Phase(StrEnum):
    """The stage of a pod's worker. It never goes back."""

    SYNCING = "syncing"
    TERMINATING = "terminating"
    FINISHED = "finished"


class Done(NamedTuple):
    """The outcome of a piece of work. *over*: the pod has ended for good.

    *again_s*: seconds to the next sync, if sooner than the resync.
    """

    over: bool = False
    again_s: float | None = None


#: Does one piece of work. May raise any error: the work is retried after 10 s.
Perform = Callable[[PodWork], Done]


class PodWorkers:
    """Hands work to the workers of pods. Thread-safe.

    While a worker is busy only the latest work for it is kept, and a kill is never replaced. A static pod waits until
    one of the same name that ran before has ended.

    Args:   perform: see above; runs in the pod's thread.
            failed: called with each error, before the pause.
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
        """Return the uids that are to be looked at again now, each once."""
        now = self._clock.monotonic()
        with self._lock:
            uids = [uid for uid, at in self._due.items() if at <= now]
            for uid in uids:
                del self._due[uid]
            return uids

    def sync_after(self, uid: str, in_s: float) -> None:
        """Have `due` name *uid* after *in_s* seconds, or earlier."""
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
        """Take no more work, and wait for the running work. Returns: False: some of it goes on."""
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
        """Return False if a static pod waits for the end of another of its name; the latest waiting pod wins."""
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
        """Take a static pod that has not begun out of its queue. Returns: True if it was there."""
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
        """Do the waiting work until there is none; the thread ends then, and the next work starts another."""
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
        """End the worker, unless a kill came while the pod completed.

        Only the kill path removes a deleted pod's object.
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
    """An error that a sync may meet and an event reports: no traceback is needed."""


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
        """Keep *work*, unless a kill waits or is under way; another kill may only shorten the grace."""
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
