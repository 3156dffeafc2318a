"""The console command `eventbus`, also as `python -m eventbus`.

Modules that take long to import are imported below the handler of Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
from types import FrameType

#: The exit code that a shell reports for a program that ended by Ctrl-C.
INTERRUPTED = 130
#: Objects between two garbage collections. Imports make many objects and no garbage: a tenth of their CPU time.
BETWEEN_COLLECTIONS = 10_000


def main() -> None:
    """Run the command line. Ctrl-C ends it without a word, also while it is being imported."""
    gc.set_threshold(BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # The last collections take a quarter of a short command's CPU time, and free nothing
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if the signal is ignored, as under `nohup`
        signal.signal(signal.SIGINT, _end)
    from eventbus.workers.cli import main as program

    signal.signal(signal.SIGINT, handler)
    program(prog_name="eventbus")


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
