"""Records the life of a command for `eventbus exec`, under the kubelet's reasons; never in the way of the command."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from eventbus.errors import EventBusError
from eventbus.event import ObjectReference
from eventbus.process.outcome import Outcome, duration, signal_name

if TYPE_CHECKING:
    from eventbus.process.signal_queue import Caught
    from eventbus.record.broadcaster import EventBroadcaster
    from eventbus.record.recorder import EventRecorder

COMPONENT = "eventbus-exec"
NORMAL, WARNING = "Normal", "Warning"

#: A bus that is known to be away gets so long after the command's end: it may just be restarting.
AWAY_S = 2.0
#: How often that is looked at.
STEP_S = 0.05

#: How many are waiting is the end of the outbox's line; at the end of ours it would be said twice.
_WAITING = re.compile(r" \(\d+ events wait\)$")


class CommandEvents:
    """Records the life of one command about one object. Nothing here waits for Redis, or raises; except `close`.

    Args: command: how the command is called in messages, without its arguments, which may hold secrets.
    """

    def __init__(self, about: ObjectReference, command: str) -> None:
        self._about = about
        self._command = command
        self._broadcaster: EventBroadcaster | None = None
        self._recorder: EventRecorder | None = None
        self._problem = _LastProblem()

    def started(self) -> None:
        self._write(NORMAL, "Started", f"Started {self._command}")

    def ended(self, outcome: Outcome) -> None:
        if outcome.failed:
            self._write(WARNING, "Failed", f"{self._command}: {outcome}")
        else:
            self._write(NORMAL, "Completed", f"Completed {self._command} after {duration(outcome.ran_s)}")

    def cannot_start(self, outcome: Outcome) -> None:
        self._write(WARNING, "Failed", f"{self._command} {outcome.last_line}")

    def killing(self, caught: Caught) -> None:
        name = signal_name(caught.number)
        said = f"{name} from the terminal" if caught.from_terminal else f"passed on {name}"
        self._write(NORMAL, "Killing", f"Stopping {self._command}: {said}")

    def backing_off(self, pause_s: float) -> None:
        self._write(WARNING, "BackOff", f"Back-off {pause_s:g}s restarting {self._command}")

    def not_restarting(self, number: int) -> None:
        self._write(NORMAL, "Killing", f"Stopped while waiting to restart {self._command} ({signal_name(number)})")

    def close(self) -> str:
        """Send what is left; return one line that says what could not be sent, empty: all was.

        Blocks for at most the settings' `flush_s`, `AWAY_S` if the bus is away, not at all for one that never will do.
        """
        if self._broadcaster is None:
            return f"no events were recorded: {self._problem.text}" if self._problem.text else ""
        if self._broadcaster.shutdown(self._wait(self._broadcaster)):
            return ""
        unsent = sum(self._broadcaster.losses.counts.values())
        why = self._problem.text or f"not within {self._broadcaster.settings.flush_s:g} s"
        return f"{unsent} event{'' if unsent == 1 else 's'} not sent: {why}"

    def _wait(self, broadcaster: EventBroadcaster) -> float:
        """Wait until everything is sent, or something is in the way. Returns the seconds that are left after that."""
        flush_s = broadcaster.settings.flush_s
        if broadcaster.flush(0):
            return flush_s
        # The outbox is importing it, too, which takes long on a busy machine. The time of the bus begins after that.
        import redis  # noqa: F401

        began = time.monotonic()
        while not self._problem.text and not broadcaster.flush(STEP_S):
            if time.monotonic() - began >= flush_s:
                return 0.0
        longest = AWAY_S if self._problem.text else flush_s
        return max(0.0, min(longest, flush_s) - (time.monotonic() - began))

    def _write(self, event_type: str, reason: str, message: str) -> None:
        if self._broadcaster is None and not self._problem.text:
            self._open()
        if self._recorder is not None:
            self._recorder.event(self._about, event_type, reason, message)

    def _open(self) -> None:
        """Open the bus at the first event, when the command is already running, since imports take time."""
        logger = logging.getLogger("eventbus")
        logger.addHandler(self._problem)
        logger.propagate = False  # standard error is the command's; one line at the end says what was wrong
        try:
            from eventbus.record.broadcaster import EventBroadcaster

            self._broadcaster = EventBroadcaster()
            self._recorder = self._broadcaster.new_recorder(COMPONENT)
        except EventBusError as error:
            self._problem.text = str(error)


class _LastProblem(logging.Handler):
    """Keeps what the outbox logs about a bus that is away."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.args and "unsent" in record.args:
            return  # the count of what is left, which `close` says itself
        self.text = _WAITING.sub("", record.getMessage())
        if record.exc_info and record.exc_info[0]:
            self.text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})"
