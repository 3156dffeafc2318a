"""Runs the lines of a Procfile as pods of this very process, as `eventbus up` and the demo do.

The parts are the agent's: runtime, shims, loop, workers. The differences: pods come from the caller and not from
files, have the caller's whole environment, and their output is passed on as it comes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from eventbus.agent.logs import LOST, LogTail
from eventbus.agent.node.factory import node_name
from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pod_agent import PodAgent
from eventbus.agent.pods.pod_workers import PodWork
from eventbus.agent.pods.store_handle import StoreHandle
from eventbus.agent.pods.updates import CONFIG_SOURCE, RUN_BY_UP, Source, Work
from eventbus.agent.procfile.orphaned_processes import end_pods, remove_mirrors, run_by
from eventbus.agent.procfile.procfile import line_name
from eventbus.agent.runtime.contract import (
    CRASH_LOOP_BACK_OFF,
    ContainerPhase,
    ContainerRuntimeStatus,
    PodEvents,
    PodRuntimeStatus,
    PodUid,
)
from eventbus.agent.runtime.folders import PodFolders, make_folder
from eventbus.agent.runtime.isolation import Isolation
from eventbus.agent.runtime.pod_facts import about_container
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.client.store import RemoteStore
from eventbus.model.objects.cluster import NORMAL, WARNING
from eventbus.model.objects.pod import Pod
from eventbus.model.reference import DEFAULT_NAMESPACE
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import Clock
from eventbus.util.outcome import Outcome, duration, last_line
from eventbus.util.periodic import Periodic

#: The interval at which new output of lines is read, seconds.
LOOK_EVERY_S: Final = 0.1
_CLOSE_S: Final = 5.0


class Screen:
    """Shows the output of lines; this one shows nothing."""

    def write(self, name: str, line: bytes) -> None:
        """Show a line that *name* has printed. May wait."""

    def report(self, line: str) -> None:
        """Show a line about them."""


class ProcfileRunner:
    """Pods of lines, from `start` to `close`. *folder* holds their logs, and is used by this runner alone."""

    def __init__(
        self,
        folder: Path,
        *,
        events: PodEvents,
        screen: Screen,
        clock: Clock,
        backoff: RestartBackoff | None = None,
    ) -> None:
        self.folder, self._lock = claim(folder)
        self._events = events
        self._screen = screen
        self._node = node_name(os.uname().nodename)
        self._folders = PodFolders(self.folder.absolute())
        store_handle = StoreHandle()  # lines need no ConfigMaps; the bus is where their mirrors are
        self._runtime = ProcessRuntime(
            state_dir=self.folder,
            events=events,
            configs=store_handle,
            clock=clock,
            isolation=Isolation(),
            backoff=backoff,
        )
        self._agent = PodAgent(
            node_name=self._node,
            runtime=self._runtime,
            permission=Permission(),
            events=events,
            clock=clock,
            store_handle=store_handle,
            make_sources=lambda _config: (),
            expects_bus=False,
        )
        self._agent.config.expect(Source.FILE)
        self._pods: dict[str, Pod] = {}
        self._followers: dict[str, LineFollower] = {}
        self._refused: set[str] = set()
        self._looks = Periodic(self._look, every_s=LOOK_EVERY_S, name="eventbus-lines")

    def start(self) -> None:
        """Start without lines, after ending the pods that a killed process has left in the folder."""
        for name in end_pods(self._runtime):
            self._screen.report(f"{name}: left running by an `eventbus up` that was killed; ended")
        self._agent.start()
        self._looks.start()

    def show(self, store: ObjectStore | RemoteStore) -> None:
        """Show the lines as pods in *store*, until `close`; it stays the caller's.

        Mirrors that a killed process of ours has left there are taken out. Raises: BusUnavailable, BusRefused.
        """
        remove_mirrors(store, self.folder, but={pod.metadata.uid for pod in self._pods.values()})
        self._agent.attach(store, reads_pods=False)

    def hide(self) -> None:
        """Show them no more, for that bus is another one now."""
        self._agent.detach()

    def add(self, lines: Iterable[Pod]) -> None:
        """Run more lines: pods of `procfile_pods` or `line_pod`. No two in a namespace have the same name."""
        for line in lines:
            name, pod = line_name(line), self._static_pod(line)
            self._followers[name] = self._follower(name, pod)
            self._pods[name] = pod
        self._agent.config.set(Source.FILE, list(self._pods.values()))

    def ask_to_end(self, names: Collection[str], grace_s: float) -> None:
        """Have *names* end: SIGTERM, after *grace_s* SIGKILL. They are not started again."""
        for name in names:
            self._followers[name].stopping = True
            self._agent.workers.update(PodWork(Work.KILL, self._pods[name], grace_s))

    def have_ended(self, names: Collection[str]) -> bool:
        """Return True if nothing of *names* runs, and all of their output is shown."""
        uids = [self._pods[name].metadata.uid for name in names]
        if not all(self._agent.workers.is_finished(uid) for uid in uids):
            return False
        return all(self._follows_no_run(name) for name in names)

    def exit_code(self, name: str) -> int | None:
        """Return how a line ended; None: it runs, or will again."""
        if not self._agent.workers.is_finished(self._pods[name].metadata.uid):
            return None
        return self._followers[name].exit_code

    def was_killed(self, names: Collection[str]) -> bool:
        """Return True if one of *names* did not end within its grace time."""
        return any(self._followers[name].killed for name in names)

    def log(self, name: str) -> Path:
        """Return the log of a line's first run."""
        pod = self._pods[name]
        return self._folders.of(PodUid(pod.metadata.uid)).log(pod.spec.containers[0].name, 0)

    def kill(self) -> None:
        """End all of them at once, without asking. Any thread."""
        self._agent.loop.stop()
        for follower in self._followers.values():
            follower.stopping = True
        self._runtime.kill_at_once()

    def close(self) -> None:
        """End the remaining lines, and remove the folder. Idempotent."""
        if self._lock < 0:
            return
        ended = self._agent.stop(_CLOSE_S)
        if self._looks.stop(_CLOSE_S):
            for follower in self._followers.values():
                follower.close()
        if ended:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1

    def _static_pod(self, line: Pod) -> Pod:
        metadata = msgspec.structs.replace(
            line.metadata,
            name=f"{line.metadata.name}-{self._node}",
            namespace=line.metadata.namespace or DEFAULT_NAMESPACE,
            uid=str(uuid.uuid4()),
            annotations={CONFIG_SOURCE: str(Source.FILE), RUN_BY_UP: run_by(self.folder)},
        )
        spec = msgspec.structs.replace(line.spec, node_name=self._node)
        return msgspec.structs.replace(line, metadata=metadata, spec=spec)

    def _follower(self, name: str, pod: Pod) -> LineFollower:
        folder, container = self._folders.of(PodUid(pod.metadata.uid)), pod.spec.containers[0].name
        about = about_container(pod, container)

        def note(event_type: str, reason: str, message: str) -> None:
            self._events.event(about, event_type, reason, message)

        return LineFollower(
            name,
            log=lambda attempt: folder.log(container, attempt),
            write=self._screen.write,
            report=self._screen.report,
            note=note,
        )

    def _look(self) -> None:
        for name, follower in list(self._followers.items()):
            pod = self._pods.get(name)
            status = self._runtime.status(PodUid(pod.metadata.uid)) if pod is not None else None
            if pod is not None and status is not None:
                follower.step(status, *self._waits(pod))
            elif pod is not None and name not in self._refused:
                pod_status = self._agent.statuses.get(pod)
                if pod_status.reason:
                    self._refused.add(name)
                    self._screen.report(f"{name}: {pod_status.message}")

    def _waits(self, pod: Pod) -> tuple[int, str]:
        """Return the run after which a line waits, and for how long: `back-off 10s`; "" it does not."""
        for one in self._agent.statuses.get(pod).container_statuses:
            if one.state.waiting is not None and one.state.waiting.reason == CRASH_LOOP_BACK_OFF:
                return one.restart_count, one.state.waiting.message.partition(" restarting")[0]
        return -1, ""

    def _follows_no_run(self, name: str) -> bool:
        status = self._runtime.status(PodUid(self._pods[name].metadata.uid))
        return status is None or not status.containers or self._followers[name].exit_code is not None


