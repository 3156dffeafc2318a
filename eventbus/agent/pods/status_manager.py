"""Keeps the newest status of each pod, and writes changes to the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.updates import is_static
from eventbus.errors import BusUnavailable, Conflict, EventBusError, NotFound, PasswordRefused
from eventbus.model.objects.pod import RUNNING_FINALIZER, Pod, PodCondition, PodStatus
from eventbus.util.clock import Clock
from eventbus.util.log import log


class PodObjects(Protocol):
    """The calls that a status needs of a store of pods."""

    def get(self, name: str, namespace: str = "") -> Pod: ...
    def create(self, found: Pod) -> Pod: ...
    def modify(
        self, name: str, change: Callable[[Pod], Pod], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> Pod: ...
    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None: ...


class StatusManager:
    """The statuses of all pods. Any thread calls `set`, which never blocks; one thread calls `flush`.

    A static pod's status is written to its mirror. Without a store nothing is written, and all is kept.

    Source: kubelet `status/status_manager.go`.
    """

    def __init__(self, manager: PodManager, *, clock: Clock, changed: Callable[[], object]) -> None:
        self.writes = 0
        self._manager = manager
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._statuses: dict[str, PodStatus] = {}
        self._waiting: dict[str, None] = {}  # uids, in the order they changed
        self._over: set[str] = set()  # uids of pods that have ended on request
        self._written = ""  # the uid of the status that is being written

    def get(self, pod: Pod) -> PodStatus:
        """Return the newest status; before the first, the one that the pod came with."""
        with self._lock:
            return self._statuses.get(pod.metadata.uid, pod.status)

    def set(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Take *status* as the newest. Returns: it, with the times of its transitions."""
        uid = pod.metadata.uid
        now = datetime.fromtimestamp(self._clock.time_ns() // 1_000_000_000, UTC)
        with self._lock:
            former = self._statuses.get(uid, pod.status)
            conditions = tuple(_since(condition, former, now) for condition in status.conditions)
            status = msgspec.structs.replace(
                status, conditions=conditions, start_time=status.start_time or former.start_time or now
            )
            self._pods[uid] = pod
            if status == self._statuses.get(uid):
                return status
            self._statuses[uid] = status
            self._waiting[uid] = None
        self._changed()
        return status

    def finish(self, pod: Pod) -> None:
        """Note that no process of *pod* runs any more. A deleted pod is released."""
        with self._lock:
            self._pods[pod.metadata.uid] = pod
            self._over.add(pod.metadata.uid)
            self._waiting[pod.metadata.uid] = None
        self._changed()

    def write_again(self, pod: Pod) -> None:
        """Compare with the status of *pod* in the store: another program may have written it."""
        with self._lock:
            if pod.metadata.uid in self._statuses:
                self._waiting[pod.metadata.uid] = None
        self._changed()

    def forget(self, known: Collection[str]) -> None:
        """Forget written statuses of pods that are not among the *known* uids."""
        with self._lock:
            kept = {*known, *self._waiting, self._written}
            for uid in self._pods.keys() - kept:
                self._statuses.pop(uid, None)
                del self._pods[uid]
                self._over.discard(uid)

    def drop(self, uid: str) -> None:
        """Forget all of *uid*, written or not: a pod of that uid starts again."""
        with self._lock:
            for by_uid in (self._statuses, self._pods, self._waiting):
                by_uid.pop(uid, None)
            self._over.discard(uid)

    def flush(self, pods: PodObjects) -> None:
        """Write the changes, oldest first. Raises: BusUnavailable, PasswordRefused: the rest waits."""
        with self._lock:
            waiting = list(self._waiting)
        for uid in waiting:
            with self._lock:
                if self._waiting.pop(uid, self) is self:
                    continue
                pod, status, over = self._pods[uid], self._statuses.get(uid), uid in self._over
                self._written = uid
            try:
                self._write(pods, pod, status, over=over)
            except (NotFound, Conflict):
                continue  # it is gone, or replaced by another pod of its name, which has its own status
            except (BusUnavailable, PasswordRefused):
                with self._lock:
                    if uid in self._pods:  # not dropped meanwhile
                        self._waiting.setdefault(uid)
                raise
            except EventBusError as error:
                log.error("the status of pod %s is not written: %s", pod.metadata.name, error)
            finally:
                self._written = ""

    def _write(self, pods: PodObjects, pod: Pod, status: PodStatus | None, *, over: bool) -> None:
        target = pod
        if is_static(pod):
            mirror = self._manager.mirror_of(pod)
            if mirror is None:
                return  # `ensure` of the mirrors requests its status again
            target = mirror
        owned = not is_static(pod)

        def change(stored: Pod) -> Pod:
            changed = stored if status is None else msgspec.structs.replace(stored, status=status)
            return _held_by_agent(changed, over=over) if owned else changed

        metadata = target.metadata
        pods.modify(metadata.name, change, metadata.namespace, uid=metadata.uid)
        self.writes += 1


def _held_by_agent(pod: Pod, *, over: bool) -> Pod:
    """Return *pod* with our finalizer while it may run, without it once it has ended and is deleted."""
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        finalizers = tuple(
            finalizer for finalizer in metadata.finalizers if not (over and finalizer == RUNNING_FINALIZER)
        )
    elif RUNNING_FINALIZER in metadata.finalizers:
        return pod
    else:
        finalizers = (*metadata.finalizers, RUNNING_FINALIZER)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(metadata, finalizers=finalizers))


def _since(condition: PodCondition, former: PodStatus, now: datetime) -> PodCondition:
    before = former.condition(condition.type)
    same = before is not None and before.status == condition.status
    since = before.last_transition_time if before is not None and same else now
    return msgspec.structs.replace(condition, last_transition_time=since or now)
