"""Starts one process, which waits for a word before it becomes the program: nothing runs that is not remembered."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import NoReturn

from eventbus.agent.shim.prctl import die_with
from eventbus.agent.shim.procfs import read_process
from eventbus.agent.shim.protocol import MOST_PROBLEM_CHARS, Process
from eventbus.agent.shim.signals import begin_with_defaults

#: The exit code of a process that never became the program: it was not released, or the program could not be run.
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


class Pipes:
    """The pipes of a new process: for its output, for the word that releases it, and for the error that keeps it from
    becoming its program. Raises: OSError."""

    __slots__ = ("_error", "_say", "_wait", "_word", "reading", "writing")

    def __init__(self) -> None:
        made = [*os.pipe()]
        try:
            made += os.pipe()
            made += os.pipe()
        except OSError:
            for descriptor in made:
                os.close(descriptor)
            raise
        self.reading, self.writing, self._wait, self._word, self._error, self._say = made

    def release(self) -> str:
        """Let the process become its program. Returns: "", or why it could not; it ends then. Blocks until it knows.

        All is closed but `reading`, the output.
        """
        for its in (self.writing, self._wait, self._say):
            os.close(its)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._word, b"!")
        os.close(self._word)
        said = b""
        while data := os.read(self._error, 4096):
            said += data
        os.close(self._error)
        return said.decode("utf-8", "replace")[:MOST_PROBLEM_CHARS] if said else ""

    def close(self) -> None:
        """Close all: nothing was started."""
        for descriptor in (self.reading, self.writing, self._wait, self._word, self._error, self._say):
            os.close(descriptor)

    def keep_its(self) -> None:
        """In the process: close all pipes but those for its release and its error, so that its maker's end is seen."""
        os.close(self._word)  # to look for the others takes one
        close_all_but(self._wait, self._say)

    def wait(self) -> bool:
        """In the process: wait for the word. Returns: False if the process that was to give it is dead."""
        return bool(os.read(self._wait, 1))

    def say(self, problem: str) -> None:
        """In the process: say why it does not become its program."""
        os.write(self._say, problem.encode())


def launch(process: Process, output: int, pipes: Pipes, *, maker: int = 0) -> tuple[int, int]:
    """Make a process with a session of its own, both streams of which go to *output*. It waits for its release, and
    ends without having done anything if all that could release it die. It dies with *maker*, us, unless that is 0.

    Returns: its pid and its start time, in ticks. Raises: OSError: no process.
    """
    pid = os.fork()
    if pid == 0:
        _become(process, output, pipes, maker)
    found = read_process(pid)
    return pid, found.start_ticks if found else 0


def drop(pid: int) -> None:
    """End a process of ours that was made and not released: it has done nothing."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def close_all_but(*kept: int) -> None:
    """Close all descriptors but *kept* and the first three. Raises: OSError: there is none to look for them."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that was looked with
                os.close(int(name))


def _become(process: Process, output: int, pipes: Pipes, maker: int) -> NoReturn:
    """In the child: become the program, or say why not."""
    step = "prepare it"
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        pipes.keep_its()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        step = "limit it"
        _limit(process)
        step = "wait"
        if not pipes.wait():
            os._exit(NEVER_RELEASED)
        step = f"become user {process['uid']}"
        _become_user(process)
        step = f"enter its folder {process['cwd']}"
        os.chdir(process["cwd"])
        step = f"run {process['path']}"
        begin_with_defaults()
        if maker and not die_with(maker):  # not before it has become its user, which forgets that
            os._exit(NEVER_RELEASED)
        os.execve(process["path"], process["argv"], process["env"])
    except BaseException as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        with contextlib.suppress(OSError):
            pipes.say(f"cannot {step}: {why}")
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