def claim(folder: Path) -> tuple[Path, int]:
    """Return *folder*, or the first of `<folder>-2`, … that no other process locks, and the lock on it."""
    number = 1
    while True:
        own = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        make_folder(own.parent)
        lock = os.open(own.with_name(f"{own.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            number += 1
        else:
            make_folder(own)
            return own, lock


#: Blocks of a log that are passed on before others have their turn.
_AT_ONCE: Final = 16
#: Bytes after which a line without an end is passed on as one.
LONGEST_LINE: Final = 65_536


class LineFollower:
    """Passes on the output of a line, whole lines at a time, and reports each of its runs. One thread uses it.

    Args: log: the log of the run with that number.  write: takes a line of its output, and may wait.
          report: prints a line about it.  note: records an event of that type, reason and message about its pod.
    """

    def __init__(
        self,
        name: str,
        *,
        log: Callable[[int], Path],
        write: Callable[[str, bytes], object],
        report: Callable[[str], object],
        note: Callable[[str, str, str], object],
    ) -> None:
        self.name = name
        self.stopping = False  #: it was asked to end
        self.killed = False  #: it did not end in its grace time
        self.exit_code: int | None = None  #: of its newest run; None while that runs
        self._log = log
        self._write = write
        self._report = report
        self._note = note
        self._attempt = -1
        self._tail: LogTail | None = None
        self._rest = b""
        self._said = b""  # its last line with anything in it
        self._waits_told = -1

    def step(self, status: PodRuntimeStatus, waits_after: int = -1, waits: str = "") -> None:
        """Pass on new output. *waits*: why it is not started again now, after the run *waits_after*."""
        runs = sorted(status.containers, key=lambda one: one.attempt)
        if self._tail is not None and self._attempt not in (run.attempt for run in runs) and self._read():
            self._finish()  # its status is forgotten already
        for run in runs:
            if run.attempt > self._attempt and self._tail is None:
                self._begin(run)
            if run.attempt == self._attempt and self._tail is not None:
                read_all = self._read()
                if run.phase is ContainerPhase.EXITED and (read_all or self.stopping):
                    self._end(run, read_all=read_all)
        has_ended = self._attempt == waits_after and self._tail is None
        if has_ended and self._waits_told != waits_after and not self.stopping:
            self._waits_told = waits_after
            self._report(f"{self.name}: {waits}")

    def close(self) -> None:
        """Close the log that is followed, without reading on. Idempotent."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _begin(self, run: ContainerRuntimeStatus) -> None:
        if 0 <= self._attempt < run.attempt - 1:  # the logs of the runs in between are removed
            self._write(self.name, LOST)
        if run.attempt > 0:
            self._report(f"{self.name}: starting it again")
        self._attempt, self.exit_code, self._said = run.attempt, None, b""
        self._tail = LogTail(self._log(run.attempt))

    def _read(self) -> bool:
        """Pass on some of the new output. Returns: True: that was all."""
        assert self._tail is not None
        for _ in range(_AT_ONCE):
            data = self._tail.read()
            if self._tail.missed:
                self._tail.missed = False
                if self._rest:
                    self._pass_on(self._rest)
                    self._rest = b""
                self._write(self.name, LOST)
            if not data:
                return True
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._pass_on(line)
            if len(self._rest) >= LONGEST_LINE:
                self._pass_on(self._rest)
                self._rest = b""
        return False

    def _pass_on(self, line: bytes) -> None:
        if line.strip():
            self._said = line
        self._write(self.name, line)

    def _end(self, run: ContainerRuntimeStatus, *, read_all: bool) -> None:
        if not read_all:  # megabytes of output must not delay the end
            self._write(self.name, LOST)
        self._finish()
        self.exit_code, self.killed = run.exit_code, run.grace_exceeded
        outcome = Outcome(run.exit_code, run.signal, _seconds(run), run.message or last_line(self._said))
        if self.stopping:
            text = f"not done in time: {outcome}" if self.killed else str(outcome) if outcome.failed else "ended"
        else:
            text = str(outcome) if outcome.failed else f"completed after {duration(outcome.ran_s)}"
        self._report(f"{self.name}: {text}")
        if self.stopping and not self.killed:
            return  # the event Killing reports it
        if outcome.failed:
            self._note(WARNING, "Failed", f"{self.name}: {outcome}")
        else:
            self._note(NORMAL, "Completed", f"Completed {self.name} after {duration(outcome.ran_s)}")

    def _finish(self) -> None:
        self.close()
        if self._rest:
            self._pass_on(self._rest)
            self._rest = b""


def _seconds(run: ContainerRuntimeStatus) -> float:
    began: datetime | None = run.started_at
    return (run.finished_at - began).total_seconds() if began is not None and run.finished_at is not None else 0.0
