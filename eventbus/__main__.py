"""The console command `eventbus`, also as `python -m eventbus`.

Modules that take long to import are imported below the handler of Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: The exit code that a shell reports for a program that ended by Ctrl-C.
INTERRUPTED = 130
#: The commands that run until they are stopped or their child program ends.
LONG = frozenset({"exec", "heartbeat", "up", "worker"})


def main() -> None:
    """Run the command line. Ctrl-C ends it without a word, also while it is being imported."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if the signal is ignored, as under `nohup`
        signal.signal(signal.SIGINT, _end)
    if sys.argv[1:2] == ["exec"] and "_EVENTBUS_COMPLETE" not in os.environ:
        from eventbus.cli.lean_exec import run_lean

        run_lean(sys.argv[2:], on_imported=lambda: signal.signal(signal.SIGINT, handler))
    from eventbus.workers.cli import main as program

    signal.signal(signal.SIGINT, handler)
    if "_EVENTBUS_COMPLETE" in os.environ or LONG.isdisjoint(sys.argv):
        from eventbus.cli.lean import run_short

        run_short(lambda: program(prog_name="eventbus"))
    program(prog_name="eventbus")


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
