"""The runs of a pod's containers, in a shim: begun, asked to end, ended; each step is on disk before the next."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from eventbus.agent.shim.launch import NOT_STARTED, Launched, find_program, launch
from eventbus.agent.shim.log_file import LogFile
from eventbus.agent.shim.outputs import Output, open_output
from eventbus.agent.shim.procfs import MARK, Process, all_processes, children, descendants, mark, mark_of
from eventbus.agent.shim.protocol import Process as Wanted
from eventbus.agent.shim.state import EXITED, RUNNING, Run, State, forget_old_runs, write_state
from eventbus.failpoints import failpoint

#: The disk is full: it is tried again so often, seconds.
_SAVE_AGAIN_S = 1.0
#: Waited for what was killed at the end, seconds: less than the agent waits for the shim.
_GONE_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.01


class Runs:
    """The runs that `state` remembers, of the pod in *folder*. One thread uses it."""

    def __init__(self, folder: str, state: State) -> None:
        self._folder = folder
        self._state = state
        self.outputs: dict[int, Output] = {}  #: descriptor → what is read there
        self._processes: dict[str, Wanted] = {}  #: of runs that run: what they were started from
        self._asked: dict[str, bool] = {}  #: runs that were asked to end → whether they were killed
        self._oom_kills: dict[str, int] = {}  #: run → those of its cgroup before it; a restarted container keeps that
        self._save_at = 0.0  #: when to save again what could not be, on the monotonic clock; 0.0: all is on disk
        self._leftovers = False  #: whether a run has ended of which there may be processes still

    @property
    def running(self) -> list[Run]:
        """Return the runs that have not ended."""
        return [run for run in self._state["runs"] if run["phase"] == RUNNING]

    def find(self, id: str) -> Run | None:
        """Return the run of that id, ended or not; None: there is none, or it was forgotten."""
        return next((run for run in self._state["runs"] if run["id"] == id), None)

    def inside(self, id: str, argv: list[str]) -> Wanted | None:
        """A command with all that a run has; None: it does not run. Raises: FileNotFoundError."""
        if id not in self._processes or not any(run["id"] == id for run in self.running):
            return None
        process = self._processes[id].copy()
        process["argv"], process["path"] = argv, find_program(argv[0], process["env"].get("PATH", ""), process["cwd"])
        return process

    def start(self, run: Run, process: Wanted) -> Run:
        """Start what *run* says; one of that id that was started before is returned as it is.

        Raises: OSError: it cannot be remembered, or made. Nothing is left of it, and it may be tried again.
        """
        if former := self.find(run["id"]):
            return former
        run["created_at"] = time.time()
        known = self._state["runs"]
        self._state["runs"] = forget_old_runs([run, *known])
        try:
            self.save()
            failpoint("shim:created")
            launched = self._launch(run, process)
        except OSError:
            self._state["runs"] = known
            self._save_or_later()  # it may be there as one that was created
            raise
        failpoint("shim:written")
        if problem := launched.release():
            os.waitpid(launched.pid, 0)
            self._fail(run, problem)
        failpoint("shim:released")
        return run

    def _launch(self, run: Run, process: Wanted) -> Launched:
        """Make the process of *run*, which waits, and remember it. Raises: OSError: nothing is left of it."""
        marked = process.copy()
        marked["env"] = process["env"] | {MARK: mark(run["id"], self._folder)}
        self._oom_kills[run["id"]] = _oom_kills(run["cgroup"])
        output, write_end = open_output(self._folder, LogFile(run["log"]))
        try:
            launched = launch(marked, write_end)
        except OSError:
            output.close()
            raise
        finally:
            os.close(write_end)
        failpoint("shim:made")
        run["pid"], run["start_ticks"] = launched.pid, launched.start_ticks
        run["started_at"], run["phase"] = time.time(), RUNNING
        try:
            self.save()
        except OSError:
            launched.drop()
            output.close()
            raise
        self.outputs[output.descriptor] = output
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
        self.kill_due()

    def kill_due(self) -> float | None:
        """Kill what did not end in its grace time. Returns: seconds until the next is due."""
        now = time.monotonic()
        for run in self.running:
            if run["kill_at"] and run["kill_at"] <= now and not self._asked.get(run["id"]):
                self._asked[run["id"]] = run["grace_exceeded"] = True
                with contextlib.suppress(OSError):  # out of descriptors: what is left behind is swept
                    for process in descendants(run["pid"], all_processes()):
                        _kill(process.pid, signal.SIGKILL)
                self._signal(run, signal.SIGKILL)
        due = [run["kill_at"] - now for run in self.running if run["kill_at"] and not self._asked.get(run["id"])]
        return max(0.0, min(due)) if due else None

    def ended(self, pid: int, code: int) -> bool:
        """A process has ended, by *code* or, below zero, by a signal. Returns: whether it was a run's own."""
        run = next((one for one in self.running if one["pid"] == pid), None)
        if run is None:
            return False
        failpoint("shim:ended")
        self._take_last_words(run)
        run["exit_code"], run["signal"] = (code, 0) if code >= 0 else (128 - code, -code)
        run["reason"] = "Completed" if code == 0 else "OOMKilled" if self._out_of_memory(run) else "Error"
        self._exited(run)
        failpoint("shim:kept")
        return True

    def sweep(self) -> None:
        """Kill what ended runs have left behind; read what they have still said. To be called after each end."""
        if not self._leftovers:  # it reads all of /proc, and a container may begin and end processes all the time
            return
        self._leftovers = False
        running = {run["id"] for run in self.running}
        mine = {run["pid"] for run in self.running}
        for process in children(os.getpid()):
            if process.pid not in mine and not process.gone:
                owner, _, folder = mark_of(process.pid).partition(" ")
                if folder == self._folder and owner not in running and self.find(owner):
                    self._leftovers = True  # it may have made another in this very moment
                    self._kill_tree(process)
        for run in self._state["runs"]:
            if run["phase"] == EXITED and (output := self._take_last_words(run)):
                self.outputs.pop(output.descriptor).close()

    def kill_all(self) -> None:
        """Kill every process below this one, and reap it: who waits for our end finds none. No run may run any more."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        with contextlib.suppress(ChildProcessError):  # none is left: those below us became ours when they lost theirs
            while time.monotonic() < deadline:
                for process in descendants(os.getpid(), all_processes()):
                    _kill(process.pid, signal.SIGKILL)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
                time.sleep(_LOOK_EVERY_S)

    def save(self) -> None:
        """Raises: OSError."""
        write_state(self._folder, self._state)
        self._save_at = 0.0

    def save_due(self) -> float | None:
        """Save what could not be saved before. Returns: seconds until the next try."""
        if not self._save_at:
            return None
        if self._save_at <= time.monotonic():
            self._save_or_later()
        return max(0.0, self._save_at - time.monotonic()) if self._save_at else None

    def _save_or_later(self) -> None:
        try:
            self.save()
        except OSError:  # the disk is full
            self._save_at = time.monotonic() + _SAVE_AGAIN_S

    def _take_last_words(self, run: Run) -> Output | None:
        output = next((one for one in self.outputs.values() if one.path == run["log"]), None)
        if output:
            output.read(whole=True)
        return output

    def _fail(self, run: Run, problem: str) -> None:
        run["exit_code"], run["reason"], run["message"] = NOT_STARTED, "StartError", problem
        self._exited(run)

    def _exited(self, run: Run) -> None:
        run["finished_at"], run["phase"] = time.time(), EXITED
        self._processes.pop(run["id"], None)
        self._leftovers = True
        self._save_or_later()

    def _signal(self, run: Run, number: signal.Signals) -> None:
        # Not reaped yet: the number of its group is still its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run["pid"], number)

    def _kill_tree(self, top: Process) -> None:
        for process in (top, *descendants(top.pid, all_processes())):
            _kill(process.pid, signal.SIGKILL)

    def _out_of_memory(self, run: Run) -> bool:
        before = self._oom_kills.pop(run["id"], 0)
        return run["signal"] == signal.SIGKILL and _oom_kills(run["cgroup"]) > before


def _oom_kills(cgroup: str) -> int:
    """Return how many processes of *cgroup* were killed for want of memory."""
    if cgroup:
        with contextlib.suppress(OSError), open(os.path.join(cgroup, "memory.events")) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
