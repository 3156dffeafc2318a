"""Runs the node of `eventbus worker agent`, and its pods if it has any."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from eventbus.agent.node.factory import open_agent
from eventbus.agent.node.node_status import parse_thresholds
from eventbus.agent.pods.options import PodOptions
from eventbus.broker.bus import Bus
from eventbus.client.address import ApiAddress, parse_api_url
from eventbus.client.store import RemoteStore
from eventbus.consume.heartbeat import LoopHealth
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.extras import extra_needed
from eventbus.util.log import log
from eventbus.workers.opening import wait_until_available
from eventbus.workers.signals import Signals
from eventbus.workers.worker import Context, Part, Running, drain, run, wait_for_exit, worker_process

if TYPE_CHECKING:
    from eventbus.agent.pods.factory import OpenedPods

#: Seconds of the drain that are reserved for the node, after its pods.
FOR_NODE_S = 1.0


class NodeFlags(NamedTuple):
    """The options of `eventbus worker agent`, except those of its pods."""

    node_name: str
    labels: Mapping[str, str]
    status_every_s: float
    lease_s: int
    keep_node: bool
    standalone: bool


def run_agent(flags: NodeFlags, options: PodOptions, *, metrics: str) -> int:
    """Run until a signal. Returns: the exit code. Raises: ConfigError, UsageError, before anything runs."""
    settings = Settings.from_environ(os.environ)
    options.check(standalone=flags.standalone)
    if flags.standalone and not options.any:
        raise click.UsageError("--standalone has no pods to run: add --manifests or --manifest-url")
    with extra_needed("agent"):
        import psutil  # noqa: F401

        from eventbus.agent.pods.factory import open_pods
    if not options.any:
        return _run_node(flags, options, None, _installed(Signals()), metrics=metrics)
    pods = open_pods(options, settings, node=flags.node_name, labels=flags.labels, standalone=flags.standalone)
    flags = flags._replace(labels=pods.labels)
    if flags.standalone:
        return _run_alone(pods, settings, metrics=metrics)
    signals = _installed(Signals(pods.kill))  # from the first process on: our end ends it
    try:
        pods.agent.start()  # before the bus is open
        return _run_node(flags, options, pods, signals, metrics=metrics)
    finally:
        pods.stop(settings.drain_s)


def _installed(signals: Signals) -> Signals:
    signals.install()
    return signals


def _run_node(flags: NodeFlags, options: PodOptions, pods: OpenedPods | None, signals: Signals, *, metrics: str) -> int:
    settings = Settings.from_environ(os.environ)
    started = threading.Event()
    if settings.url:
        return _run_through_api(flags, options, pods, settings, signals, started, metrics=metrics)

    def build(context: Context) -> Part:
        options.check_bus(context.bus)
        node = _node(flags, options, context.bus, context.clock, context.ending, started, context.on_change)
        return _with_pods(node, pods, ObjectStore.of(context.bus), settings, context.ending)

    return run("eventbus-agent", build, metrics=metrics, signals=signals)


def _run_through_api(
    flags: NodeFlags,
    options: PodOptions,
    pods: OpenedPods | None,
    settings: Settings,
    signals: Signals,
    started: threading.Event,
    *,
    metrics: str,
) -> int:
    """Run the node through the API worker of EVENTBUS_URL until a signal. Retries while that does not answer.

    Returns: the exit code. Raises: ConfigError, BusRefused: this API cannot be used.
    """
    running = Running()

    def ending() -> bool:
        return running.stopping

    def build() -> Part:
        options.check_bus(address)
        node = _node(flags, options, address, SystemClock(), ending, started)
        return _with_pods(node, pods, RemoteStore(address), settings, ending)

    def wait_for_api(seconds: float) -> bool:
        systemd.ready("waits for the API")
        systemd.alive()
        return signals.wait(seconds)

    with worker_process("eventbus-agent", settings, signals, running, metrics=metrics) as systemd:
        address = parse_api_url(settings.url, settings)
        part = wait_until_available(build, "the API", wait_for_api)
        if part is None:
            return 0
        part.start()
        running.part, signals.idle = part, False
        log.info("eventbus-agent works through %s: pid %d", address, os.getpid())
        systemd.ready(f"works through {address}")
        wait_for_exit(signals, systemd, running.loop_health)
        running.stopping = True
        log.info("eventbus-agent stops: finishing its work")
        drained = drain(part, time.monotonic() + settings.drain_s)
        return (signals.exit_code or 0) if drained else 1


def _node(
    flags: NodeFlags,
    options: PodOptions,
    bus: Bus | ApiAddress,
    clock: Clock,
    ending: Callable[[], bool],
    started: threading.Event,
    on_change: Callable[[str, str], object] = lambda _reason, _message: None,
) -> Part:
    return open_agent(
        bus,
        name=flags.node_name,
        labels=flags.labels,
        clock=clock,
        state_dir=Path(Settings.from_environ(os.environ).state_dir or os.getcwd()),
        status_every_s=flags.status_every_s,
        lease_s=flags.lease_s,
        thresholds=parse_thresholds(options.pressure_thresholds),
        max_pods=options.max_pods,
        # Reopened after a change of options, the node stays the same.
        keep_node=lambda: flags.keep_node or not ending(),
        started=started,
        on_change=on_change,
    )


def _with_pods(
    node: Part,
    pods: OpenedPods | None,
    store: ObjectStore | RemoteStore,
    settings: Settings,
    ending: Callable[[], bool],
) -> Part:
    if pods is None:
        store.close()
        return node
    return _NodeWithPods(node, pods, store, ending=ending, drain_s=settings.drain_s)


def _run_alone(pods: OpenedPods, settings: Settings, *, metrics: str) -> int:
    """Run pods without a node and without waiting for a bus, until a signal. Returns: the exit code."""
    signals = Signals(pods.kill)
    signals.install()
    running = Running()
    running.part = pods.agent
    with worker_process("eventbus-agent", settings, signals, running, metrics=metrics) as systemd:
        try:
            pods.agent.start()
            signals.idle = False
            log.info("eventbus-agent runs its pods without a bus: pid %d, in %s", os.getpid(), pods.folder)
            systemd.ready(f"runs its pods alone, in {pods.folder}")
            wait_for_exit(signals, systemd, running.loop_health)
            running.stopping = True
            log.info("eventbus-agent stops: ending its pods")
        finally:
            ended = pods.stop(settings.drain_s)
    return (signals.exit_code or 0) if ended else 1


class _NodeWithPods:
    """An agent's node and its pods, as one part: the pods have *store* for as long as the part runs.

    At the end of the worker the pods end first, so that their ends are reported; a change of options does not touch
    them.
    """

    def __init__(
        self,
        node: Part,
        pods: OpenedPods,
        store: ObjectStore | RemoteStore,
        *,
        ending: Callable[[], bool],
        drain_s: float,
    ) -> None:
        self._node = node
        self._pods = pods
        self._store = store
        self._ending = ending
        self._drain_s = drain_s

    def start(self) -> None:
        self._node.start()
        self._pods.agent.attach(self._store)

    def stop(self, timeout_s: float) -> None:
        """Stop the pods if the agent ends, else only detach them from the bus; then stop the node."""
        if self._ending():
            self._pods.stop(max(1.0, self._drain_s - FOR_NODE_S))
        else:
            self._pods.agent.detach()
        self._store.close()
        self._node.stop(timeout_s)

    def loop_health(self) -> Sequence[LoopHealth]:
        return [*self._node.loop_health(), *self._pods.agent.loop_health()]
