"""Starts one process, which waits for its release before it becomes the program: no unrecorded program runs.

Also settings that processes inherit: signals, and the kernel's action at the end of a parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from typing import NoReturn

from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.protocol import MOST_PROBLEM_CHARS, Process

#: The exit code of a process that never became the program: it was not released, or the program could not be run.
NEVER_RELEASED, NOT_STARTED = 127, 128
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def find_program(word: str, path: str, cwd: str) -> str:
    """Return the file that *word* means, in *path*'s folders. Raises: FileNotFoundError: the message is for people."""
    if "/" in word:
        places = [os.path.normpath(os.path.join(cwd, word))]
    else:
        places = [os.path.join(cwd, folder, word) for folder in path.split(os.pathsep) if folder]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    if "/" not in word:
        raise FileNotFoundError(f'exec: "{word}": executable file not found in $PATH')
    if os.path.exists(places[0]):
        raise FileNotFoundError(f'exec: "{word}": permission denied')
    raise FileNotFoundError(f'exec: "{word}": stat {places[0]}: no such file or directory')


class Launched:
    """A child of ours that waits for its release. If we die before that, it ends without having done anything."""

    __slots__ = ("_error", "_release", "output", "pid", "start_ticks")

    def __init__(self, pid: int, output: int, release: int, error: int) -> None:
        self.pid = pid
        process = read_process(pid)
        self.start_ticks = process.start_ticks if process else 0
        self.output = output  #: the reading end of a pipe, which does not block; the caller closes it
        self._release = release
        self._error = error

    def release(self) -> str:
        """Let the process become its program. Returns: "", or why it could not; it ends then. Blocks until then."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._release, b"!")
        os.close(self._release)
        problem = b""
        while data := os.read(self._error, 4096):
            problem += data
        os.close(self._error)
        return problem.decode("utf-8", "replace")[:MOST_PROBLEM_CHARS]

    def drop(self) -> None:
        """End the process instead of releasing it, and close all its pipes."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for descriptor in (self.output, self._release, self._error):
            os.close(descriptor)


def launch(process: Process, *, dies_with_us: bool = False) -> Launched:
    """Fork a process with a session of its own. It waits for its release. Raises: OSError: no process.

    It holds its output for reading too: if we die, a write blocks one day, and does not kill the process by SIGPIPE.
    """
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
        output, writing, wait, release, error, report = opened
        opened.append(os.open(f"/proc/self/fd/{writing}", os.O_RDWR))
        parent = os.getpid() if dies_with_us else 0
        pid = os.fork()
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    if pid == 0:
        os.close(release)  # or the process would not see our end
        _become(process, opened[-1], wait, report, parent)
    for descriptor in (writing, wait, report, opened[-1]):
        os.close(descriptor)
    os.set_blocking(output, False)
    return Launched(pid, output, release, error)


def reset_signals() -> None:
    """Reset all signals to their defaults: a program inherits ignored and blocked ones."""
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError):  # SIGKILL, SIGSTOP, and those of the C library
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def become_subreaper() -> None:
    """Have descendants that lose their parent become children of this process.

    Raises: OSError: the kernel refuses.
    """
    _ask("have orphans as children", _SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent dies. Returns: False if *parent* is dead already.

    Raises: OSError: the kernel refuses.
    """
    _ask("die with the parent", _SET_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent


def outlive_parent() -> None:
    """Undo `die_with`. Raises: OSError."""
    _ask("outlive the parent", _SET_DEATH_SIGNAL, 0)


def _ask(action: str, option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {action}, prctl refuses: {os.strerror(number)}")


def _become(process: Process, output: int, wait: int, report: int, parent: int) -> NoReturn:
    """In the child: become the program, or report the reason against it."""
    step = "prepare it"
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, null), (1, output), (2, output)):
            os.dup2(source, target)
        step = "limit it"
        _limit(process)
        step = "wait"
        if not os.read(wait, 1):
            os._exit(NEVER_RELEASED)
        step = f"become user {process['uid']}"
        _become_user(process)
        step = f"enter its folder {process['cwd']}"
        os.chdir(process["cwd"])
        step = f"run {process['path']}"
        reset_signals()
        if parent and not die_with(parent):  # after it has become its user: the kernel resets the setting then
            os._exit(NEVER_RELEASED)
        os.execve(process["path"], process["argv"], process["env"])
    except BaseException as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        with contextlib.suppress(OSError):
            os.write(report, f"cannot {step}: {why}".encode())
    finally:
        os._exit(NOT_STARTED)


def _limit(process: Process) -> None:
    if process["cgroup"]:
        with open(os.path.join(process["cgroup"], "cgroup.procs"), "w") as file:
            file.write("0")
    for name, bounds in process["limits"].items():
        number = getattr(resource, name)
        _, most = resource.getrlimit(number)
        soft, hard = (bound if most == resource.RLIM_INFINITY else min(bound, most) for bound in bounds)
        resource.setrlimit(number, (soft, hard))


def _become_user(process: Process) -> None:
    if (process["groups"] or process["uid"] >= 0) and os.geteuid() == 0:
        os.setgroups(process["groups"])
    if process["gid"] >= 0 and process["gid"] != os.getegid():
        os.setgid(process["gid"])
    if process["uid"] >= 0 and process["uid"] != os.geteuid():
        os.setuid(process["uid"])
