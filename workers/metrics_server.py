"""Serves Prometheus metrics, liveness and readiness, from the state of the worker's loops. It does not call Redis.

Labels are component, group (or `export:<sink>`) and partition. Their values are bounded: never the name of an object.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from eventbus.broker.build import build_info
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import ConfigError
from eventbus.util.extras import extra_needed
from eventbus.util.log import log

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

#: Seconds without progress after which a loop counts as hung. Longer than any call of a sink or Redis.
HANGS_AFTER_S = 120.0

#: Default host. Other machines can connect only if the address names a host.
LOCAL_HOST = "127.0.0.1"

#: Counters by their name in `LoopHealth`, with their help text. Other counters are not exported.
COUNTERS = {
    "events": "Events handled.",
    "batches": "Stream entries handled.",
    "taken_over_batches": "Stream entries taken over from dead workers.",
    "failures": "Rounds that failed, most often because Redis did not answer.",
    "written": "Events that the sink, or the store for an import, has accepted.",
    "unmatched": "Changes of events that --match excludes.",
    "known": "Imported events that were stored before, with the same count.",
    "own": "Imported events that had come from this bus, or have passed too many.",
    "refused": "Imported events that break a rule, or have the name of an event that this bus has recorded.",
    "rejected": "Events that the sink's system rejected without saying which; also counted as written.",
    "held_back": "Repeats that --repeats kept from the sink.",
    "retries": "Tries of an event that failed and are made again.",
    "buried": "Entries put into the dead letter: events that were given up, batches that cannot be read.",
    "probes": "Vain calls of a sink that does not answer.",
    "sent": "Notifications that the receiver has accepted.",
    "dropped": "Notifications that the receiver has refused for good.",
    "overflowed": "Occurrences beyond the bounds of alerts and groups, which are reported as one.",
    "unsendable": "Groups without an end message: their receiver was removed from the rules.",
    "renewals": "Leases of nodes that were renewed: by this agent, or as this lifecycle worker has seen it.",
    "status_writes": "Times the status of the node was written.",
    "status_function_failures": "Status functions that failed or did not come back in time.",
    "transitions": "Changes of a node's condition that this worker has written and recorded.",
    "outages": "Outages of the lifecycle worker, after which every grace period started again.",
    "lists": "Times the store was listed, to begin or to catch up.",
    "turns": "Turns of the loop that runs an agent's pods.",
    "loop_failures": "Messages that this loop could not work.",
    "sync_failures": "Tries to bring a pod to its wanted state that failed and are made again.",
    "pods_refused": "Pods that the agent has refused to run.",
    "pod_status_writes": "Times the status of a pod was written.",
}
GAUGES = {
    "ready": "1 if the loop has Redis.",
    "idle_seconds": "Since the loop last came round.",
    "leader": "1 if this worker exports the partition, acts on nodes, or imports; 0 if it stands by.",
    "pending": "Events in hand, not yet settled with the sink.",
    "lag_events": "Changes of the store that the notifier has not read yet; only where leader is 1.",
    "alerts": "Alerts that fire, or wait for the message about their end.",
    "groups": "Open groups of alerts.",
    "silences": "Silences and acknowledgements that are active now.",
    "ignored_silences": "Silences that have begun and are ignored, because too many are active.",
    "expected_events": "Expected events in the rules.",
    "missing_events": "Expected events that have not arrived by their deadline.",
    "rules_ok": "1 if the rules file was valid when it was last read.",
    "nodes": "Nodes that there are.",
    "nodes_ready": "Nodes with the condition Ready=True.",
    "nodes_unknown": "Nodes that are silent: whether they are ready is not known.",
    "nodes_memory_pressure": "Nodes with the condition MemoryPressure=True.",
    "nodes_disk_pressure": "Nodes with the condition DiskPressure=True.",
    "nodes_pid_pressure": "Nodes with the condition PIDPressure=True.",
    "nodes_network_unavailable": "Nodes with the condition NetworkUnavailable=True.",
    "files_invalid": "Configuration files with an error: the previous content stays in use.",
    "pods": "Pods that this agent knows of.",
    "paused_seconds": "How long the sink, or the imported cluster, has not answered; 0 if it does.",
}


def hanging(loops: Sequence[LoopHealth], now: float) -> list[str]:
    """Describe the loops without progress for HANGS_AFTER_S, a line each. *now*: monotonic, seconds."""
    return [
        f"{health.group}, partition {health.partition}: no sign for {age:.0f} s"
        for health in loops
        if (age := now - health.last_progress) > HANGS_AFTER_S
    ]


def liveness(loops: Sequence[LoopHealth], now: float) -> tuple[bool, str]:
    """Return whether every loop makes progress, and a text. A worker that waits for Redis or a sink is alive."""
    lines = hanging(loops, now)
    return not lines, "\n".join(lines) or "ok"


def readiness(loops: Sequence[LoopHealth], *, draining: bool) -> tuple[bool, str]:
    """Return whether every loop has Redis and the worker is not shutting down, and a text."""
    if draining or not loops:
        return False, "stops" if draining else "starts"
    waiting = [f"{health.group}, partition {health.partition}: waits for Redis" for health in loops if not health.ready]
    return not waiting, "\n".join(waiting) or "ok"


class _LoopCollector:
    """Converts the loops' health to metrics at each scrape."""

    def __init__(self, component: str, loop_health: Callable[[], Sequence[LoopHealth]]) -> None:
        self._component = component
        self._loop_health = loop_health

    def collect(self) -> Iterator[Metric]:
        """Make the metrics of all loops. Metrics that no loop has are omitted."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        loops, now = self._loop_health(), time.monotonic()
        yield from self._families(CounterMetricFamily, COUNTERS, [(health, health.counts) for health in loops])
        gauges = [
            (health, {"ready": health.ready, "idle_seconds": max(0.0, now - health.last_progress), **health.gauges})
            for health in loops
        ]
        yield from self._families(GaugeMetricFamily, GAUGES, gauges)

    def _families(
        self,
        make: Callable[..., Any],
        texts: Mapping[str, str],
        series: Sequence[tuple[LoopHealth, Mapping[str, float]]],
    ) -> Iterator[Metric]:
        for name, help_text in texts.items():
            having = [(health, numbers[name]) for health, numbers in series if name in numbers]
            if having:
                family = make(f"eventbus_worker_{name}", help_text, labels=["component", "group", "partition"])
                for health, number in having:
                    family.add_metric([self._component, health.group, str(health.partition)], float(number))
                yield family


class MetricsServer:
    """Serves /metrics, /livez and /readyz from threads of its own, until `stop`.

    Args:     address: as `parse_address` reads it; port 0 picks a free one (see `port`).
              collectors: of further metrics, in addition to those of the loops.
    Raises:   ConfigError: prometheus-client is missing, or the address cannot be bound.
    """

    def __init__(
        self,
        address: str,
        *,
        component: str,
        loop_health: Callable[[], Sequence[LoopHealth]],
        draining: Callable[[], bool] = lambda: False,
        collectors: Sequence[Collector] = (),
    ) -> None:
        render = _renderer(component, loop_health, collectors)
        host, port = parse_address(address)
        try:
            self._server = _Server(host, port, _handler(loop_health, draining, render))
        except OSError as error:
            raise ConfigError(f"--metrics-port {address}: {error.strerror or error}") from error
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="eventbus-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()
        log.info("metrics and health on port %d of %s", self.port, self.host or "every interface")

    def stop(self) -> None:
        """Stop serving. Idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)


