"""Records the events of `eventbus exec`, in a process of its own: see `process/event_helper.py`. Its socket is fd 0."""

from __future__ import annotations

import json
import logging
import re
import select
import signal
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from eventbus.cli.lean import import_later, leave_to_redis
from eventbus.errors import EventBusError
from eventbus.model.event import ObjectReference
from eventbus.process.event_helper import NOT_FOR_IT

if TYPE_CHECKING:
    from eventbus.record.broadcaster import EventBroadcaster
    from eventbus.record.recorder import EventRecorder

COMPONENT: Final = "eventbus-exec"
#: Seconds to wait for an unreachable bus after the command's end, because it may be restarting.
AWAY_S: Final = 2.0
#: Seconds between two checks during that wait.
STEP_S: Final = 0.05
#: Seconds without a new event after which this process is not needed, if all events are sent.
IDLE_S: Final = 1.0
_READ_BYTES: Final = 65_536
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
#: The count at the end of the outbox's log line. It is removed, because our own line has the count too.
_WAITING: Final = re.compile(r" \(events waiting: \d+\)$")


def main() -> None:
    """Record until the other end is closed, send the remaining events, and answer with the unsent ones."""
    for number in NOT_FOR_IT:
        signal.signal(number, signal.SIG_IGN)  # this process ends when its parent does, not by signals
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    import_later()
    leave_to_redis()
    line = socket.socket(fileno=0)
    recording = Recording()
    told, rest, quiet = 0, b"", False
    while True:
        readable, _, _ = select.select([line], [], [], IDLE_S)
        if not readable:
            if not quiet and recording.sent():
                line.sendall(b"sent %d\n" % told)
                quiet = True
            continue
        data = line.recv(_READ_BYTES)
        if not data:
            break
        quiet = False
        *whole, rest = (rest + data).split(b"\n")
        taken = [json.loads(said) for said in whole]
        told += sum("about" not in said for said in taken)
        # Before recording: if this process dies, the next one gets only the events that it has not taken.
        line.sendall(b"taken %d\n" % told)
        for said in taken:
            recording.take(said)
    unsent, why = recording.close(told)
    line.sendall(json.dumps({"unsent": unsent, "why": why}).encode() + b"\n")


class Recording:
    """Records the events of one object. Only `close` waits for Redis or raises."""

    def __init__(self) -> None:
        self._about = ObjectReference()
        self._broadcaster: EventBroadcaster | None = None
        self._recorder: EventRecorder | None = None
        self._problem = LastProblem()

    def take(self, said: dict[str, Any]) -> None:
        """Process a message: the object of all events, or one event."""
        if "about" in said:
            self._open(said["about"], said["namespace"], said["command"])
        elif self._recorder is not None:
            when = _EPOCH + timedelta(microseconds=said["ns"] // 1000)
            self._recorder.past_eventf(self._about, when, said["type"], said["reason"], "%s", said["message"])

    def sent(self) -> bool:
        """Return True if all events are sent."""
        return self._broadcaster is not None and self._broadcaster.flush(STEP_S)

    def close(self, told: int) -> tuple[int, str]:
        """Send the remaining events; return the number of unsent events, and the reason.

        Blocks for at most the settings' `flush_s`; `AWAY_S` if the bus is unreachable; not at all if it is unusable.
        """
        if self._broadcaster is None:
            return told, self._problem.text if told else ""
        if self._broadcaster.shutdown(self._wait(self._broadcaster)):
            return 0, ""
        from eventbus.record.losses import TRUNCATED

        unsent = sum(n for cause, n in self._broadcaster.losses.counts.items() if cause != TRUNCATED)
        return unsent, self._problem.text or f"not within {self._broadcaster.settings.flush_s:g} s"

    def _open(self, about: str | None, namespace: str, command: str) -> None:
        logger = logging.getLogger("eventbus")
        logger.addHandler(self._problem)
        logger.propagate = False
        try:
            from eventbus.record.broadcaster import EventBroadcaster

            self._about = object_of(about, namespace, command)
            self._broadcaster = EventBroadcaster()
            self._recorder = self._broadcaster.new_recorder(COMPONENT)
        except EventBusError as error:
            self._problem.text = str(error)

    def _wait(self, broadcaster: EventBroadcaster) -> float:
        """Wait until all events are sent, or a problem is logged. Returns: the remaining seconds."""
        flush_s = broadcaster.settings.flush_s
        if broadcaster.flush(0):
            return flush_s
        # The outbox imports it too, which is slow on a busy machine. The timeout for the bus starts after the import.
        import redis  # noqa: F401

        began = time.monotonic()
        while not self._problem.text and not broadcaster.flush(STEP_S):
            if time.monotonic() - began >= flush_s:
                return 0.0
        longest = AWAY_S if self._problem.text else flush_s
        return max(0.0, min(longest, flush_s) - (time.monotonic() - began))


def object_of(about: str | None, namespace: str, command: str) -> ObjectReference:
    """Return the object of the events: KIND/NAME, or the command itself. Raises: InvalidEvent."""
    from eventbus.model.reference import named_reference, reference_to
    from eventbus.model.validation import MAX_NAME
    from eventbus.util.text import cut_bytes

    if about is not None:
        return reference_to(about, namespace)
    checked = named_reference("Command", "command", namespace)
    return ObjectReference(kind=checked.kind, namespace=checked.namespace, name=cut_bytes(command, MAX_NAME))


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
