"""The runs of a pod's containers, in a shim: begun, asked to end, ended; each step is on disk before the next."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from eventbus.agent.shim.launch import NOT_STARTED, Launched, find_program, launch
from eventbus.agent.shim.output import LogFile, Output
from eventbus.agent.shim.procfs import MARK, Process, all_processes, descendants, mark, mark_of
from eventbus.agent.shim.protocol import Process as Wanted
from eventbus.agent.shim.state import EXITED, RUNNING, Run, State, forget_old_runs, write_state
from eventbus.util.failpoints import failpoint

#: Seconds between two tries to save, if the disk is full.
_SAVE_AGAIN_S = 1.0
#: The longest wait for processes killed at the end, seconds: less than the agent waits for the shim.
_GONE_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.01


class Runs:
    """The runs of *state*, of the pod in *folder*. Their outputs are registered with *poll*."""

    def __init__(self, folder: str, state: State, poll: select.poll) -> None:
        self._folder = folder
        self._state = state
        self._poll = poll
        self.outputs: dict[int, Output] = {}  #: pid of a process → its output
        self._processes: dict[str, Wanted] = {}  #: of runs that run: their definitions
        self._asked: dict[str, bool] = {}  #: runs that were asked to end → whether they were killed
        self._oom_kills: dict[
            str, int
        ] = {}  #: run → kills in its cgroup before it; a restarted container keeps its cgroup
        self._save_at = 0.0  #: when to save again after an error, on the monotonic clock; 0.0: all is on disk
        self.leftovers = False  #: whether processes of ended runs may be left

    @property
    def running(self) -> list[Run]:
        """Return the runs that have not ended."""
        return [run for run in self._state["runs"] if run["phase"] == RUNNING]

    def find(self, id: str) -> Run | None:
        """Return the run of that id, ended or not; None: there is none, or it was forgotten."""
        return next((run for run in self._state["runs"] if run["id"] == id), None)

    def inside(self, id: str, argv: list[str]) -> Wanted | None:
        """Return a process for *argv* with the user, environment and limits of a run; None: it does not run.

        Raises: FileNotFoundError.
        """
        if id not in self._processes or not any(run["id"] == id for run in self.running):
            return None
        process = self._processes[id].copy()
        process["argv"], process["path"] = argv, find_program(argv[0], process["env"].get("PATH", ""), process["cwd"])
        return process

    def start(self, run: Run, process: Wanted) -> Run:
        """Start the process of *run*. If a run of that id was started before, return it.

        Raises: OSError: it cannot be recorded, or made. Nothing is left of it, and it may be tried again.
        """
        if former := self.find(run["id"]):
            return former
        run["created_at"] = time.time()
        before = self._state["runs"]
        self._state["runs"] = forget_old_runs([run, *before])
        try:
            self.save()
            failpoint("shim:created")
            launched = self._launch(run, process)
        except Exception:
            self._state["runs"] = before
            self._save_or_later()  # it may be on disk as a run that was created
            raise
        failpoint("shim:written")
        problem = launched.release()
        failpoint("shim:released")
        if problem:
            run["exit_code"], run["reason"], run["message"] = NOT_STARTED, "StartError", problem
            self._exited(run)
        return run

    def _launch(self, run: Run, process: Wanted) -> Launched:
        """Make the process of *run*, which waits, and record it. Raises: OSError: nothing is left of it."""
        marked = process.copy()
        marked["env"] = process["env"] | {MARK: mark(run["id"], self._folder)}
        self._oom_kills[run["id"]] = _oom_kills(run["cgroup"])
        launched = launch(marked)
        failpoint("shim:made")
        run["pid"], run["start_ticks"] = launched.pid, launched.start_ticks
        run["started_at"], run["phase"] = time.time(), RUNNING
        try:
            self.save()
        except Exception:
            launched.drop()
            raise
        self.outputs[launched.pid] = Output(launched.output, self._poll, log=LogFile(run["log"]))
        self._processes[run["id"]] = marked
        return launched

    def stop(self, run: Run, grace_s: float) -> None:
        """Ask a run to end: SIGTERM now, SIGKILL after *grace_s*. Asked again, the earlier end counts."""
        if run["phase"] != RUNNING:
            return  # its number may be another's by now
        kill_at = time.monotonic() + max(0.0, grace_s)
        failpoint("shim:stop")
        first = not run["kill_at"]
        run["kill_at"] = kill_at if first else min(run["kill_at"], kill_at)
        if first:
            self._asked[run["id"]] = False
            self._signal(run, signal.SIGTERM)
            failpoint("shim:stopped")
        self._kill_due()

    def stop_all(self) -> None:
        """Ask all runs to end, each in its grace time."""
        for run in self.running:
            if not run["kill_at"]:
                self.stop(run, run["grace_s"])

    def do_due(self) -> None:
        """Kill runs that did not end in their grace time; save a state that could not be saved before."""
        self._kill_due()
        if self._save_at and self._save_at <= time.monotonic():
            self._save_or_later()

    def due_at(self) -> float:
        """Return when `do_due` has something to do, on the monotonic clock; 0.0: nothing is due."""
        due = [run["kill_at"] for run in self.running if run["kill_at"] and not self._asked.get(run["id"])]
        return min([*due, self._save_at] if self._save_at else due, default=0.0)

    def _kill_due(self) -> None:
        now = time.monotonic()
        for run in self.running:
            if run["kill_at"] and run["kill_at"] <= now and not self._asked.get(run["id"]):
                self._asked[run["id"]] = run["grace_exceeded"] = True
                with contextlib.suppress(OSError):  # out of descriptors: the rest is swept
                    for process in descendants(run["pid"], all_processes()):
                        _kill(process.pid, signal.SIGKILL)
                self._signal(run, signal.SIGKILL)

    def ended(self, pid: int, code: int) -> None:
        """Process *pid* has ended, by *code* or, below zero, by a signal: record it if it is the process of a run."""
        run = next((run for run in self.running if run["pid"] == pid), None)
        if run is None:
            return
        failpoint("shim:ended")
        self.outputs[pid].read(whole=True)
        run["exit_code"], run["signal"] = (code, 0) if code >= 0 else (128 - code, -code)
        run["reason"] = "Completed" if code == 0 else "OOMKilled" if self._out_of_memory(run) else "Error"
        self._exited(run)
        failpoint("shim:kept")

    def sweep(self) -> None:
        """Kill the leftovers of ended runs. It reads all of /proc, so call it only if there are `leftovers`."""
        left = False
        running = {run["id"] for run in self.running}
        mine = {run["pid"] for run in self.running}
        for process in descendants(os.getpid(), all_processes()):
            if process.pid not in mine and not process.gone:
                owner, _, folder = mark_of(process.pid).partition(" ")
                if folder == self._folder and owner not in running and self.find(owner):
                    left = True  # it may have made another in this very moment
                    self._kill_tree(process)
        self.leftovers = left

    def close_outputs(self) -> None:
        """Close the outputs of runs that have ended."""
        running = {run["pid"] for run in self.running}
        for pid in self.outputs.keys() - running:
            self.outputs.pop(pid).close()

    def save(self) -> None:
        """Raises: OSError."""
        write_state(self._folder, self._state)
        self._save_at = 0.0

    def save_the_rest(self) -> None:
        """Save a state that could not be saved before: the shim ends. Raises: OSError."""
        if self._save_at:
            self.save()

    def _save_or_later(self) -> None:
        try:
            self.save()
        except OSError:  # the disk is full
            self._save_at = time.monotonic() + _SAVE_AGAIN_S

    def _exited(self, run: Run) -> None:
        run["finished_at"], run["phase"] = time.time(), EXITED
        for known in (self._processes, self._asked, self._oom_kills):
            known.pop(run["id"], None)
        self.leftovers = True
        self._save_or_later()

    def _signal(self, run: Run, number: signal.Signals) -> None:
        # Not reaped yet, so no other process group can have the number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run["pid"], number)

    def _kill_tree(self, top: Process) -> None:
        for process in (top, *descendants(top.pid, all_processes())):
            _kill(process.pid, signal.SIGKILL)

    def _out_of_memory(self, run: Run) -> bool:
        before = self._oom_kills.get(run["id"], 0)
        return run["signal"] == signal.SIGKILL and _oom_kills(run["cgroup"]) > before


def kill_all() -> None:
    """Kill and reap all descendants before the shim ends. No run may run any more."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    with contextlib.suppress(
        ChildProcessError
    ):  # none is left: descendants became our children when they lost their parents
        while time.monotonic() < deadline:
            for process in descendants(os.getpid(), all_processes()):
                _kill(process.pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
            time.sleep(_LOOK_EVERY_S)


def _oom_kills(cgroup: str) -> int:
    """Return how many processes of *cgroup* were killed for want of memory."""
    if cgroup:
        with contextlib.suppress(OSError), open(os.path.join(cgroup, "memory.events")) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
