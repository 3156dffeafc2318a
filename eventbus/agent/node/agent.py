"""The agent of one node: registers it, updates its status, renews its lease, and removes both at its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.lease_renewal import PASSING, LeaseRenewal
from eventbus.agent.node.node_status import NodeStatusFunc, StatusFunctions
from eventbus.agent.node.status_writer import NodeObjects, NodeStatusWriter
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import BusFull, BusUnavailable, EventBusError, NotFound
from eventbus.model.event import ObjectReference
from eventbus.model.objects.cluster import NORMAL, Node, Transition
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.periodic import Periodic

COMPONENT = "eventbus-agent"
#: --node-status-update-frequency of the kubelet, seconds.
STATUS_EVERY_S = 10.0
#: How many renewals fit into the life of a lease: three may be lost.
RENEWALS_A_LEASE = 4


class Agent:
    """One node's agent; a worker's `Part`. A separate thread renews the lease, so that no status function delays it.

    Args: node_status_funcs: the functions that make the status, in this order.
          keep_node: a clean end leaves node and lease, so that the node falls silent as after a crash.
          started: set once `Starting` is recorded. An agent that is built again after a change of options gets the
          one of the agent before, because its process did not start again.
          closing: called last, in `stop`.
    """

    def __init__(
        self,
        *,
        name: str,
        nodes: NodeObjects,
        remove_node: Callable[[], None],
        lease: LeaseRenewal,
        lease_s: int,
        occurrences: OccurrenceRecorder,
        clock: Clock,
        contact: BusContact,
        labels: Callable[[], dict[str, str]],
        node_status_funcs: Sequence[NodeStatusFunc],
        status_every_s: float = STATUS_EVERY_S,
        keep_node: Callable[[], bool],
        started: threading.Event | None = None,
        closing: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._remove_node = remove_node
        self._lease = lease
        self._occurrences = occurrences
        self._contact = contact
        self._keep_node = keep_node
        self._closing = closing
        self._functions = StatusFunctions(node_status_funcs)
        self._writer = NodeStatusWriter(
            nodes=nodes,
            clock=clock,
            name=name,
            labels=labels,
            status_of=self._functions.apply,
            report=self._report,
        )
        self._started = started or threading.Event()
        self._registered = threading.Event()
        self._stopped = False
        self._transitions = self._failures = 0
        self._problem = ""
        self._status_loop = Periodic(self.status_round, every_s=status_every_s, name="eventbus-agent-status")
        renew_every_s = min(status_every_s, lease_s / RENEWALS_A_LEASE)
        self._lease_loop = Periodic(self.lease_round, every_s=renew_every_s, name="eventbus-agent-lease")

    def start(self) -> None:
        """Begin; returns at once."""
        self._status_loop.start()
        self._lease_loop.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End, and take lease and node away, as far as the bus allows. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        deadline = time.monotonic() + timeout_s
        ended = [loop.stop(max(0.0, deadline - time.monotonic())) for loop in (self._lease_loop, self._status_loop)]
        if all(ended) and not self._keep_node():
            try:
                self.leave()
            except EventBusError as error:
                log.warning("node %s stays, and will be found silent: %s", self.name, error)
        if all(ended):
            self._occurrences.close()
            self._closing()

    def leave(self) -> None:
        """Remove lease and node without an event: the lease first, or lifecycle would create the node again."""
        self._lease.remove()
        with suppress(NotFound):
            self._remove_node()

    def lease_round(self) -> None:
        """Renew the lease if the node is registered. Errors of the bus are logged."""
        if not self._registered.is_set():
            return
        try:
            with suppress(*PASSING):
                self._lease.renew()
            self._answered()
        except BusFull as error:
            self._failed("the lease is not renewed", error)
        except BusUnavailable as error:
            self._contact.lost(error)
        except EventBusError as error:
            self._failed("the lease is not renewed", error)

    def status_round(self) -> None:
        """Register the node if it is not, else write its status if it changed. Errors of the bus are logged."""
        try:
            if self._registered.is_set():
                self._write()
            else:
                self._register()
            self._occurrences.flush()
            self._answered()
        except BusFull as error:  # the events wait for room
            self._failed("the node's events wait", error)
        except BusUnavailable as error:
            self._contact.lost(error)
        except EventBusError as error:
            self._failed("the status is not written", error)

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of both loops. Safe to call from any thread."""
        ready = self._registered.is_set() and not self._contact.is_away
        failed = self._functions.failures.total()
        status = {"status_writes": self._writer.written, "transitions": self._transitions, "failures": self._failures}
        return [
            LoopHealth(
                group="agent:lease",
                partition=0,
                last_progress=self._lease_loop.last_round,
                ready=ready,
                counts={"renewals": self._lease.renewed},
            ),
            LoopHealth(
                group="agent:status",
                partition=0,
                last_progress=self._status_loop.last_round,
                ready=ready,
                counts=status | {"status_function_failures": failed},
            ),
        ]

    def _register(self) -> None:
        node = self._writer.register()
        if not self._started.is_set():
            self._started.set()
            identity = f"{node.metadata.uid}/Starting/{os.urandom(8).hex()}"
            self._occurrences.record(identity, _reference(node), NORMAL, "Starting", "Starting agent.")
            log.info("node %s is registered", self.name)
        self._registered.set()
        self._lease_loop.wake()

    def _write(self) -> None:
        try:
            self._writer.write()
        except NotFound:
            log.warning("node %s was removed while its agent runs: it is registered again", self.name)
            self._registered.clear()
            self._register()

    def _report(self, node: Node, transition: Transition) -> None:
        self._transitions += 1
        which = transition.at or node.status.node_info.boot_id
        identity = f"{node.metadata.uid}/{transition.reason}/{which}"
        self._occurrences.record(identity, _reference(node), transition.type, transition.reason, transition.message)

    def _answered(self) -> None:
        if self._contact.answered():
            self._lease_loop.wake()

    def _failed(self, what: str, error: EventBusError) -> None:
        self._failures += 1
        if str(error) != self._problem:  # one line for equal errors in a row
            log.error("%s: %s", what, error)
        self._problem = str(error)


def _reference(node: Node) -> ObjectReference:
    return ObjectReference(kind=Node.kind, name=node.metadata.name, uid=node.metadata.uid, api_version=Node.api_version)
