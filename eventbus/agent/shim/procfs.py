"""Reads /proc: the process that a pid means now, and its children. Linux only."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import NamedTuple

#: In the environment of every process of a pod: the run it belongs to, see `mark`. Children inherit it.
MARK = "EVENTBUS_CONTAINER_ID"
_ZOMBIE, _DEAD = "Z", "X"
#: The longest wait for a process that executes another program, seconds: usually milliseconds, until its memory is
#: freed; longer if the disk of the program hangs.
_BECOMES_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.001


class Process(NamedTuple):
    """One line of /proc/PID/stat. *start_ticks*: since boot; pid and start ticks identify a process."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def gone(self) -> bool:
        """True if it has ended and waits to be reaped."""
        return self.state in (_ZOMBIE, _DEAD)


def read_process(pid: int) -> Process | None:
    """Return the process of that pid; None: there is none."""
    fields = _stat(pid)
    if fields is None:
        return None
    state, parent, group, session = fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])
    return Process(pid, state, parent, group, session, int(fields[19]))


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat after the name; None: there is no such process."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        line = os.read(file, 1024)
    except OSError:  # it ended in between
        return None
    finally:
        os.close(file)
    # The name stands in brackets and may hold any byte, brackets among them.
    return line[line.rindex(b")") + 2 :].split()


def is_alive(pid: int, start_ticks: int) -> bool:
    """Return True if that process runs. A process that waits to be reaped does not run."""
    process = read_process(pid) if pid > 0 else None
    return process is not None and process.start_ticks == start_ticks and not process.gone


def all_processes() -> list[Process]:
    """Return all visible processes."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [process for pid in pids if (process := read_process(pid)) is not None]


def mark(run_id: str, folder: str) -> str:
    """Name the run of the pod in *folder*: two agents of one machine may have pods of one uid, from the same file."""
    return f"{run_id} {folder}"


def mark_of(pid: int) -> str:
    """Return the mark of the run that a process belongs to; "": to none, or it cannot be read.

    Blocks while it becomes another program, a second at the most: until it is that, its environment reads as empty.
    """
    deadline = time.monotonic() + _BECOMES_WITHIN_S
    try:
        while not (environ := _environ(pid)) and _has_environ(pid) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
    except OSError:
        return ""
    begin = MARK.encode() + b"="
    variable = next((item for item in environ.split(b"\0") if item.startswith(begin)), b"")
    return variable[len(begin) :].decode("utf-8", "replace")


def _environ(pid: int) -> bytes:
    """Raises: OSError."""
    with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
        return file.read()


def _has_environ(pid: int) -> bool:
    """Return True if the environment of a process reads as empty, but is not, or will not be in a moment."""
    if (fields := _stat(pid)) is None or not int(fields[20]):  # a thread of the kernel, or it has ended: no memory
        return False
    code, begin, end = int(fields[23]), int(fields[47]), int(fields[48])
    return not code or begin != end  # its code's place is known when it has become its program, and not before


def descendants(pid: int, processes: list[Process]) -> list[Process]:
    """The children of *pid* among *processes*, theirs, and so on; not *pid* itself."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    below_pid, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        below_pid += below
        waiting += [process.pid for process in below]
    return below_pid


@cache
def boot_id() -> str:
    """Return the kernel's id of this boot. It is read once: no process outlives a boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
