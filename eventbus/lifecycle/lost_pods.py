"""Marks the pods of lost nodes: their state is unknown."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from eventbus.errors import BusRefused, Conflict, NotFound
from eventbus.model.list_watch import ListOptions, list_all
from eventbus.model.objects.cluster import FALSE, READY
from eventbus.model.objects.pod import Pod, PodCondition
from eventbus.store.writer import ObjectWriter
from eventbus.util.log import log

NODE_LOST: Final = "NodeLost"
_TERMINAL: Final = ("Succeeded", "Failed")


class LostPods:
    """Marks the pods of lost nodes: Ready=False, reason NodeLost. One thread.

    An agent that returns overwrites the mark with the pods' real state. A new active worker marks all of them again,
    which changes nothing if they were marked before.

    Source: node controller `MarkPodsNotReady`, and its NodeLost of before taints.
    """

    def __init__(self, pods: ObjectWriter[Pod], now: Callable[[], datetime]) -> None:
        self._pods = pods
        self._now = now
        self._done: set[str] = set()
        self._problem = ""

    def look(self, lost: Collection[str]) -> None:
        """Mark the pods of nodes that are new among *lost*. Raises: BusUnavailable: call again."""
        self._done &= set(lost)
        new = set(lost) - self._done
        if not new:
            return
        try:
            self._mark_all(new)
        except BusRefused as error:  # nodes are judged all the same
            if str(error) != self._problem:  # one line for equal errors in a row
                log.error("the pods of lost nodes are not marked: %s (that takes the role operator as well)", error)
            self._problem = str(error)
        self._done |= new

    def forget(self) -> None:
        """Mark all pods again: another worker has acted in the meantime."""
        self._done.clear()

    def _mark_all(self, new: Collection[str]) -> None:
        pods, _ = list_all(self._pods, ListOptions())
        now = self._now().replace(microsecond=0)
        for pod in pods.items:
            if _is_left(pod, new):
                self._mark(pod, now)

    def _mark(self, pod: Pod, now: datetime) -> None:
        metadata = pod.metadata
        with suppress(NotFound, Conflict):  # it is gone, and there may be another of its name
            self._pods.modify(
                metadata.name,
                lambda stored: _lost(stored, now) if _is_left(stored, (pod.spec.node_name,)) else stored,
                metadata.namespace,
                uid=metadata.uid,
            )


def _is_left(pod: Pod, nodes: Collection[str]) -> bool:
    """Return True if *pod* is on one of *nodes*, has not ended, and is not marked yet."""
    return pod.spec.node_name in nodes and pod.status.phase not in _TERMINAL and not _is_marked(pod)


def _is_marked(pod: Pod) -> bool:
    ready = pod.status.condition(READY)
    return pod.status.reason == NODE_LOST and ready is not None and ready.status == FALSE


def _lost(pod: Pod, now: datetime) -> Pod:
    status = pod.status
    message = f"Node {pod.spec.node_name} which was running pod {pod.metadata.name} is unresponsive"
    ready = status.condition(READY)
    since = ready.last_transition_time if ready is not None and ready.status == FALSE else now
    not_ready = PodCondition(type=READY, status=FALSE, reason=NODE_LOST, last_transition_time=since or now)
    conditions = tuple(not_ready if condition.type == READY else condition for condition in status.conditions)
    if ready is None:
        conditions = (*conditions, not_ready)
    lost = msgspec.structs.replace(status, conditions=conditions, reason=NODE_LOST, message=message)
    return msgspec.structs.replace(pod, status=lost)
