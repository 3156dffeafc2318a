"""Starts one process, which waits for a word before it becomes the program: nothing runs that is not remembered."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import NoReturn

from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.protocol import Process

#: What a process exits with that never became the program: nobody gave the word, or it could not.
NEVER_RELEASED, NOT_STARTED = 127, 128


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
    """A process that was made and waits for `release`. If its maker dies, it ends without having done anything."""

    def __init__(self, pid: int, release: int, error: int) -> None:
        self.pid = pid
        found = read_process(pid)
        self.start_ticks = found.start_ticks if found else 0
        self._release = release
        self._error = error

    def release(self) -> str:
        """Let it become the program. Returns: "", or why it could not; it has ended then. Blocks until it knows."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._release, b"!")
        os.close(self._release)
        said = b""
        while data := os.read(self._error, 4096):
            said += data
        os.close(self._error)
        return said.decode("utf-8", "replace")

    def drop(self) -> None:
        """End it: it has done nothing."""
        os.close(self._release)
        os.close(self._error)
        os.waitpid(self.pid, 0)


def launch(process: Process, output: int) -> Launched:
    """Make a process with a session of its own, both streams of which go to *output*. Raises: OSError: no process."""
    pipes = [*os.pipe()]
    try:
        pipes += os.pipe()
        pid = os.fork()
    except OSError:
        for descriptor in pipes:
            os.close(descriptor)
        raise
    wait, release, error, say = pipes
    if pid == 0:
        os.close(release)
        _become(process, output, wait, say)
    os.close(wait)
    os.close(say)
    return Launched(pid, release, error)


def _become(process: Process, output: int, wait: int, say: int) -> NoReturn:
    """In the child: become the program, or say why not."""
    step = "prepare it"
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, nothing), (1, output), (2, output)):
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
        _restore_signals()
        os.execve(process["path"], process["argv"], process["env"])
    except BaseException as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        with contextlib.suppress(OSError):
            os.write(say, f"cannot {step}: {why}".encode())
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
    if process["nice"]:
        with contextlib.suppress(OSError):  # nicer is always allowed, the way back is not
            os.setpriority(os.PRIO_PROCESS, 0, process["nice"])
    if process["oom_score_adj"] is not None:
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(process["oom_score_adj"]))


def _become_user(process: Process) -> None:
    if (process["groups"] or process["uid"] >= 0) and os.geteuid() == 0:
        os.setgroups(process["groups"])
    if process["gid"] >= 0 and process["gid"] != os.getegid():
        os.setgid(process["gid"])
    if process["uid"] >= 0 and process["uid"] != os.geteuid():
        os.setuid(process["uid"])


def _restore_signals() -> None:
    """As a program expects to find them: Python ignores some, and a program inherits that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
