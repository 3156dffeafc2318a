"""Pods of the bus that are for this node and that it does not take: whoever waits for one is told why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from eventbus.agent.pods.api_status import PENDING, TERMINAL
from eventbus.agent.pods.pod_syncer import reference_of_pod
from eventbus.agent.pods.status_manager import PodObjects
from eventbus.agent.runtime.contract import PodEvents
from eventbus.errors import BusUnavailable, Conflict, EventBusError, NotFound
from eventbus.log import log
from eventbus.objects.conditions import WARNING
from eventbus.objects.pod import RUNNING_FINALIZER, Pod
from eventbus.objects.pod_status import PodStatus

NAMESPACE_NOT_ALLOWED: Final = "NamespaceNotAllowed"


class Strangers:
    """Tells of each once: an event, a line in the log, and in its status why it waits. `meet` is any thread's.

    An agent that takes the namespace, this one begun anew, starts it and writes a status of its own. What ran while
    this node took it is ended by the loop; once it has, its status says so, and a deleted one is let go.

    Args: runs: whether something of the pod of a uid runs here.
    """

    def __init__(self, events: PodEvents, node: str, runs: Callable[[str], bool]) -> None:
        self._events = events
        self._node = node
        self._runs = runs
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._waiting: dict[str, Pod] = {}

    def meet(self, pod: Pod) -> None:
        """Note a pod that is not taken; returns at once."""
        metadata = pod.metadata
        with self._lock:
            told = metadata.uid in self._told
            if told and metadata.deletion_timestamp is None:
                return
            self._told.add(metadata.uid)
            self._waiting[metadata.uid] = pod
        if told:
            return
        said = self._why(pod)
        log.warning("pod %s/%s does not run: %s", metadata.namespace, metadata.name, said)
        self._events.event(reference_of_pod(pod), WARNING, NAMESPACE_NOT_ALLOWED, said)

    def flush(self, pods: PodObjects) -> None:
        """Write the statuses of those that were met. One thread. Raises: BusUnavailable: the rest waits."""
        with self._lock:
            waiting = list(self._waiting.items())
        for uid, pod in waiting:
            if self._runs(uid):
                continue
            metadata = pod.metadata
            try:
                pods.modify(metadata.name, self._refused, metadata.namespace, uid=uid)
            except (NotFound, Conflict):
                pass  # it is gone, or another one of its name is there
            except BusUnavailable:
                raise
            except EventBusError as error:  # there is the event
                log.error("the status of pod %s is not written: %s", metadata.name, error)
            with self._lock:
                if self._waiting[uid] is pod:
                    del self._waiting[uid]

    def _refused(self, held: Pod) -> Pod:
        metadata, status = held.metadata, held.status
        if status.phase not in TERMINAL:
            status = PodStatus(phase=PENDING, reason=NAMESPACE_NOT_ALLOWED, message=self._why(held))
        if metadata.deletion_timestamp is not None:
            kept = tuple(one for one in metadata.finalizers if one != RUNNING_FINALIZER)
            metadata = msgspec.structs.replace(metadata, finalizers=kept)
        return msgspec.structs.replace(held, metadata=metadata, status=status)

    def _why(self, pod: Pod) -> str:
        namespace = pod.metadata.namespace
        return f"node {self._node} takes no pods of namespace {namespace}: its agent has no --pods-from-bus {namespace}"


__all__ = ["NAMESPACE_NOT_ALLOWED", "Strangers"]
