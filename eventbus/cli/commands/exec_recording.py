"""The recording process of `eventbus exec`: sends the events of a command, in place of the process that waits for it.

Started by `RecordingProcess` as `python -P -m eventbus.cli.commands.exec_recording`. Standard input has a
`CommandEvent` a line, and `ASK` asks whether all are sent. Standard output has the answers. At the end of its input it
sends the rest, and writes how many events are `Unsent`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import sys
import time
from typing import Final

import msgspec

from eventbus.cli.commands.exec_events import ASK, DONE, WAITING, CommandEvent, Unsent
from eventbus.errors import EventBusError
from eventbus.model.decodable import decodable
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.losses import TRUNCATED
from eventbus.record.recorder import EventRecorder

COMPONENT: Final = "eventbus-exec"
#: Seconds to wait for an unreachable bus after the command's end, because it may be restarting.
AWAY_S: Final = 2.0
#: Seconds between two checks during that wait.
STEP_S: Final = 0.05
#: Seconds to ask whether Redis still has the events.
CHECK_S: Final = 1.0
#: The count at the end of the outbox's log line. It is removed, because `Unsent` has the count too.
_WAITING_COUNT: Final = re.compile(r" \(events waiting: \d+\)$")


def main() -> None:
    """Send the events of standard input until it is closed: by exec, or because exec was killed."""
    problem = LastProblem()
    logger = logging.getLogger("eventbus")
    logger.addHandler(problem)
    logger.propagate = False
    try:
        broadcaster = EventBroadcaster()
        recorder = broadcaster.new_recorder(COMPONENT)
    except EventBusError as error:
        unsent = _refuse(str(error))
    else:
        _record(broadcaster, recorder)
        unsent = _close(broadcaster, problem)
    _answer(msgspec.json.encode(unsent) + b"\n")


def _record(broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
    for line in sys.stdin.buffer:
        if line == ASK:
            _answer(DONE if not broadcaster.waiting and broadcaster.flush(CHECK_S) else WAITING)
        else:
            event = msgspec.json.decode(line, type=decodable(CommandEvent))
            recorder.past_eventf(event.about, event.time, event.type, event.reason, "%s", event.message)


def _refuse(problem: str) -> Unsent:
    """Count the events of standard input. None can be sent with these settings."""
    events = 0
    for line in sys.stdin.buffer:
        if line == ASK:
            _answer(DONE)
        else:
            events += 1
    return Unsent(events, problem)


def _close(broadcaster: EventBroadcaster, problem: LastProblem) -> Unsent:
    """Send the remaining events.

    Blocks for at most the settings' `flush_s`; `AWAY_S` if the bus is unreachable; not at all if it is unusable.
    """
    if broadcaster.shutdown(_wait(broadcaster, problem)):
        return Unsent(0)
    count = sum(n for cause, n in broadcaster.losses.counts.items() if cause != TRUNCATED)
    return Unsent(count, problem.text or f"not within {broadcaster.settings.flush_s:g} s")


def _wait(broadcaster: EventBroadcaster, problem: LastProblem) -> float:
    """Wait until all events are sent, or a problem is logged. Returns: the remaining seconds."""
    flush_s = broadcaster.settings.flush_s
    if broadcaster.flush(0):
        return flush_s
    if not broadcaster.settings.url:
        # The outbox imports it too, which is slow on a busy machine. The timeout starts after the import.
        import redis  # noqa: F401

    start_s = time.monotonic()
    while not problem.text and not broadcaster.flush(STEP_S):
        if time.monotonic() - start_s >= flush_s:
            return 0.0
    longest = AWAY_S if problem.text else flush_s
    return max(0.0, min(longest, flush_s) - (time.monotonic() - start_s))


def _answer(line: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # exec was killed
        os.write(1, line)


class LastProblem(logging.Handler):
    """Keeps the last warning of the outbox about an unreachable bus."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message, and the error that was logged with it."""
        if getattr(record, "cause", "") == "unsent":
            return  # the count of unsent events, which `_close` returns itself
        self.text = _WAITING_COUNT.sub("", record.getMessage())
        if record.exc_info and record.exc_info[0]:
            self.text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})"


if __name__ == "__main__":
    main()
    gc.freeze()  # The last collections take a third of its CPU time
