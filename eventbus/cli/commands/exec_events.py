"""Records the lifecycle of a command for `eventbus exec`, with the kubelet's reasons; never delays the command."""

from __future__ import annotations

import logging
import re
import threading
import time
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from eventbus.errors import EventBusError
from eventbus.util.outcome import Outcome, duration, signal_name

if TYPE_CHECKING:
    from eventbus.cli.process.signal_queue import Caught
    from eventbus.model.event import ObjectReference
    from eventbus.record.broadcaster import EventBroadcaster

COMPONENT: Final = "eventbus-exec"
NORMAL, WARNING = "Normal", "Warning"
#: Seconds to wait for an unreachable bus after the command's end, because it may be restarting.
AWAY_S: Final = 2.0
#: Seconds between two checks during that wait.
STEP_S: Final = 0.05
#: The count at the end of the outbox's log line. It is removed, because our own line has the count too.
_WAITING: Final = re.compile(r" \(events waiting: \d+\)$")


class CommandEvents:
    """Records the life of one command. Nothing here waits for Redis, or raises; except `close`.

    The recorder is imported and called in a thread, so that signals are passed on in the meantime. Create it after the
    `SignalQueue`: threads inherit the signal mask.

    Args: command: how the command is called in messages, without its arguments, which may hold secrets.
    """

    def __init__(self, about: ObjectReference, command: str) -> None:
        self._about = about
        self._command = command
        self._events: SimpleQueue[tuple[datetime, str, str, str] | None] = SimpleQueue()
        self._count = 0
        self._broadcaster: EventBroadcaster | None = None
        self._problem = LastProblem()
        self._thread = threading.Thread(target=self._run, name="eventbus-recording", daemon=True)

    def started(self) -> None:
        self._record(NORMAL, "Started", f"Started {self._command}")

    def ended(self, outcome: Outcome) -> None:
        """Completed, or a Warning with exit code and last line."""
        if outcome.failed:
            self._record(WARNING, "Failed", f"{self._command}: {outcome}")
        else:
            self._record(NORMAL, "Completed", f"Completed {self._command} after {duration(outcome.ran_s)}")

    def cannot_start(self, outcome: Outcome) -> None:
        self._record(WARNING, "Failed", f"{self._command} {outcome.last_line}")

    def killing(self, caught: Caught) -> None:
        """A signal was passed on to the command, or came to both from the terminal."""
        name = signal_name(caught.number)
        source = f"{name} from the terminal" if caught.from_terminal else f"passed on {name}"
        self._record(NORMAL, "Killing", f"Stopping {self._command}: {source}")

    def backing_off(self) -> None:
        # The same message each time, as the kubelet has it, so that repeats are counted.
        self._record(WARNING, "BackOff", f"Back-off restarting failed command {self._command}")

    def not_restarting(self, number: int) -> None:
        """Signal *number* arrived while the command was not running. It is not restarted."""
        self._record(NORMAL, "Killing", f"Stopped while waiting to restart {self._command} ({signal_name(number)})")

    def close(self) -> str:
        """Send the remaining events; return one line about events that could not be sent, or "".

        Blocks for at most the settings' `flush_s`; `AWAY_S` if the bus is unreachable; not at all if it is unusable.
        """
        self._events.put(None)
        self._thread.join()
        broadcaster, unsent = self._broadcaster, self._count
        if broadcaster is not None:
            if broadcaster.shutdown(self._wait(broadcaster)):
                return ""
            from eventbus.record.losses import TRUNCATED

            unsent = sum(n for cause, n in broadcaster.losses.counts.items() if cause != TRUNCATED)
            self._problem.text = self._problem.text or f"not within {broadcaster.settings.flush_s:g} s"
        return f"{unsent} event{'' if unsent == 1 else 's'} not sent: {self._problem.text}"

    def _record(self, event_type: str, reason: str, message: str) -> None:
        self._events.put((datetime.now(UTC), event_type, reason, message))
        self._count += 1
        if self._count == 1:
            self._thread.start()

    def _run(self) -> None:
        logger = logging.getLogger("eventbus")
        logger.addHandler(self._problem)
        logger.propagate = False
        from eventbus.record.broadcaster import EventBroadcaster

        try:
            self._broadcaster = EventBroadcaster()
            recorder = self._broadcaster.new_recorder(COMPONENT)
        except EventBusError as error:
            self._problem.text = str(error)
            return
        while event := self._events.get():
            when, event_type, reason, message = event
            recorder.past_eventf(self._about, when, event_type, reason, "%s", message)

    def _wait(self, broadcaster: EventBroadcaster) -> float:
        """Wait until all events are sent, or a problem is logged. Returns: the remaining seconds."""
        flush_s = broadcaster.settings.flush_s
        if broadcaster.flush(0):
            return flush_s
        if not broadcaster.settings.url:
            # The outbox imports it too, which is slow on a busy machine. The timeout starts after the import.
            import redis  # noqa: F401

        start_s = time.monotonic()
        while not self._problem.text and not broadcaster.flush(STEP_S):
            if time.monotonic() - start_s >= flush_s:
                return 0.0
        longest = AWAY_S if self._problem.text else flush_s
        return max(0.0, min(longest, flush_s) - (time.monotonic() - start_s))


class LastProblem(logging.Handler):
    """Keeps the last warning of the outbox about an unreachable bus."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message, and the error that was logged with it."""
        if getattr(record, "cause", "") == "unsent":
            return  # the count of unsent events, which `close` returns itself
        self.text = _WAITING.sub("", record.getMessage())
        if record.exc_info and record.exc_info[0]:
            self.text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})"
