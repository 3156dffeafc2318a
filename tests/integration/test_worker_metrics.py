"""What the loops of each worker count is served at its port: nothing is counted for nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eventbus.agent.node.factory import open_agent
from eventbus.agent.pods.factory import open_pods
from eventbus.agent.pods.options import PodOptions
from eventbus.broker.bus import Bus
from eventbus.consume.heartbeat import LoopHealth
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.export.rules import ExportOptions
from eventbus.export.worker import ExportRunner
from eventbus.lifecycle.runner import open_lifecycle
from eventbus.model.encoding.wire import pack_batch, pack_event
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from eventbus.workers.log_lines import Format
from eventbus.workers.log_output import StreamOutput
from eventbus.workers.log_runner import log_worker
from eventbus.workers.metrics_server import COUNTERS, GAUGES
from eventbus.workers.worker import Context, Part
from tests.builders import make_event
from tests.support.exporting import MemorySink
from tests.support.notifying import notifying
from tests.waiting import eventually

STDOUT = 1


def sink(bus: Bus) -> Part:
    return sink_worker(bus=bus, clock=SystemClock(), block_ms=50)


def export(bus: Bus) -> Part:
    return ExportRunner(bus=bus, make_sink=MemorySink, clock=SystemClock(), options=ExportOptions(), block_ms=50)


def node(bus: Bus) -> Part:
    return open_agent(bus, name="n1")


def lifecycle(bus: Bus) -> Part:
    return open_lifecycle(bus, identity="w1")


def log(bus: Bus) -> Part:
    context = Context(bus, Settings(worker_block_ms=50), SystemClock(), "w1", lambda *_said: None, lambda _code: None)
    return log_worker(context, output=StreamOutput(STDOUT), form=Format.TEXT, take_over_s=15)


def unlisted(found: Sequence[LoopHealth]) -> set[str]:
    counts = {name for health in found for name in health.counts}
    gauges = {name for health in found for name in health.gauges}
    return counts - COUNTERS.keys() | gauges - GAUGES.keys()


@pytest.mark.parametrize("make", [sink, log, export, node, lifecycle], ids=lambda make: make.__name__)
def test_whatever_a_worker_counts_is_a_metric(bus: Bus, make: Callable[[Bus], Part]) -> None:
    part = make(bus)
    part.start()
    try:
        eventually(lambda: all(health.ready for health in part.loop_health()))
        assert unlisted(part.loop_health()) == set()
    finally:
        part.stop(60)


def test_whatever_an_agent_counts_of_its_pods_is_a_metric(settings: Settings, short_path: Path) -> None:
    pods = open_pods(
        PodOptions(), settings, labels={}, standalone=True, environ={"EVENTBUS_STATE_DIR": str(short_path)}
    )
    pods.agent.start()
    try:
        assert unlisted(pods.agent.loop_health()) == set()
    finally:
        pods.stop(60)


def test_whatever_a_notifier_counts_is_a_metric(bus: Bus) -> None:
    rules = "route: {receiver: hook}\nreceivers: [{name: hook, webhook_configs: [{url: 'http://127.0.0.1:9/'}]}]\n"
    with notifying(bus, rules) as notifier:
        eventually(lambda: notifier.loop_health()[0].gauges["leader"] == 1)
        assert unlisted(notifier.loop_health()) == set()


@pytest.mark.parametrize("make", [sink, log], ids=lambda make: make.__name__)
def test_what_a_worker_buries_is_counted(bus: Bus, make: Callable[[Bus], Part]) -> None:
    good = pack_event(make_event())
    with bus.client() as client:
        bus.open_partition(client, 0)
        for body in (b"junk", pack_batch("p", 1, [good, b"\xc1", good])):
            client.xadd(bus.keys[0].incoming, {"n": 3, "to": 3, "at": 0, "b": body})
        part = make(bus)
        part.start()
        try:
            eventually(lambda: part.loop_health()[0].counts["batches"] == 2)
            assert part.loop_health()[0].counts["buried"] == client.xlen(bus.keys[0].dead) == 2
        finally:
            part.stop(60)
