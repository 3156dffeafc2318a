"""A lifecycle worker: one thread that observes, takes part in the election, and judges while it is elected."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.factory import open_objects
from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.redis_transport import RedisTransport
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import BusFull, BusUnavailable, EventBusError
from eventbus.lifecycle.election import LEASE_S, Election
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.lifecycle.node_monitor import COMPONENT, NodeMonitor, Pace
from eventbus.lifecycle.on_lost import LostCommand
from eventbus.model.kinds import LEASE, NODE, POD
from eventbus.model.objects.cluster import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    PID_PRESSURE,
    READY,
    UNKNOWN,
)
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log
from eventbus.util.periodic import Periodic

#: Seconds between two observations: the time of a heartbeat is at most so much too late.
OBSERVE_EVERY_S = 0.5

_GAUGES = {
    "nodes": "nodes",
    READY: "nodes_ready",
    UNKNOWN: "nodes_unknown",
    MEMORY_PRESSURE: "nodes_memory_pressure",
    DISK_PRESSURE: "nodes_disk_pressure",
    PID_PRESSURE: "nodes_pid_pressure",
    NETWORK_UNAVAILABLE: "nodes_network_unavailable",
}


def open_lifecycle(
    bus: Bus,
    *,
    identity: str,
    pace: Pace | None = None,
    election_s: int = LEASE_S,
    on_lost: str = "",
    clock: Clock | None = None,
    on_change: Callable[[str, str], object] = lambda _reason, _message: None,
) -> LifecycleRunner:
    """Return a lifecycle worker; it sends nothing before its `start`.

    Args: identity: a name that no other worker has.  on_lost: a shell command to run for each lost node.
    """
    clock, pace = clock or SystemClock(), pace or Pace()
    client = bus.client(name=COMPONENT)
    leases = open_objects(bus, client, LEASE, clock)
    occurrences = OccurrenceRecorder(RedisTransport(bus), clock=clock, component=COMPONENT)
    command = LostCommand(on_lost) if on_lost else None

    def now() -> datetime:
        return server_time(client)

    def close(timeout_s: float) -> None:
        if command is not None:
            command.stop(timeout_s)
        client.close()

    monitor = NodeMonitor(
        nodes=open_objects(bus, client, NODE, clock),
        leases=leases,
        clock=clock,
        now=now,
        occurrences=occurrences,
        identity=identity,
        pace=pace,
        lost_pods=LostPods(open_objects(bus, client, POD, clock), now),
        on_lost=command.run_for if command is not None else None,
    )
    return LifecycleRunner(
        monitor=monitor,
        election=Election(leases=leases, clock=clock, identity=identity, now=now, lease_s=election_s),
        occurrences=occurrences,
        clock=clock,
        pace=pace,
        on_change=on_change,
        closing=close,
    )


class LifecycleRunner:
    """A worker's `Part`. `tick` is one round; `start` has a thread call it twice a second.

    Args: closing: called last, in `stop`, with its timeout.
    """

    def __init__(
        self,
        *,
        monitor: NodeMonitor,
        election: Election,
        occurrences: OccurrenceRecorder,
        clock: Clock,
        pace: Pace,
        on_change: Callable[[str, str], object] = lambda _reason, _message: None,
        closing: Callable[[float], object] = lambda _timeout_s: None,
    ) -> None:
        self._monitor = monitor
        self._election = election
        self._occurrences = occurrences
        self._clock = clock
        self._pace = pace
        self._closing = closing
        self._contact = BusContact(clock, on_change)
        self._led = False
        self._campaign_at = self._judge_at = -math.inf
        self._failures = 0
        self._problem = ""
        every_s = min(OBSERVE_EVERY_S, pace.period_s / 4)
        self._loop = Periodic(self.tick, every_s=every_s, name="eventbus-lifecycle")

    def start(self) -> None:
        """Begin; returns at once."""
        self._loop.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the current round, and let another worker act immediately. Idempotent."""
        if self._loop.stop(timeout_s):
            with suppress(EventBusError):
                self._election.resign()
                self._occurrences.flush()
            self._occurrences.close()
            self._closing(timeout_s)

    def tick(self) -> None:
        """One round: stand for election if it is time, observe, judge if that is due and ours. No error of the bus is
        raised.
        """
        led, self._led = self._led, False  # a round that fails may not have reported all that it wrote
        try:
            self._round(led)
            self._contact.answered()
            self._problem = ""
        except BusFull as error:  # the decisions are reported later
            self._failed(error)
        except BusUnavailable as error:
            self._contact.lost(error)
        except EventBusError as error:
            self._failed(error)

    def loop_health(self) -> list[LoopHealth]:
        """Return its health. Safe to call from any thread."""
        conditions = self._monitor.conditions()
        gauges = {gauge: float(conditions.get(condition, 0)) for condition, gauge in _GAUGES.items()}
        return [
            LoopHealth(
                group="lifecycle",
                partition=0,
                last_progress=self._loop.last_round,
                ready=not self._contact.is_away and not self._problem,
                counts={
                    "renewals": self._monitor.renewals,
                    "transitions": self._monitor.transitions,
                    "failures": self._failures,
                    "outages": self._monitor.outages,
                },
                gauges=gauges | {"leader": float(self._election.leads)},
            )
        ]

    def _failed(self, error: EventBusError) -> None:
        self._failures += 1
        if str(error) != self._problem:  # one line for equal errors in a row
            log.error("nodes are not watched as they should be: %s", error)
        self._problem = str(error)

    def _round(self, led: bool) -> None:
        now = self._clock.monotonic()
        try:
            if now >= self._campaign_at:
                self._campaign_at = now + self._election.renew_every_s
                self._election.campaign()
            self._monitor.observe()
        except EventBusError:
            self._monitor.restart_observation()
            raise
        leads = self._election.leads
        if leads and not led:
            self._monitor.report_again()
            self._judge_at = now
        if leads and now >= self._judge_at:
            self._judge_at = max(self._judge_at + self._pace.period_s, now)
            self._monitor.judge(lambda: self._election.leads)
        self._led = leads
        self._occurrences.flush()


def server_time(client: Client) -> datetime:
    """The time by the server's clock. Raises: BusUnavailable. Redis: TIME."""
    with redis_errors():
        answer: Any = client.time()
    return datetime.fromtimestamp(int(answer[0]) + int(answer[1]) / 1e6, UTC)
