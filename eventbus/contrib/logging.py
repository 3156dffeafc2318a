"""A `logging.Handler` that records warnings and errors as events about one object."""

from __future__ import annotations

import logging
import re
import threading

from eventbus.contrib.functions import described
from eventbus.model.reference import reference_to
from eventbus.model.validation import MAX_NEW_MESSAGE, MAX_REASON
from eventbus.record.recorder import EventRecorder
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.text import cut_bytes

#: Records of one handler at once, and then a second. The bus lets through 25 events of a source and object anyway;
#: this keeps a storm of records out of the outbox, where it would push out the events of others.
BURST, PER_SECOND = 100, 10
#: Seconds after which suppressed records are reported, if no later record has reported them.
TELL_AFTER_S = 2.0
#: The sender thread. Its own log records (redis, ssl) must not become events, because it would have to send them too.
SENDER = "eventbus-outbox"

_WORD = re.compile(r"[A-Za-z0-9]+")


class EventHandler(logging.Handler):
    """Records log records as events about *object*.

        logging.getLogger().addHandler(EventHandler(recorder, "Service/checkout"))

    Records of level WARNING and above become Warning events, all others Normal. The reason consists of the logger's
    last name and the function: `payments` and `charge_card` become `PaymentsChargeCard`. Set a better one with
    `extra={"reason": "CardDeclined"}`. The message is the record's, with the exception and without the traceback; at
    most 1024 bytes.

    Never waits for Redis (unless EVENTBUS_BUFFER_FULL=wait). The rate limit is a burst of 100 records, then 10 a
    second. An event reports the number of suppressed records: with the next record that is allowed, after 2 s, or when
    the handler is flushed or closed. Log records of eventbus itself are skipped, so that problems with the bus cause no
    events.

    Args:   object: any value that `EventRecorder.event` accepts.  namespace: for objects without a namespace.
            level: records below it are ignored.  clock: for tests.
    Raises: InvalidEvent: *object* names nothing.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        object: object,
        level: int | str = logging.WARNING,
        *,
        namespace: str = "default",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(level)
        self._recorder = recorder
        self._about = reference_to(object, namespace)
        self._limit = _Limit(clock or SystemClock())
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Record an event for *record*; `logging` calls it with the handler's lock held."""
        if _is_of_eventbus(record):
            return
        try:
            if self._limit.allows():
                self._tell_held_back()
                self._record(record.levelno, reason_of(record), _message_of(record))
            else:
                self._tell_soon()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Record the number of suppressed records now."""
        self.acquire()
        try:
            timer, self._timer = self._timer, None
            if timer:
                timer.cancel()
            self._tell_held_back()
        finally:
            self.release()

    def close(self) -> None:
        """Record the number of suppressed records, then close the handler."""
        self.flush()
        super().close()

    def _tell_soon(self) -> None:
        # The timer thread runs until then or until `flush`. After a fork, the parent's timer thread is not alive.
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(TELL_AFTER_S, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def _tell_held_back(self) -> None:
        if held_back := self._limit.take_held_back():
            self._record(logging.WARNING, "LogHeldBack", f"{held_back} log records were held back")

    def _record(self, level: int, reason: str, message: str) -> None:
        event_type = "Warning" if level >= logging.WARNING else "Normal"
        self._recorder.event(self._about, event_type, reason, cut_bytes(message, MAX_NEW_MESSAGE))


class _Limit:
    """A token bucket that counts rejected records. Used with the handler's lock held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._filled = clock.monotonic()
        self._held_back = 0

    def allows(self) -> bool:
        now = self._clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            self._held_back += 1
            return False
        self._tokens -= 1
        return True

    def take_held_back(self) -> int:
        held_back, self._held_back = self._held_back, 0
        return held_back


def _is_of_eventbus(record: logging.LogRecord) -> bool:
    """Return True if the record is eventbus's own: to record it could make more of its kind."""
    name = record.name
    return name == "eventbus" or name.startswith("eventbus.") or threading.current_thread().name == SENDER


def reason_of(record: logging.LogRecord) -> str:
    """Return the record's own `reason`, else logger and function in CamelCase."""
    given = getattr(record, "reason", None)
    if isinstance(given, str) and given:
        return cut_bytes(given, MAX_REASON)
    function = "" if record.funcName in (None, "<module>", "<lambda>") else record.funcName
    words = _WORD.findall(f"{record.name.rpartition('.')[2]} {function}")
    return cut_bytes("".join(word[0].upper() + word[1:] for word in words), MAX_REASON) or "Logged"


def _message_of(record: logging.LogRecord) -> str:
    """Return the message that was logged, with the exception's own text."""
    message = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return message
    return f"{message}: {described(error)}" if message else described(error)
