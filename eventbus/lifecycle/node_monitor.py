"""Watches nodes and their leases, and writes which nodes are lost and which are back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from eventbus.errors import AlreadyExists, Conflict, NotFound
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.lifecycle.node_changes import (
    FROM_LEASE,
    HEARTBEAT,
    lost,
    made_for,
    read_heard_at,
    recovered,
    write_heard_at,
)
from eventbus.lifecycle.polled_cache import PolledCache
from eventbus.lifecycle.silence import LEAST_LEFT_S, ONE_EVERY_S, Disruption, SilenceObserver
from eventbus.model.event import ObjectReference
from eventbus.model.objects.cluster import (
    DEFAULT_LEASE_S,
    NODE_LEASES,
    READY,
    TRUE,
    UNKNOWN,
    WARNING,
    Lease,
    Node,
    NodeStatus,
    Transition,
    transitions,
)
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.store.writer import ObjectWriter
from eventbus.util.clock import Clock
from eventbus.util.log import log

COMPONENT = "eventbus-lifecycle"
#: The time in which an agent must report itself ready again after its lease is renewed, seconds.
AGENT_REPORTS_WITHIN_S = 30.0
#: The age of decisions that a new active worker reports again, because its predecessor may not have reported them.
REPORT_AGAIN = timedelta(hours=1)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The times at which nodes are judged. Seconds."""

    period_s: float = 5.0  #: --node-monitor-period: between two judgements of the active worker
    grace_s: float = DEFAULT_LEASE_S  #: of a node without a lease
    startup_grace_s: float = 60.0  #: --node-startup-grace-period: of a node that never reported its state
    forget_after_s: float = 7 * 86_400.0  #: --forget-after: a node that is lost for longer is deleted


