"""Measures the notifier: events through 100 routes, time to a receiver, a restart with many groups, memory of groups.

python -m benchmarks notify            with 10 000 groups
python -m benchmarks.notify GROUPS     with so many
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from benchmarks.sink_worker import Worker, an_embedded_bus
from eventbus.broker.bus import Bus
from eventbus.broker.notifications import MANY, NotifyStore, position_fields
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.notify.engine import Engine, Occurrence
from eventbus.notify.notifier import Notifier, NotifySetup
from eventbus.notify.receivers.contract import Notification, Opening, Receiver
from eventbus.notify.receivers.webhook import WebhookConfig
from eventbus.notify.rules import ParsedRules, parse_rules
from eventbus.settings import Options
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock

EVENTS = 50_000
STORED = 20_000
SENDS = 200
GROUPS = 10_000
NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)

RECEIVERS = 'receivers: [{name: chat, webhook_configs: [{url: "https://chat.example"}]}]\n'
#: Half of them with an expression on the namespace, all with one on the reason.
HUNDRED = "route:\n  receiver: chat\n  group_by: [namespace, reason]\n  group_wait: 1h\n  routes:\n" + "".join(
    f"  - matchers: ['namespace{'=' if n % 2 else '=~'}\"team-{n}\"', 'reason=~\"BackOff|Failed.*|Unhealthy\"']\n"
    for n in range(99)
)
ONE = "route: {receiver: chat, group_by: [name], group_wait: 0s}\n"


class Arrivals:
    """The receiver of this benchmark: notes when each notification arrived, by the name in its group."""

    at: dict[str, float]

    def __init__(self) -> None:
        self.at = {}

    def send(self, notification: Notification) -> Mapping[str, str]:
        self.at[notification.group_labels.get("name", "")] = time.perf_counter()
        return {}

    def close(self) -> None:
        pass


def main(groups: int) -> int:
    """Print a table. Returns: 0."""
    print("| notifier | measured |\n|---|--:|")
    measure_engine()
    with an_embedded_bus(Options(burst=1_000_000)) as bus:
        measure_backlog(bus)
    with an_embedded_bus() as bus:
        measure_latency(bus)
    with an_embedded_bus() as bus:
        measure_groups(bus, groups)
    return 0


def warning(number: int, count: int = 1) -> Event:
    """A Warning about one of many pods, in 200 namespaces; half of the namespaces have a route."""
    name, namespace = f"web-{number}", f"team-{number % 200}"
    return Event(
        metadata=ObjectMeta(name=f"{name}.1", namespace=namespace, uid=f"uid-{number}"),
        involved_object=ObjectReference(kind="Pod", namespace=namespace, name=name, uid=f"pod-{number}"),
        reason="BackOff",
        message="Back-off restarting failed container",
        type="Warning",
        source=EventSource(component="kubelet", host=f"node-{number % 50}"),
        first_timestamp=NOW,
        last_timestamp=NOW,
        count=count,
        reporting_component="kubelet",
    )


def measure_engine() -> None:
    """Decide about events that repeat, without Redis."""
    engine = Engine(parse_rules(HUNDRED + RECEIVERS).rules, links=lambda _labels: {})
    occurrences = [Occurrence(warning(n % 2000, n // 2000 + 1), n < 2000) for n in range(EVENTS)]
    begun = time.process_time()
    for start in range(0, EVENTS, 500):
        engine.take(occurrences[start : start + 500], NOW_MS + start)
        engine.advance(NOW_MS + start)
        [msgspec.msgpack.encode(record) for record in engine.changed().values() if record]
    row("decide and pack, 100 routes, each event matches", f"{EVENTS / (time.process_time() - begun):,.0f} events/s")


def measure_backlog(bus: Bus) -> None:
    """Take in stored events of distinct objects, with Redis."""
    run(bus, parse_rules(HUNDRED + RECEIVERS), Arrivals()).stop(60)
    worker = Worker(bus)
    worker.append([warning(n) for n in range(STORED)])
    worker.drain()
    wall, cpu = time.perf_counter(), time.process_time()
    notifier = run(bus, parse_rules(HUNDRED + RECEIVERS), Arrivals())
    while notifier.loop_health()[0].counts.get("events", 0) < STORED:
        time.sleep(0.01)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    notifier.stop(60)
    row("read, decide and store, 100 routes, each event a new alert", f"{STORED / wall:,.0f} events/s")
    row("its share of one core at 10,000 events/s", f"{cpu / STORED * 10_000:.0%}")


def measure_latency(bus: Bus) -> None:
    """Write events one by one, and note when the receiver is called."""
    arrivals = Arrivals()
    notifier = run(bus, parse_rules(ONE + RECEIVERS), arrivals)
    times = []
    with ObjectStore.of(bus) as store:
        for number in range(SENDS):
            begun = time.perf_counter()
            store.objects(EVENT).create(warning(number))
            while f"web-{number}" not in arrivals.at:
                time.sleep(0.0005)
            times.append((arrivals.at[f"web-{number}"] - begun) * 1000)
    notifier.stop(60)
    centiles = statistics.quantiles(times, n=100)
    row("from the write of an event to its receiver, p50", f"{centiles[49]:.1f} ms")
    row("the same, p99", f"{centiles[98]:.1f} ms")


def measure_groups(bus: Bus, groups: int) -> None:
    """Store open groups of one alert each that were sent, and start a worker with them."""
    rules = parse_rules(ONE + RECEIVERS)
    engine = Engine(rules.rules, links=lambda _labels: {})
    engine.take([Occurrence(warning(n), True) for n in range(groups)], NOW_MS)
    for send in engine.advance(NOW_MS):
        engine.settle(send.group, send.integration, send.notification.key, {"ts": "1764000000.000100"}, NOW_MS)
    with bus.client() as client:
        before = int(client.info("memory")["used_memory"])
        store = NotifyStore(bus=bus, client=client, consumer="before")
        store.acquire(rules.hash)
        records = [(name, msgspec.msgpack.encode(record)) for name, record in engine.changed().items() if record]
        for start in range(0, len(records), MANY):
            store.settle(dict(records[start : start + MANY]), position_fields({0: 1}), life_ms=86_400_000)
        store.release()
        used = int(client.info("memory")["used_memory"]) - before
    row(f"memory of Redis for {groups:,} open groups", f"{used / 2**20:.0f} MiB")
    begun = time.perf_counter()
    notifier = run(bus, rules, Arrivals())
    row(f"start with {groups:,} open groups", f"{time.perf_counter() - begun:.1f} s")
    notifier.stop(60)


def run(bus: Bus, rules: ParsedRules, arrivals: Arrivals) -> Notifier:
    """Start a notifier, and wait until it acts."""

    def open_(_config: WebhookConfig, _opening: Opening) -> Receiver:
        return arrivals

    WebhookConfig.open = open_  # type: ignore[method-assign,assignment]
    setup = NotifySetup(
        bus=bus,
        consumer="bench",
        clock=SystemClock(),
        links=lambda _labels: {},
        opening=Opening(environ={}),
        on_change=lambda _reason, _message: None,
    )
    notifier = Notifier(setup, rules, load=lambda: None, beat=lambda: None)
    notifier.start()
    health: Any = notifier.loop_health
    while not health()[0].gauges["leader"]:
        time.sleep(0.001)
    while not _has_position(bus):
        time.sleep(0.001)
    return notifier


def _has_position(bus: Bus) -> bool:
    with bus.client() as client:
        return bool(client.hexists(bus.keys[0].notify, "position:0"))


def row(name: str, measured: str) -> None:
    """Print one row."""
    print(f"| {name} | {measured} |", flush=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS))
