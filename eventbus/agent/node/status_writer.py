"""Writes a node's status if it changed or is old, and records the transitions of the write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

import msgspec

from eventbus.errors import AlreadyExists, BusUnavailable, Conflict, EventBusError, NotFound
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import (
    Node,
    NodeStatus,
    Transition,
    differs_beyond_heartbeats,
    rebooted,
    transitions,
)
from eventbus.util.clock import Clock

R = TypeVar("R")
#: Seconds after which the status is written, even if only its heartbeat times have changed.
REPORT_EVERY_S = 300.0
#: Tries of one round, each against the newest object. The kubelet's nodeStatusUpdateRetry.
ATTEMPTS = 5


class NodeObjects(Protocol):
    """The part of a store of nodes that a status writer uses."""

    def get(self, name: str, namespace: str = "") -> Node: ...
    def create(self, found: Node) -> Node: ...
    def update(self, found: Node) -> Node: ...
    def update_status(self, found: Node) -> Node: ...


class NodeStatusWriter:
    """Keeps the Node of one name in the store. One thread.

    Args: status_of: returns the stored node with its current status.
          labels: the labels of the node; other labels that it has are left alone.
          report: called after a write with each transition in it, and with the node as written.
    """

    def __init__(
        self,
        *,
        nodes: NodeObjects,
        clock: Clock,
        name: str,
        labels: Callable[[], dict[str, str]],
        status_of: Callable[[Node], Node],
        report: Callable[[Node, Transition], object],
    ) -> None:
        self.written = 0
        self._nodes = nodes
        self._clock = clock
        self._name = name
        self._labels = labels
        self._status_of = status_of
        self._report = report
        self._written_at = -math.inf
        self._unsure: tuple[Node, NodeStatus] | None = None  # a write without an answer: the node and the status

    def register(self) -> Node:
        """Create the node, or find it and reconcile its labels; then its status is current.

        Raises: BusUnavailable, BusRefused: call again, or follow the message. Conflict: others write it all the time.
        """
        return _retried(self._register, AlreadyExists, Conflict, NotFound)

    def write(self) -> bool:
        """One round: read the node, make its status, and write it if it changed or the last report is old.

        Returns: True if it was written.
        Raises:  NotFound: the node was removed; register it again. Conflict: after 5 tries.
                 BusUnavailable, BusRefused.
        """
        return _retried(self._write, Conflict)

    def _register(self) -> Node:
        try:
            node = self._nodes.get(self._name)
        except NotFound:
            empty = Node(metadata=ObjectMeta(name=self._name, labels=self._labels()))
            new = self._status_of(empty)
            with self._unsure_without_answer(empty, new.status):
                created = self._nodes.create(new)
            self._wrote(empty, created)
            return created
        self._settle(node)
        labels = dict(node.metadata.labels) | self._labels()
        if labels != node.metadata.labels:
            metadata = msgspec.structs.replace(node.metadata, labels=labels)
            node = self._nodes.update(msgspec.structs.replace(node, metadata=metadata))
        return self._put(node, self._status_of(node))

    def _write(self) -> bool:
        node = self._nodes.get(self._name)
        self._settle(node)
        new = self._status_of(node)
        is_old = self._clock.monotonic() - self._written_at >= REPORT_EVERY_S
        if not is_old and not differs_beyond_heartbeats(node.status, new.status):
            return False
        self._put(node, new)
        return True

    def _put(self, node: Node, new: Node) -> Node:
        # With the version that was read: another writer would record its own transitions.
        with self._unsure_without_answer(node, new.status):
            written = self._nodes.update_status(msgspec.structs.replace(node, status=new.status))
        self._wrote(node, written)
        return written

    @contextmanager
    def _unsure_without_answer(self, before: Node, status: NodeStatus) -> Iterator[None]:
        try:
            yield
        except BusUnavailable:
            self._unsure = before, status
            raise

    def _settle(self, node: Node) -> None:
        """Report the transitions of a write that got no answer, if *node* shows that it took place."""
        unsure, self._unsure = self._unsure, None
        if unsure is not None and node.status == unsure[1]:
            self._wrote(unsure[0], node)

    def _wrote(self, before: Node, after: Node) -> None:
        self.written += 1
        self._written_at = self._clock.monotonic()
        if again := rebooted(before, after):
            self._report(after, again)
        for transition in transitions(before.status, after.status, self._name):
            self._report(after, transition)


def _retried(call: Callable[[], R], *passing: type[EventBusError]) -> R:
    """Call it ATTEMPTS times at the most, until it raises none of *passing*."""
    for _ in range(ATTEMPTS - 1):
        with suppress(*passing):
            return call()
    return call()
