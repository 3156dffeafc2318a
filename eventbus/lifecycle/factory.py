"""Makes a lifecycle worker for a bus: its client, its clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from eventbus.agent.node.factory import open_objects
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.lifecycle.election import LEASE_S, Election
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.lifecycle.node_monitor import COMPONENT, NodeMonitor, Pace
from eventbus.lifecycle.runner import LifecycleRunner
from eventbus.model.kinds import LEASE, NODE, POD
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.util.clock import Clock, SystemClock


def open_lifecycle(
    bus: Bus,
    *,
    identity: str,
    pace: Pace | None = None,
    election_s: int = LEASE_S,
    clock: Clock | None = None,
    on_change: Callable[[str, str], object] = lambda _reason, _message: None,
) -> LifecycleRunner:
    """Return a lifecycle worker; it sends nothing before its `start`.

    Args: identity: a name that no other worker has.
    """
    clock, pace = clock or SystemClock(), pace or Pace()
    client = bus.client(name=COMPONENT)
    leases = open_objects(bus, client, LEASE, clock)
    occurrences = OccurrenceRecorder(bus=bus, clock=clock, component=COMPONENT)

    def now() -> datetime:
        return server_time(client)

    monitor = NodeMonitor(
        nodes=open_objects(bus, client, NODE, clock),
        leases=leases,
        clock=clock,
        now=now,
        occurrences=occurrences,
        identity=identity,
        pace=pace,
        lost_pods=LostPods(open_objects(bus, client, POD, clock), now),
    )
    return LifecycleRunner(
        monitor=monitor,
        election=Election(leases=leases, clock=clock, identity=identity, now=now, lease_s=election_s),
        occurrences=occurrences,
        clock=clock,
        pace=pace,
        on_change=on_change,
        closing=client.close,
    )


def server_time(client: Client) -> datetime:
    """The time by the server's clock. Raises: BusUnavailable. Redis: TIME."""
    with redis_errors():
        answer: Any = client.time()
    return datetime.fromtimestamp(int(answer[0]) + int(answer[1]) / 1e6, UTC)
