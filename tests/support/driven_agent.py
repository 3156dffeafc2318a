"""An agent with a clock of the test: its real parts and real processes, moved on step by step.

Sources, loop, workers, probes, back-off and statuses are the agent's own. `advance` calls the steps that otherwise wait
for real time: the threads of the loop, of PLEG, of the files. A shim writes real times, which the observer replaces by
the test's: all changes within a step have the time of the step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from eventbus.agent.config.file_source import FileSource
from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pod_agent import PodAgent
from eventbus.agent.pods.store_handle import StoreHandle
from eventbus.agent.runtime import process_runtime
from eventbus.agent.runtime.contract import PodEvents, PodRuntimeStatus
from eventbus.agent.runtime.isolation import RlimitIsolation
from eventbus.agent.runtime.observed import Observer
from eventbus.agent.shim.state import State
from eventbus.store.object_store import ObjectStore
from eventbus.testing.clock import FakeClock
from eventbus.util.clock import SystemClock
from tests.waiting import eventually

STEP_S = 0.5


class ClockedObserver(Observer):
    """Sees every start and end when the test's clock says that it is seen first."""

    def _status_of(self, state: State, *, ready: bool) -> PodRuntimeStatus:
        made = super()._status_of(state, ready=ready)
        now = datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC)
        seen: dict[tuple[str, str], datetime] = self.__dict__.setdefault("seen", {})
        runs = []
        for run in made.containers:
            times = {
                name: seen.setdefault((run.id, name), now)
                for name in ("created_at", "started_at", "finished_at")
                if getattr(run, name) is not None
            }
            runs.append(msgspec.structs.replace(run, **times))
        return msgspec.structs.replace(made, containers=tuple(runs))


class DrivenAgent:
    """Runs the pods of *manifests*. `close` ends them."""

    def __init__(self, folder: Path, *, manifests: Path, events: PodEvents, clock: FakeClock, monkeypatch: Any) -> None:
        self.clock, self._events = clock, events
        monkeypatch.setattr(process_runtime, "Observer", ClockedObserver)
        store_handle = StoreHandle()
        runtime = process_runtime.ProcessRuntime(
            state_dir=folder, events=events, configs=store_handle, clock=clock, isolation=RlimitIsolation()
        )
        # A process dies in real time: by the test's clock its end would take as many steps as the machine is slow.
        runtime._killer._clock = runtime._sandboxes._clock = SystemClock()
        self.runtime = runtime
        self.agent = PodAgent(
            node_name="n1",
            runtime=runtime,
            permission=Permission(),
            events=events,
            clock=clock,
            store_handle=store_handle,
            make_sources=lambda config: [
                FileSource(
                    config,
                    node="n1",
                    manifests=manifests,
                    invalid=lambda where, problem: None,
                    clock=clock,
                )
            ],
        )
        self._pleg, self._probes = self.agent._pleg, self.agent._probes

    def attach(self, store: ObjectStore) -> None:
        self.agent.attach(store)

    def advance(self, seconds: float, each: Callable[[], object] = lambda: None) -> None:
        """Move on by *seconds*, a step at a time; *each* is called after every step."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self._settle()
            each()

    def close(self) -> None:
        """End the pods, in grace times of the test's clock."""
        ended = threading.Event()

        def move() -> None:
            while not ended.wait(0.01):
                self.clock.advance(0.1)

        mover = threading.Thread(target=move)
        mover.start()
        try:
            self.agent.stop(60.0)
        finally:
            ended.set()
            mover.join()

    def _settle(self) -> None:
        """Let everything happen that this moment brings."""
        for source in self.agent._sources:
            source.look()  # type: ignore[attr-defined]
        self._ask_probes()
        while True:
            self._pleg.relist()
            turned = 0
            while self.agent.loop.turn():
                turned += 1
            eventually(self._is_quiet)
            if not turned and not self._has_news():
                break
        self.agent._write()

    def _ask_probes(self) -> None:
        """Have its thread look at the clock: it waits by the real one."""

        def asked() -> bool:
            with self._probes._changed:
                self._probes._changed.notify_all()
                now = self.clock.monotonic()
                return not any(one.busy or one.due <= now for one in self._probes._states.values())

        eventually(asked)

    def _is_quiet(self) -> bool:
        """Return True if each worker is idle, or waits for the clock; a short process has ended."""
        workers = self.agent.workers._workers.values()
        return sum(one.busy for one in workers) <= self.clock._sleepers() and not self._short_runs()

    def _short_runs(self) -> list[str]:
        pods = self.runtime.pods()
        return [
            run.id for pod in pods for run in pod.containers if run.running and pod.name.startswith(("crash", "job"))
        ]

    def _has_news(self) -> bool:
        return any(self.agent.loop._queues.values()) or any(
            self._pleg._reported.get(pod.uid) is not pod
            for pod in self.runtime.pods()
            if pod.sandbox and pod.sandbox.ready
        )
