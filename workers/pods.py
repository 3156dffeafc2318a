"""The pods of `eventbus worker agent`, with its node or, with --standalone, without a bus."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from eventbus.agent.pods.factory import OpenedPods
from eventbus.client.store import RemoteStore
from eventbus.consume.heartbeat import LoopHealth
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.log import log
from eventbus.workers.signals import Signals
from eventbus.workers.worker import Part, Running, wait_for_exit, worker_process

#: Seconds of the drain that are reserved for the node, after its pods.
FOR_NODE_S = 1.0


class NodeWithPods:
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


def run_alone(pods: OpenedPods, settings: Settings, *, metrics: str) -> int:
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
