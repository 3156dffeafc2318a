"""Runs the pods of one machine: makes and connects sources, loop, workers, runtime and statuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from eventbus.agent.config.bus_source import BusSource
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.admission import UNLIMITED, NodeCapacity
from eventbus.agent.pods.mirrors import Mirrors
from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pleg import Pleg
from eventbus.agent.pods.pod_loop import PodLoop, orphan
from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.pod_syncer import PodSyncer
from eventbus.agent.pods.pod_workers import PodWork, PodWorkers
from eventbus.agent.pods.prober import ProbeManager
from eventbus.agent.pods.status_manager import StatusManager
from eventbus.agent.pods.store_handle import StoreHandle
from eventbus.agent.pods.sync_loop import CONFIG, HANGS_AFTER_S, HOUSEKEEPING, PLEG, PROBES, SYNC, SyncLoop
from eventbus.agent.pods.updates import Source, Work, is_static
from eventbus.agent.runtime.contract import PodEvents, PodUid
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.client.store import RemoteStore
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import BusRefused, BusUnavailable, EventBusError, PasswordRefused
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import Clock
from eventbus.util.periodic import Periodic

#: Seconds between two writes of changed statuses; the first is immediate.
WRITE_EVERY_S = 1.0
#: Seconds between two comparisons of the mirrors with the bus, if no pods of the bus are watched.
COMPARE_MIRRORS_S = 5.0
#: The last seconds of the agent's time to end, in which pods that have not ended are killed.
LAST_S = 1.0


class PodSource(Protocol):
    """A source that has a thread of its own: files, a URL."""

    def start(self) -> None: ...
    def stop(self, timeout_s: float) -> bool: ...


class PodAgent:
    """Runs pods from `start` to `stop`, with a bus (`attach`) or without one.

    Args: make_sources: makes the sources that need no bus.
          leave_pods: `stop` leaves the processes running, for an agent that comes after this one.
    """

    def __init__(
        self,
        *,
        node_name: str,
        runtime: ProcessRuntime,
        permission: Permission,
        events: PodEvents,
        clock: Clock,
        store_handle: StoreHandle,
        make_sources: Callable[[PodConfig], Sequence[PodSource]],
        capacity: NodeCapacity = UNLIMITED,
        address: str = "",
        expects_bus: bool = True,
        leave_pods: bool = False,
    ) -> None:
        self._node_name, self._leave_pods = node_name, leave_pods
        self._store_handle = store_handle
        self._runtime = runtime
        self.manager = PodManager()
        self.config = PodConfig(lambda update: self.loop.offer(CONFIG, update))
        if expects_bus:
            self.config.expect(Source.BUS)
        self._sources = list(make_sources(self.config))
        self._bus_source: BusSource | None = None
        self._compare_at = 0.0  # on the monotonic clock
        self._mirrors = Mirrors(self.manager)
        self._probes = ProbeManager(
            runtime=runtime,
            report=lambda result: self.loop.offer(PROBES, result, wait=False),
            events=events,
            clock=clock,
        )
        self._pleg = Pleg(runtime, lambda event: self.loop.offer(PLEG, event, wait=False), clock)
        self.statuses = StatusManager(self.manager, clock=clock, changed=lambda: self._writer.wake())
        syncer = PodSyncer(
            runtime=runtime,
            probes=self._probes,
            statuses=self.statuses,
            mirrors=self._mirrors,
            events=events,
            clock=clock,
            is_ending=lambda uid: self.workers.is_terminating(uid),
            refuse=permission.problem,
            store=store_handle.pods,
            address=address,
        )
        self.workers = PodWorkers(
            syncer.perform, clock=clock, failed=lambda pod, error: self.handlers.failed(pod, error)
        )
        self.handlers = PodLoop(
            config=self.config,
            manager=self.manager,
            workers=self.workers,
            syncer=syncer,
            statuses=self.statuses,
            capacity=capacity,
            permission=permission,
            runtime=runtime,
            events=events,
        )
        handlers: dict[str, Callable[[Any], object]] = {
            CONFIG: self.handlers.on_config,
            PLEG: self.handlers.on_pleg,
            SYNC: self.handlers.on_sync,
            PROBES: self.handlers.on_probe,
            HOUSEKEEPING: self.handlers.on_housekeeping,
        }
        self.loop = SyncLoop(handlers, clock=clock, runtime_problem=self._pleg.problem)
        self._writer = Periodic(self._write, every_s=WRITE_EVERY_S, name="eventbus-agent-pod-status")
        self._thread = threading.Thread(target=self.loop.run, name="eventbus-agent-loop", daemon=True)

    def start(self) -> None:
        """Begin; returns at once. Pods of files start whether or not there is a bus."""
        self._thread.start()
        self._pleg.start()
        self._writer.start()
        for source in self._sources:
            source.start()

    def attach(self, store: ObjectStore | RemoteStore, *, reads_pods: bool = True) -> None:
        """Have a bus from now on: statuses are written, mirrors made, its pods read. *store* stays the caller's.

        Args: reads_pods: False: this agent's pods are shown on the bus, and no pods are read from it.
        """
        self._store_handle.attach(store)
        if reads_pods:
            self._bus_source = BusSource(self.config, store, node=self._node_name)
            self._bus_source.start()
        for pod in self.manager.pods():
            self.workers.sync_after(pod.metadata.uid, 0.0)  # for its mirror
            self.statuses.write_again(pod)

    def detach(self) -> None:
        """Have no bus any more; the pods go on."""
        source, self._bus_source = self._bus_source, None
        if source is not None:
            source.stop()
        self._store_handle.detach()

    def stop(self, timeout_s: float) -> bool:
        """End the pods, each in its grace time but all within *timeout_s*, then all else. Idempotent.

        Returns: False: not all ended in time, and was killed or left.
        """
        deadline = time.monotonic() + timeout_s
        for source in self._sources:
            source.stop(1.0)
        if self._bus_source is not None:
            self._bus_source.stop()
        self.loop.stop()
        if self._thread.is_alive():
            self._thread.join(max(0.5, deadline - time.monotonic()))
        ended = self._leave_pods or self._drain(deadline)
        self.workers.stop(max(0.0, deadline - time.monotonic()))
        self._pleg.stop()
        self._probes.stop()
        self._writer.stop(1.0)
        with suppress(EventBusError):
            self._leave(ended=ended)
        self.detach()
        self._runtime.close()
        return ended

    def loop_health(self) -> list[LoopHealth]:
        """Return the health of the loop; safe to call from any thread."""
        counts = {
            "turns": self.loop.turns,
            "loop_failures": sum(self.loop.failures.values()),
            "sync_failures": self.workers.errors,
            "pods_refused": self.handlers.refused,
            "pod_status_writes": self.statuses.writes,
        }
        # Other loops hang after less than two minutes; the kubelet gives a turn that long.
        late_s = max(0.0, time.monotonic() - self.loop.last_progress)
        sign = time.monotonic() if late_s <= HANGS_AFTER_S else self.loop.last_progress
        gauges = {"pods": float(len(self.manager.pods()))}
        return [
            LoopHealth(group="agent:pods", partition=0, last_progress=sign, ready=True, counts=counts, gauges=gauges)
        ]

    def _leave(self, *, ended: bool) -> None:
        """Write the last statuses, and remove the mirrors of static pods that ended.

        If the bus does not answer, there is only one request, so that the end waits for one timeout only.
        """
        is_there = self._write()
        store = self._store_handle.pods()
        if is_there and store is not None and ended and not self._leave_pods:
            for mirror in self.manager.mirrors():
                self._mirrors.remove(store, mirror)

    def _write(self) -> bool:
        """Write changes to the bus, and read from it. Calls that wait for the bus run here, not in the loop.

        Returns: False: the bus is away.
        """
        self._store_handle.forget_unused(self.manager.pods())
        source, store = self._bus_source, self._store_handle.pods()
        if source is not None:
            source.look()
        if store is None:
            return False
        try:
            compares = source is None and self._compare_at <= time.monotonic()
            if compares:
                self._compare_at = time.monotonic() + COMPARE_MIRRORS_S
            for pod in filter(is_static, self.manager.pods()):
                is_due = compares or self.manager.mirror_of(pod) is None
                if is_due and self._mirrors.ensure(store, pod):
                    self.statuses.write_again(pod)
            self.statuses.flush(store)
            if self.config.all_ready:
                self._mirrors.remove_orphans(store)
        except (BusUnavailable, PasswordRefused):  # the agent's other loops log it
            return False
        except BusRefused:
            pass
        return True

    def _drain(self, deadline: float) -> bool:
        """End every pod within the time left, even if its grace is longer; also pods that no source has named yet."""
        pods = {pod.metadata.uid: pod for pod in self.manager.pods()}
        pods = {status.uid: orphan(status) for status in self._runtime.pods() if status.active} | pods
        pods = {uid: pod for uid, pod in pods.items() if not self.workers.is_finished(uid)}
        for pod in pods.values():
            left_s = max(0.0, deadline - time.monotonic() - LAST_S)
            grace_s = min(left_s, float(pod.spec.termination_grace_period_seconds))
            self.workers.update(PodWork(Work.KILL, pod, grace_s))
        hurried = False
        while (now := time.monotonic()) < deadline:
            late = [uid for uid in pods if not self.workers.is_finished(uid)]
            if not late:
                return True
            if now >= deadline - LAST_S and not hurried:
                hurried = True
                for uid in late:  # a hook that hangs has had the grace period of its container
                    self._runtime.hurry(PodUid(uid), 0.0)
            time.sleep(0.02)
        return False
