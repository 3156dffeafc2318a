"""The signals of a zygote and of its shims. The zygote sets them: a shim that did would have 200 KiB more."""

from __future__ import annotations

import contextlib
import os
import signal

#: The signals that have asked this process to end.
asked_to_end: list[int] = []
_zygote = 0


def begin_with_defaults() -> None:
    """Begin as a program expects to: an ignored signal is inherited by a program, and so is one that is blocked."""
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError):  # SIGKILL, SIGSTOP, and those of the C library
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def ignore_signals() -> None:
    """Ignore signals that mean nothing to a zygote and its shims; reset those that the agent ignored or blocked."""
    begin_with_defaults()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


def handle_signals() -> None:
    """Be the zygote: end at SIGTERM, and wait for no shim. Its shims only remember the signals they got."""
    global _zygote
    _zygote = os.getpid()
    signal.signal(signal.SIGCHLD, _child_ended)
    signal.signal(signal.SIGTERM, _end)


def be_no_zygote() -> None:
    """Be a worker of a shim, which may have got the number of a zygote that is gone. A shim never has."""
    global _zygote
    _zygote = 0


def wake_by_signals() -> int:
    """Return a descriptor that can be read once a signal has come."""
    wake, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    return wake


def sleep_through_signals(wake: int) -> None:
    """Undo `wake_by_signals`."""
    os.close(signal.set_wakeup_fd(-1))
    os.close(wake)


def _child_ended(*_signal: object) -> None:
    if os.getpid() == _zygote:  # a shim's children are its own to reap, once their ends are written down
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def _end(number: int, _frame: object) -> None:
    if os.getpid() == _zygote:
        os._exit(0)
    asked_to_end.append(number)
