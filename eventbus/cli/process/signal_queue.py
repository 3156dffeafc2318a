"""Queues the signals of this process, and marks those that the terminal also sent to the command."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from types import FrameType
from typing import NamedTuple

#: Signals that ask a program to end; a watchdog uses SIGABRT.
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGXCPU})
#: Signals that stop and continue a job.
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGCONT})
#: Signals that a terminal sends to every process of the foreground group. Not SIGHUP: if this process is the session's
#: leader, the terminal sends it to this process only.
OF_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGTSTP})

#: Not passed on: faults of this process, its own children and timers, signals that cannot be caught, and the stops of
#: a process that uses its terminal from the background.
_FAULTS = ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "EMT", "PIPE")
_OWN = ("CHLD", "PROF", "VTALRM", "URG", "IO", "INFO")
_STOPS = ("KILL", "STOP", "TTIN", "TTOU")
_OURS = frozenset(getattr(signal, f"SIG{name}", 0) for name in (*_FAULTS, *_OWN, *_STOPS))

#: si_code of signals from the kernel (Linux, SI_KERNEL): a terminal's signals have it, those of `kill` do not.
_BY_KERNEL = 0x80


class Caught(NamedTuple):
    """A signal. *from_terminal*: the whole foreground group received it, including this process's children."""

    number: int
    from_terminal: bool = False


class SignalQueue:
    """Catches signals, which the owner of the queue passes on to a command.

    A signal that was ignored at the start (`nohup`) stays ignored. SIGCHLD ends a `wait`, after the terminal's earlier
    signals. Created by the main thread before other threads, for the rest of the process's life.

    Args: numbers: the signals to catch.  tell_terminal: find the sender of each signal. Without it, or where the system
    cannot (macOS), signals that a terminal sends count as the terminal's while this process is in its foreground.
    """

    def __init__(self, numbers: frozenset[int], *, tell_terminal: bool = True) -> None:
        self._caught: deque[Caught | None] = deque()  # None: a child has ended
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        #: The signal mask to start children with: the one before ours.
        self.original_mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.signal(signal.SIGCHLD, lambda *_: self._caught.append(None))
        # Python itself ignores SIGXFSZ.
        handled = {
            number for number in numbers if number == signal.SIGXFSZ or signal.getsignal(number) is not signal.SIG_IGN
        }
        for number in handled:
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._can_tell = tell_terminal and hasattr(signal, "sigwaitinfo")
        if self._can_tell:
            self._sort(OF_TERMINAL & handled)

    def wait(self, timeout_s: float | None = None) -> Caught | None:
        """Return the next signal; None: a child ended, `wake` was called, or the time is up.

        Args: timeout_s: None is for ever.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._caught:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            select.select([self._read], [], [], left)
            self._drain()
        return self._caught.popleft() if self._caught else None

    def wake(self) -> None:
        """End a `wait`. Any thread."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # it is full of wake-ups

    def suspend(self) -> None:
        """Stop this process, as SIGTSTP would have, until it is continued. Main thread."""
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        signal.raise_signal(signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTSTP, handler)

    def _drain(self) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            return

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._caught.append(Caught(number, number in OF_TERMINAL and _in_foreground()))

    def _sort(self, numbers: frozenset[int]) -> None:
        """Take *numbers* one by one in a thread, with the kernel's siginfo, which Python's handlers do not get.

        SIGCHLD too. The kernel delivers the lowest number first, so a signal that ended a command precedes its SIGCHLD.
        """
        if not numbers:
            return
        numbers |= {signal.SIGCHLD}
        # Threads inherit the mask, so these signals interrupt no thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        threading.Thread(target=self._take, args=(numbers,), name="eventbus-signals", daemon=True).start()

    def _take(self, numbers: frozenset[int]) -> None:
        while True:
            info = signal.sigwaitinfo(numbers)
            is_child = info.si_signo == signal.SIGCHLD
            self._caught.append(None if is_child else Caught(info.si_signo, info.si_code == _BY_KERNEL))
            self.wake()


def passed_on() -> frozenset[int]:
    """Return the signals that are passed on to a command: those that can be caught and are not this process's own."""
    return frozenset(int(number) for number in signal.valid_signals() if number not in _OURS)


def _in_foreground() -> bool:
    """Return True if this process belongs to the group that the terminal sends its signals to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
