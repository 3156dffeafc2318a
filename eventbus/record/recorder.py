"""The recorder: what programs call. It never blocks on the network and never raises into the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from eventbus.clock import Clock
from eventbus.errors import InvalidEvent
from eventbus.event import ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.packing import TYPES, Pending
from eventbus.reference import reference_to

#: `past_eventf` beyond this is a mistake of units, not history.
MOST_PAST = timedelta(days=3652)


class EventRecorder:
    """Records what happens to objects, on behalf of one component on one host. Thread-safe.

    An object is an `ObjectReference`, a mapping, `"Pod/web-0"` or `"shop/Pod/web-0"`, or anything with `kind` and
    `metadata`. What is wrong with a call is logged and counted as `refused`, never raised; each kind of mistake is
    logged when it is first made. Nothing is returned: nobody waits for Redis here.

    Source: client-go tools/record EventRecorder; `past_eventf` as until v0.18.
    """

    __slots__ = ("_clock", "_losses", "_put", "_source", "_time_ns")

    def __init__(
        self, component: str, host: str, *, put: Callable[[Pending], None], losses: Losses, clock: Clock
    ) -> None:
        self._source = (component, host)
        self._put = put
        self._losses = losses
        self._clock = clock
        self._time_ns = clock.time_ns

    def __repr__(self) -> str:
        return f"<EventRecorder of {self._source[0]!r} on {self._source[1]!r}>"

    def event(self, obj: object, event_type: str, reason: str, message: str) -> None:
        """Record that *reason* happened to *obj*. *message* is taken as it is: a `%` is a `%`.

        Args:     event_type: `Normal` or `Warning`.  reason: CamelCase, at most 128 bytes.  message: for people.
        """
        if type(obj) is ObjectReference and type(message) is type(event_type) is str and event_type in TYPES:
            self._put(Pending(self._source, obj, event_type, reason, message, self._time_ns()))
        else:
            self._record(obj, event_type, reason, message)

    def eventf(self, obj: object, event_type: str, reason: str, message_format: str, *args: object) -> None:
        """Record as `event` does, with the message made by `message_format % args`, the way `logging` does it."""
        self._format(obj, event_type, reason, message_format, args)

    def past_eventf(
        self, obj: object, timestamp: datetime, event_type: str, reason: str, message_format: str, *args: object
    ) -> None:
        """Record as `eventf` does, about another time: *timestamp* is first and last; name and correlation keep now.

        Args:     timestamp: aware; within ten years of now.
        """
        try:
            past_ns = self._past(timestamp)
        except Exception as error:  # a time zone is the caller's: it may raise anything
            self._refuse(error if isinstance(error, InvalidEvent) else InvalidEvent("timestamp", _said(error)))
            return
        self._format(obj, event_type, reason, message_format, args, past_ns=past_ns)

    def annotated_eventf(
        self,
        obj: object,
        annotations: Mapping[str, str],
        event_type: str,
        reason: str,
        message_format: str,
        *args: object,
    ) -> None:
        """Record as `eventf` does, with annotations: at most 16, 4 KiB together."""
        self._format(obj, event_type, reason, message_format, args, annotations=annotations)

    def _format(
        self,
        obj: object,
        event_type: str,
        reason: str,
        message_format: str,
        args: tuple[object, ...],
        **more: Any,
    ) -> None:
        values: Any = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        try:
            message = message_format % values if args else message_format
        except Exception as error:  # a format string and its arguments are the caller's: any of them may raise
            self._refuse(InvalidEvent("message", f"cannot be formatted: {_said(error)}"))
            return
        self._record(obj, event_type, reason, message, **more)

    def _record(
        self,
        obj: object,
        event_type: str,
        reason: str,
        message: str,
        past_ns: int = 0,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        try:
            reference = reference_to(obj)
            if not isinstance(message, str):
                raise InvalidEvent("message", f"must be a string, is {type(message).__name__}")
            if not isinstance(event_type, str) or event_type not in TYPES:
                raise InvalidEvent("type", f"Unsupported event type {event_type!r}; use Normal or Warning")
            if annotations is not None:
                annotations = _copied(annotations)
            pending = Pending(
                self._source, reference, event_type, reason, message, self._time_ns(), past_ns, annotations
            )
        except InvalidEvent as error:
            self._refuse(error)
        except Exception as error:  # objects are the caller's: a property may raise anything
            self._refuse(InvalidEvent("involvedObject", f"cannot be read: {_said(error)}"))
        else:
            self._put(pending)

    def _past(self, timestamp: datetime) -> int:
        if not isinstance(timestamp, datetime) or timestamp.utcoffset() is None:
            raise InvalidEvent("timestamp", "must be an aware datetime; say datetime.now(UTC), not utcnow()")
        now = datetime.fromtimestamp(self._time_ns() / 1e9, UTC)
        if abs(now - timestamp) > MOST_PAST:
            raise InvalidEvent("timestamp", f"{timestamp.isoformat()} is more than ten years off")
        since = timestamp - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1) * 1000

    def _refuse(self, error: InvalidEvent) -> None:
        self._losses.count("refused", 1, str(error), mistake=error.kind)


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    """Copy the annotations, so that what the caller changes later does not change the event."""
    try:
        return dict(annotations)
    except Exception as error:
        raise InvalidEvent("metadata.annotations", f"must be a mapping: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Return type and text of a foreign error; the type alone if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