def parse_address(text: str) -> tuple[str, int]:
    """Parse host and port: `9108` (this machine only), `host:9108` or `[::1]:9108`. Raises: ConfigError."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--metrics-port {text!r}: give a port, or host:port")
    return host.strip("[]") if colon else LOCAL_HOST, int(port)


def _renderer(
    component: str, loop_health: Callable[[], Sequence[LoopHealth]], collectors: Sequence[Collector]
) -> Callable[[], bytes]:
    with extra_needed("metrics", "--metrics-port"):
        from prometheus_client import CollectorRegistry, Info, PlatformCollector, ProcessCollector, generate_latest
    registry = CollectorRegistry()
    Info("eventbus_build", "Version and build of this program.", registry=registry).info(build_info())
    for collector in (_LoopCollector(component, loop_health), *collectors):
        registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return lambda: generate_latest(registry)


def _handler(
    loop_health: Callable[[], Sequence[LoopHealth]], draining: Callable[[], bool], render: Callable[[], bytes]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # for clients that send nothing

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, render(), "text/plain; version=0.0.4; charset=utf-8")
            elif path == "/livez":
                self._report(*liveness(loop_health(), time.monotonic()))
            elif path == "/readyz":
                self._report(*readiness(loop_health(), draining=draining()))
            else:
                self._answer(404, b"there are /metrics, /livez and /readyz\n", "text/plain; charset=utf-8")

        def _report(self, good: bool, text: str) -> None:
            self._answer(200 if good else 503, f"{text}\n".encode(), "text/plain; charset=utf-8")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a scrape a few seconds apart is no news."""

    return Handler
