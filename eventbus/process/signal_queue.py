"""Queues the signals of this process, each marked whether the command has had it already."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from types import FrameType
from typing import NamedTuple

#: Those that ask a program to end; by SIGABRT a watchdog does.
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGXCPU})
#: Those that stop and continue a job.
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGCONT})
#: Those that a terminal sends to every process of the foreground group at once. SIGHUP is left out: when its session's
#: leader is this process, the terminal tells nobody else that it went away.
OF_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGTSTP})

#: Not passed on: faults of this process itself, its own children and timers, what nobody can catch, and the stops of a
#: process that uses its terminal from the background.
_FAULTS = ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "EMT", "PIPE")
_OWN = ("CHLD", "PROF", "VTALRM", "URG", "IO", "INFO")
_STOPS = ("KILL", "STOP", "TTIN", "TTOU")
_OURS = frozenset(getattr(signal, f"SIG{name}", 0) for name in (*_FAULTS, *_OWN, *_STOPS))

#: si_code of what the kernel sends by itself (Linux, SI_KERNEL); a terminal's signals have it, those of `kill` do not.
_BY_KERNEL = 0x80


class Caught(NamedTuple):
    """A signal. *from_terminal*: the whole foreground group received it, this process's children too."""

    number: int
    from_terminal: bool = False


class SignalQueue:
    """Catches every signal that has a meaning between programs; whoever holds the queue passes them on.

    A signal that was ignored at the start (`nohup`) stays so. SIGCHLD only ends a `wait`, one that follows those for
    what the terminal had sent before. Made by the main thread before it starts any other; for the rest of the process's
    life.

    Args: numbers: those to catch.  tell_terminal: find out where a signal is from. Without it, or where the system
    cannot say (macOS), what could be the terminal's is taken to be, as long as this process is in its foreground.
    """

    def __init__(self, numbers: frozenset[int], *, tell_terminal: bool = True) -> None:
        self._caught: deque[Caught | None] = deque()  # None: a child has ended
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        #: What a child has to be started with: the mask of before.
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
        """Return the next signal; None: something else happened (a child ended, `wake` was called), or the time is up.

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
        """Have a thread take *numbers* one by one, with what the kernel knows of each, which a handler is not given.

        It takes SIGCHLD, too. Of several the kernel gives the lowest first: what ended a command comes before its end.
        """
        if not numbers:
            return
        numbers |= {signal.SIGCHLD}
        # Threads inherit the mask, so no other one can be interrupted by them either.
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
