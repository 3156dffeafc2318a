"""The outcome of a program's run, and the words for it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
from typing import NamedTuple, NoReturn

from eventbus.util.human_duration import human_duration
from eventbus.util.text import cut_bytes, printable

#: The exit codes of shells for a program that does not exist, and for one that cannot be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
#: A program that a signal ended has this plus the signal's number as its exit code, as in shells.
BY_SIGNAL = 128
#: bytes of the last line in a message
LINE_BYTES = 512

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


class Outcome(NamedTuple):
    """One run. *code*: as a shell reports it, 0 to 255.  *by_signal*: 0, or the signal that ended it."""

    code: int
    by_signal: int = 0
    ran_s: float = 0.0
    last_line: str = ""  #: of its standard error; empty if there was none or it was not read

    @classmethod
    def of_status(cls, status: int, ran_s: float, last_line: str = "") -> Outcome:
        """Make an outcome from the status of `waitpid`."""
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return cls(BY_SIGNAL - code, -code, ran_s, last_line)
        return cls(code, 0, ran_s, last_line)

    @property
    def failed(self) -> bool:
        return self.code != 0

    def __str__(self) -> str:
        """Format as `exit code 3 after 12s: last line`."""
        ended = f"ended by {signal_name(self.by_signal)}" if self.by_signal else f"exit code {self.code}"
        said = f": {self.last_line}" if self.last_line and self.failed else ""
        return f"{ended} after {duration(self.ran_s)}{said}"


def signal_name(number: int) -> str:
    """Return `SIGTERM`; a real-time signal has only a number: `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def duration(seconds: float) -> str:
    """Format whole seconds as kubectl does, `3m27s`, or `<1s`.

    Equal words let the runs of a crash loop count as one."""
    return "<1s" if seconds < 1 else human_duration(seconds)


def last_line(output: bytes) -> str:
    """Return the last line of *output* that has something to read in it, without colours; empty: there is none."""
    text = _ESCAPES.sub("", output.decode("utf-8", "replace"))
    for line in reversed(re.split(r"[\r\n]+", text)):
        if line.strip():
            return cut_bytes(printable(line.strip()), LINE_BYTES)
    return ""


def say(line: str) -> None:
    """Write a line to standard error, which may be closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def end_as(outcome: Outcome) -> NoReturn:
    """End as the command did, by the same signal if any: shells stop a script after Ctrl-C only then."""
    if outcome.by_signal:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has dumped its core; ours is of no use
            if outcome.by_signal not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(outcome.by_signal, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {outcome.by_signal})
            os.kill(os.getpid(), outcome.by_signal)
    sys.exit(outcome.code)
