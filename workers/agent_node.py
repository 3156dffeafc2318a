"""Runs the node of `eventbus worker agent`, and its pods if it has any."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from eventbus.agent.node.factory import open_agent
from eventbus.agent.node.thresholds import parse_thresholds
from eventbus.agent.pods.options import PodOptions
from eventbus.broker.bus import Bus
from eventbus.client.address import ApiAddress
from eventbus.client.store import RemoteStore
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.extras import extra_needed
from eventbus.workers.signals import Signals
from eventbus.workers.worker import Context, Part, run

if TYPE_CHECKING:
    from eventbus.agent.pods.factory import OpenedPods
    from eventbus.workers.api_agent import Reached


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
    options.check(settings, standalone=flags.standalone)
    if flags.standalone and not options.any:
        raise click.UsageError("--standalone has no pods to run: add --manifests, --procfile or --manifest-url")
    with extra_needed("agent"):
        import psutil  # noqa: F401

        from eventbus.agent.pods.factory import open_pods
    if not options.any:
        return _run_node(flags, options, None, _installed(Signals()), metrics=metrics)
    pods = open_pods(options, settings, node=flags.node_name, labels=flags.labels, standalone=flags.standalone)
    flags = flags._replace(labels=pods.labels)
    if flags.standalone:
        from eventbus.workers.pods import run_alone

        return run_alone(pods, settings, metrics=metrics)
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
        from eventbus.workers.api_agent import run_through_api

        def build_remote(reached: Reached) -> Part:
            options.check_bus(reached.address)
            node = _node(flags, options, reached.address, SystemClock(), reached.ending, started)
            return _with_pods(node, pods, RemoteStore(reached.address), settings, reached.ending)

        return run_through_api(build_remote, settings, metrics=metrics, signals=signals)

    def build(context: Context) -> Part:
        options.check_bus(context.bus)
        node = _node(flags, options, context.bus, context.clock, context.ending, started, context.on_change)
        return _with_pods(node, pods, ObjectStore.of(context.bus), settings, context.ending)

    return run("eventbus-agent", build, metrics=metrics, signals=signals)


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
    from eventbus.workers.pods import NodeWithPods

    return NodeWithPods(node, pods, store, ending=ending, drain_s=settings.drain_s)
