"""Where the console command begins. Nothing is imported above that takes long enough to be interrupted."""

from __future__ import annotations

import os
import signal
from types import FrameType

#: What a shell reports for a program that ended by Ctrl-C.
INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C ends it without a word, also while it is being imported."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not for what `nohup` and the like have ignored
        signal.signal(signal.SIGINT, _end)
    from workers.cli import main as program

    signal.signal(signal.SIGINT, handler)
    program(prog_name="eventbus")


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
