"""Ends processes of a pod without a shim, by pid and start time, which alone identify them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from eventbus.agent.runtime.contract import RuntimeProblem
from eventbus.agent.shim.procfs import Process, all_processes, descendants, is_alive, mark_of
from eventbus.agent.shim.state import EXITED, State, is_this_boot
from eventbus.util.clock import Clock

#: Pauses between two searches of all processes: the first, the factor, the longest.
_FIRST_LOOK_S, _LONGER, _MOST_LOOK_S = 0.02, 1.5, 1.0
#: The longest wait for killed processes: a process may hang in the kernel.
_GONE_WITHIN_S = 5.0


def leftovers(state: State, folder: str) -> list[Process]:
    """Return the processes of the pod in *folder* that run without a shim: its runs and their descendants."""
    if not is_this_boot(state):
        return []
    processes = all_processes()
    by_pid = {process.pid: process for process in processes}
    left: dict[int, Process] = {}
    for run in state["runs"]:
        process = by_pid.get(run["pid"])
        if run["phase"] != EXITED and process and process.start_ticks == run["start_ticks"] and not process.gone:
            left[process.pid] = process
            left |= {below.pid: below for below in descendants(process.pid, processes)}
    # Those that left their session and lost their parents carry the run's mark still.
    begin, end = f"{state['uid']}/", f" {folder}"
    marks = {process: mark_of(process.pid) for process in processes if not process.gone}
    left |= {process.pid: process for process, mark in marks.items() if mark.startswith(begin) and mark.endswith(end)}
    left.pop(state["sandbox"]["shim_pid"], None)
    return list(left.values())


def end_leftovers(state: State, folder: str, grace_s: float, clock: Clock) -> bool:
    """End them: SIGTERM, after *grace_s* SIGKILL. Returns: whether all have ended."""
    _signal(leftovers(state, folder), signal.SIGTERM)
    left = _look(state, folder, grace_s, clock)
    if left:
        left = _look(state, folder, _GONE_WITHIN_S, clock, signal.SIGKILL)
    return not left


def _look(
    state: State, folder: str, seconds: float, clock: Clock, number: signal.Signals | None = None
) -> list[Process]:
    """Wait for the remaining processes, and send them *number* each time. Returns: the processes that did not end."""
    deadline, pause_s = clock.monotonic() + seconds, _FIRST_LOOK_S
    while (left := leftovers(state, folder)) and (left_s := deadline - clock.monotonic()) > 0:
        if number is not None:
            _signal(left, number)
        clock.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * _LONGER, _MOST_LOOK_S)
    return left


def kill_shim(state: State, clock: Clock) -> None:
    """Kill a shim that does not answer, if it is still that process. Raises: RuntimeProblem: it hangs in the kernel."""
    if not is_this_boot(state):
        return
    pid, ticks = state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"]
    deadline = clock.monotonic() + _GONE_WITHIN_S
    while is_alive(pid, ticks):
        if clock.monotonic() > deadline:
            raise RuntimeProblem(f"the shim of pod {state['namespace']}/{state['name']}, pid {pid}, cannot be killed")
        send_signal(pid, ticks, signal.SIGKILL)
        clock.sleep(_FIRST_LOOK_S)


def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(PermissionError):
            send_signal(process.pid, process.start_ticks, number)


def send_signal(pid: int, start_ticks: int, number: signal.Signals) -> None:
    """Send a signal to that process, if it runs. Raises: OSError: it may not be sent.

    A pidfd always means the same process. A pid could be reused after the check.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(pid, start_ticks):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)