class NodeMonitor:
    """Finds lost nodes. Every worker calls `observe`; the active one also calls `judge`. One thread.

    Args: now: the server's time, so that all workers write by one clock.
          lost_pods: marks the pods of lost nodes.
          on_lost: called with each node that this worker has marked as lost, and its event. It must not block or raise.
    """

    def __init__(
        self,
        *,
        nodes: ObjectWriter[Node],
        leases: ObjectWriter[Lease],
        clock: Clock,
        now: Callable[[], datetime],
        occurrences: OccurrenceRecorder,
        identity: str,
        pace: Pace,
        lost_pods: LostPods,
        on_lost: Callable[[str, Transition], object] | None = None,
    ) -> None:
        self.transitions = self.renewals = self.outages = 0
        self._nodes = nodes
        self._leases = leases
        self._clock = clock
        self._now = now
        self._occurrences = occurrences
        self._identity = identity
        self._pace = pace
        self._lost_pods = lost_pods
        self._on_lost = on_lost
        self._node_cache: PolledCache[Node] = PolledCache(nodes)
        self._lease_cache: PolledCache[Lease] = PolledCache(leases, NODE_LEASES)
        self._silence = SilenceObserver(clock)
        self._disruption = Disruption(clock)
        self._observed_at: float | None = None
        self._back_since: dict[str, float] = {}
        self._left_behind: dict[str, str] = {}  # deleted node → version of its lease, which announces no new node

    def conditions(self) -> dict[str, int]:
        """Return the number of nodes: all, those with Ready Unknown, and those with another condition True."""
        counts: Counter[str] = Counter()
        for node in list(self._node_cache.items.values()):
            counts["nodes"] += 1
            for condition in node.status.conditions:
                if condition.status == TRUE:
                    counts[condition.type] += 1
            ready = node.status.condition(READY)
            counts[UNKNOWN] += ready is None or ready.status == UNKNOWN
        return dict(counts)

    def observe(self) -> None:
        """Observe which nodes and leases changed since the last call.

        Raises: BusUnavailable, BusRefused: nothing was observed; call `restart_observation`.
        """
        # Nodes first: an agent removes its lease before its node, so a lease without a node is a new one.
        nodes = self._node_cache.poll()
        for name in nodes.gone & self._lease_cache.items.keys():
            self._left_behind[name] = _version(self._lease_cache.items[name])
        leases = self._lease_cache.poll()
        waiting = self._lease_cache.items.keys() - self._node_cache.items.keys()
        self._left_behind = {name: version for name, version in self._left_behind.items() if name in waiting}
        now = self._clock.monotonic()
        if self._observed_at is not None and now - self._observed_at > 2 * self._pace.period_s:
            self.restart_observation()
        if self._observed_at is None:
            self._begin()
        else:
            self.renewals += len(leases.written)
            for name in leases.written:
                self._silence.heard(name, _grace_s(self._lease_cache.items[name]))
            for name in (leases.gone | nodes.gone) - self._lease_cache.items.keys():
                self._silence.forget(name)
            self._expect_without_lease(leases.gone | nodes.written)
        self._observed_at = now

    def restart_observation(self) -> None:
        """Restart every grace period, because heartbeats may have been missed."""
        if self._observed_at is not None:
            log.warning("the nodes were not observed for a while: every grace period starts again")
            self.outages += 1
        self._observed_at = None

    def judge(self, may_act: Callable[[], bool]) -> None:
        """Create, mark and delete nodes, by the last `observe`. Call it right after that.

        Args:   may_act: called before each write; False: another worker is active.
        Raises: BusUnavailable: the next call does the rest.
        """
        nodes, leases, now = self._node_cache.items, self._lease_cache.items, self._now()
        for name in [name for name in leases if name not in nodes]:
            if may_act():
                self._make_or_clear(name, leases[name], now)
        for name in [name for name, node in nodes.items() if self._is_back(name, node)]:
            if may_act():
                self._recover(name, now)
        silent = self._silence.silent([name for name, node in nodes.items() if not _is_lost(node)])
        for name in list(self._allowed(silent, len(nodes))):
            if may_act():
                self._mark_lost(name, now)
        for name, node in list(nodes.items()):
            if self._is_to_be_removed(name, node, now):
                if may_act():
                    self._remove(name, node)
            elif name in leases and may_act():
                self._remember(node, leases[name], now)
        if may_act():
            self._lost_pods.look([name for name, node in nodes.items() if _is_lost(node)])

    def report_again(self) -> None:
        """Record the recent transitions again: the last active worker may have died before. Redis ignores repeats."""
        now = self._now()
        self._lost_pods.forget()
        for node in self._node_cache.items.values():
            ready = node.status.condition(READY)
            since = ready.last_transition_time if ready else None
            if ready is None or since is None or not timedelta(0) <= now - since < REPORT_AGAIN:
                continue
            if ready.status == UNKNOWN or ready.reason == HEARTBEAT:
                for transition in transitions(NodeStatus(), node.status, node.metadata.name):
                    self._record(node, transition)

    def _begin(self) -> None:
        """Take all nodes and leases as new, because the last poll may have failed half-way."""
        nodes, leases, now = self._node_cache.items, self._lease_cache.items, self._now()
        self._silence.keep(nodes.keys() | leases.keys())
        for name, lease in leases.items():
            node, grace_s = nodes.get(name), _grace_s(lease)
            noted_s = read_heard_at(node, lease, now) if node is not None and grace_s > LEAST_LEFT_S else 0.0
            self._silence.expect(name, grace_s, noted_s)
        self._expect_without_lease(nodes)
        self._silence.restart()

    def _expect_without_lease(self, names: Iterable[str]) -> None:
        for name in names:
            node = self._node_cache.items.get(name)
            if node is not None and name not in self._lease_cache.items:
                is_new = node.status.condition(READY) is None
                self._silence.expect(name, self._pace.startup_grace_s if is_new else self._pace.grace_s)

    def _allowed(self, silent: Sequence[str], total: int) -> Sequence[str]:
        was_on = self._disruption.is_on
        allowed = self._disruption.allowed(silent, total)
        if self._disruption.is_on and not was_on:
            message = f"{self._disruption.fallen} of {total} nodes fell silent within a minute: the connection of this "
            message += f"worker is the likelier cause, so it marks one node in {ONE_EVERY_S:g} s as lost"
            log.warning(message)
            about = ObjectReference("Worker", "eventbus-system", self._identity)
            identity = f"{self._identity}/PartialDisruption/{self._clock.monotonic()}"
            self._occurrences.record(identity, about, WARNING, "PartialDisruption", message)
        return allowed

    def _is_back(self, name: str, node: Node) -> bool:
        """Return True if a lost node sends heartbeats again, and has no agent that reports it in time."""
        ready, lease = node.status.condition(READY), self._lease_cache.items.get(name)
        if ready is None or ready.status != UNKNOWN or lease is None:
            self._back_since.pop(name, None)
            return False
        renewed, last = lease.spec.renew_time, ready.last_heartbeat_time
        renews = self._silence.has_renewed(name) and not self._silence.is_silent(name)
        if not renews and (renewed is None or last is None or renewed.replace(microsecond=0) == last):
            self._back_since.pop(name, None)
            return False
        has_agent = bool(node.status.node_info.kubelet_version)
        since = self._back_since.setdefault(name, self._clock.monotonic())
        return not has_agent or self._clock.monotonic() - since >= AGENT_REPORTS_WITHIN_S

    def _make_or_clear(self, name: str, lease: Lease, now: datetime) -> None:
        """Create the node for a lease that has none; but delete the lease if its node was deleted."""
        if self._left_behind.get(name) == _version(lease):
            with suppress(NotFound, Conflict):
                self._leases.delete(name, NODE_LEASES, version=_version(lease))
            return
        with suppress(AlreadyExists):
            node = self._nodes.create(made_for(name, lease, now))
            self._report(msgspec.structs.replace(node, status=NodeStatus()), node)

    def _mark_lost(self, name: str, now: datetime) -> None:
        """Write that *name* is lost, unless it has sent a heartbeat or another worker has written this."""
        with suppress(NotFound, Conflict):
            node = self._nodes.get(name)
            lease = self._lease_of(name)
            known = self._lease_cache.items.get(name)
            if _is_lost(node) or _version(lease) != _version(known):
                return
            self._write(node, lost(node, lease, now))
            self._disruption.marked(name)

    def _recover(self, name: str, now: datetime) -> None:
        with suppress(NotFound, Conflict):
            node = self._nodes.get(name)
            if _is_lost(node):
                self._write(node, recovered(node, self._lease_of(name), now))
            self._disruption.is_back(name)
            self._back_since.pop(name, None)

    def _write(self, before: Node, status: NodeStatus) -> None:
        after = self._nodes.update_status(msgspec.structs.replace(before, status=status))
        self._report(before, after)

    def _report(self, before: Node, after: Node) -> None:
        self._node_cache.items[after.metadata.name] = after
        for transition in transitions(before.status, after.status, after.metadata.name):
            self.transitions += 1
            self._record(after, transition)
            if self._on_lost is not None and _is_lost(after):
                self._on_lost(after.metadata.name, transition)

    def _record(self, node: Node, transition: Transition) -> None:
        about = ObjectReference("Node", "", node.metadata.name, node.metadata.uid, Node.api_version)
        identity = f"{node.metadata.uid}/{transition.reason}/{transition.at}"
        self._occurrences.record(identity, about, transition.type, transition.reason, transition.message)

    def _lease_of(self, name: str) -> Lease | None:
        try:
            return self._leases.get(name, NODE_LEASES)
        except NotFound:
            return None

    def _is_to_be_removed(self, name: str, node: Node, now: datetime) -> bool:
        if node.metadata.annotations.get(FROM_LEASE) and name not in self._lease_cache.items:
            return True  # the program that created the lease has removed it
        ready = node.status.condition(READY)
        if ready is None or ready.status != UNKNOWN or ready.last_transition_time is None:
            return False
        return (now - ready.last_transition_time).total_seconds() > self._pace.forget_after_s

    def _remove(self, name: str, node: Node) -> None:
        with suppress(NotFound):
            self._leases.delete(name, NODE_LEASES)
        with suppress(NotFound, Conflict):
            self._nodes.delete(name, version=node.metadata.resource_version)
        log.info("node %s has left", name)

    def _remember(self, node: Node, lease: Lease, now: datetime) -> None:
        """Store the last renewal of a long lease on the node, for workers that start before the lease expires."""
        if (lease.spec.lease_duration_seconds or 0) <= LEAST_LEFT_S:
            return
        silent_s = self._silence.silent_s(node.metadata.name)
        new = write_heard_at(node, lease, now - timedelta(seconds=silent_s))
        if new is not None:
            with suppress(NotFound, Conflict):
                self._node_cache.items[node.metadata.name] = self._nodes.update(new)


def _is_lost(node: Node) -> bool:
    ready = node.status.condition(READY)
    return ready is not None and ready.status == UNKNOWN


def _grace_s(lease: Lease) -> float:
    return float(lease.spec.lease_duration_seconds or DEFAULT_LEASE_S)


def _version(lease: Lease | None) -> str:
    return lease.metadata.resource_version if lease is not None else ""
