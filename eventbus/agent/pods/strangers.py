"""Pods of the bus that are for this node and that it does not take: whoever waits for one is told why."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

import msgspec

from eventbus.agent.pods.api_status import PENDING
from eventbus.agent.pods.pod_syncer import reference_of_pod
from eventbus.agent.pods.status_manager import PodObjects
from eventbus.agent.runtime.contract import PodEvents
from eventbus.errors import BusRefused, Conflict, NotFound
from eventbus.log import log
from eventbus.objects.conditions import WARNING
from eventbus.objects.pod import Pod

NAMESPACE_NOT_ALLOWED: Final = "NamespaceNotAllowed"


class Strangers:
    """Tells of each once: an event, a line in the log, and in its status why it waits. `meet` is any thread's.

    An agent that takes the namespace, this one begun anew, starts it and writes a status of its own.
    """

    def __init__(self, events: PodEvents, node: str) -> None:
        self._events = events
        self._node = node
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._waiting: list[Pod] = []

    def meet(self, pod: Pod) -> None:
        """Note a pod that is not taken; returns at once."""
        metadata = pod.metadata
        with self._lock:
            if metadata.uid in self._told:
                return
            self._told.add(metadata.uid)
            self._waiting.append(pod)
        said = self._why(pod)
        log.warning("pod %s/%s does not run: %s", metadata.namespace, metadata.name, said)
        self._events.event(reference_of_pod(pod), WARNING, NAMESPACE_NOT_ALLOWED, said)

    def flush(self, pods: PodObjects) -> None:
        """Write the statuses of those that were met. One thread. Raises: BusUnavailable: the rest waits."""
        while self._waiting:
            metadata = self._waiting[0].metadata
            with suppress(NotFound, Conflict, BusRefused):  # it is gone, or not ours to write: there is the event
                pods.modify(metadata.name, self._refused, metadata.namespace, uid=metadata.uid)
            self._waiting.pop(0)

    def _refused(self, held: Pod) -> Pod:
        if held.status.phase not in ("", PENDING):  # it ran here once: how that went stays
            return held
        status = msgspec.structs.replace(
            held.status, phase=PENDING, reason=NAMESPACE_NOT_ALLOWED, message=self._why(held)
        )
        return msgspec.structs.replace(held, status=status)

    def _why(self, pod: Pod) -> str:
        namespace = pod.metadata.namespace
        return f"node {self._node} takes no pods of namespace {namespace}: its agent has no --pods-from-bus {namespace}"


__all__ = ["NAMESPACE_NOT_ALLOWED", "Strangers"]
