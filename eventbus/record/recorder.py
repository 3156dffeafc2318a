"""The recorders, which programs call. They never block on the network and never raise into the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from eventbus.errors import ConfigError, InvalidEvent
from eventbus.model.event import ObjectReference
from eventbus.model.names import is_qualified_name
from eventbus.model.reference import reference_to
from eventbus.model.validation import MAX_COMPONENT, MAX_HOST, MAX_NEW_INSTANCE
from eventbus.record.losses import Losses
from eventbus.record.packing import SHORT_MESSAGE, TEMPLATES, TYPES, Pending, Template, find_template, pack, prepare
from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.text import byte_length, cut_bytes, printable

#: `past_eventf` beyond this is a mistake of units, not history.
MOST_PAST = timedelta(days=3652)
#: Bytes of the problem, of each argument and of the file in a line about a refused event.
_PROBLEM_BYTES, _SHOWN_BYTES, _FILE_BYTES = 300, 80, 200
#: Packages between a caller's line and the recorder.
_BETWEEN = ("eventbus.record.", "eventbus.contrib.", "logging.")


class EventRecorder:
    """Records events about objects, on behalf of one component on one host. Thread-safe.

    An object is an `ObjectReference`, a mapping, `"Pod/web-0"` or `"shop/Pod/web-0"`, or anything with `kind` and
    `metadata`. A mistake in a call is logged and counted as `refused`, never raised; the line names object,
    component, reason and the caller's line, for each kind of mistake when it is first made there. An event has at most
    16 KiB: a message that is too long is cut, ends with `…`, and is counted as `truncated`. Nothing is returned: no
    call waits for Redis.

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
        if type(obj) is ObjectReference and type(message) is str and len(message) <= SHORT_MESSAGE:
            try:
                template = TEMPLATES[self._source, obj, event_type, reason]
            except Exception:  # the first about this object, or it breaks a rule: an argument may even lack a hash
                self._record(obj, event_type, reason, message)
            else:
                self._put(Pending(self._source, obj, event_type, reason, message, self._time_ns(), template))
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
            wrong = error if isinstance(error, InvalidEvent) else InvalidEvent("timestamp", _described(error))
            self._refuse(wrong, obj, reason)
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
        try:
            message = _formatted(message_format, args)
        except InvalidEvent as error:
            self._refuse(error, obj, reason)
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
        cut = False
        try:
            reference = reference_to(obj)
            _check_texts(message, event_type)
            if annotations is not None:
                annotations = _copied(annotations)
            usual, template = (False, None) if annotations else _usual(self._source, reference, event_type, reason)
            pending = Pending(
                self._source, reference, event_type, reason, message, self._time_ns(), template, past_ns, annotations
            )
            if len(message) > SHORT_MESSAGE or not usual:
                pending, cut = prepare(pending)
        except InvalidEvent as error:
            self._refuse(error, obj, reason)
        except Exception as error:  # objects are the caller's: a property may raise anything
            self._refuse(InvalidEvent("involvedObject", f"cannot be read: {_described(error)}"), obj, reason)
        else:
            if cut:
                given = f"message: has {byte_length(message)} bytes, and its end is cut: an event has at most 16 KiB"
                self._count("truncated", given, "message", reference, reason)
            self._put(pending)

    def _past(self, timestamp: datetime) -> int:
        if not isinstance(timestamp, datetime) or timestamp.utcoffset() is None:
            raise InvalidEvent("timestamp", "must be an aware datetime; say datetime.now(UTC), not utcnow()")
        now = datetime.fromtimestamp(self._time_ns() / 1e9, UTC)
        if abs(now - timestamp) > MOST_PAST:
            raise InvalidEvent("timestamp", f"{timestamp.isoformat()} is more than ten years off")
        since = timestamp - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1) * 1000

    def _refuse(self, error: InvalidEvent, obj: object, reason: object) -> None:
        self._count("refused", str(error), error.kind, obj, reason)

    def _count(self, cause: str, problem: str, kind: str, obj: object, reason: object) -> None:
        count_call(self._losses, cause, problem, kind, source=self._source, obj=obj, reason=reason)


class EventsRecorder:
    """Records events of events.k8s.io, on behalf of one controller. Thread-safe.

    Equal events form a series: one event with a count and the time of the last one. Events are equal if controller,
    instance, type, reason, action, *regarding* and *related* are; the note is that of the first. A series ends when
    six to twelve minutes have passed without an event. No event is aggregated or held back as spam.

    A mistake in a call is logged and counted as `refused`, as by `EventRecorder`.

    Source: client-go tools/events EventRecorder. Departure: the rules of the API server are checked here.
    """

    __slots__ = ("_clock", "_losses", "_put", "_source")

    def __init__(
        self, controller: str, instance: str, *, put: Callable[[Pending], None], losses: Losses, clock: Clock
    ) -> None:
        self._source = (controller, instance)
        self._put = put
        self._losses = losses
        self._clock = clock

    def __repr__(self) -> str:
        return f"<EventsRecorder of {self._source[0]!r}, instance {self._source[1]!r}>"

    def eventf(
        self,
        regarding: object,
        related: object | None,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *args: object,
    ) -> None:
        """Record that the controller did *action* to *regarding*, or failed to, because of *reason*.

        Args:   regarding: the object, as for `EventRecorder`.  related: a second object, or None; an unreadable one is
                left out.  event_type: `Normal` or `Warning`.  reason, action: CamelCase, at most 128 bytes.
                note: for people, with *args* as `note % args`; at most 1024 bytes.
        """
        try:
            note = _formatted(note, args)
            reference = reference_to(regarding)
            _check_texts(note, event_type)
            if not action:
                raise InvalidEvent(
                    "action", "is empty; name the act of the controller in one CamelCase word, like Binding"
                )
            pending = Pending(
                self._source,
                reference,
                event_type,
                reason,
                note,
                self._clock.time_ns(),
                action=action,
                related=None if related is None else _related(related),
            )
            pack(pending)
        except InvalidEvent as error:
            count_call(
                self._losses, "refused", str(error), error.kind, source=self._source, obj=regarding, reason=reason
            )
        except Exception as error:  # objects are the caller's: a property may raise anything
            problem = str(InvalidEvent("regarding", f"cannot be read: {_described(error)}"))
            count_call(self._losses, "refused", problem, "regarding", source=self._source, obj=regarding, reason=reason)
        else:
            self._put(pending)


def check_controller(controller: object, instance: object) -> None:
    """Raise unless an `EventsRecorder` can have these names. Raises: ConfigError: with the cure."""
    if not isinstance(controller, str) or not is_qualified_name(controller) or len(controller) > MAX_COMPONENT:
        raise ConfigError(
            f"the controller of a recorder must be a name like 'example.com/controller', of at most {MAX_COMPONENT} "
            f"characters; not {_shown(controller)}"
        )
    if not isinstance(instance, str) or not 0 < byte_length(instance) <= MAX_NEW_INSTANCE:
        raise ConfigError(
            f"the instance of a recorder must be a string of 1 to {MAX_NEW_INSTANCE} bytes; not {_shown(instance)}"
        )


def check_source(component: object, host: object) -> None:
    """Raise unless a recorder can have this *component* and *host*. Raises: ConfigError: with the cure."""
    for name, value, limit in (("component", component, MAX_COMPONENT), ("host", host, MAX_HOST)):
        if not isinstance(value, str):
            example = "like 'scheduler'" if name == "component" else "or left out for this machine's name"
            raise ConfigError(f"the {name} of a recorder must be a string, {example}; not {_shown(value)}")
        if byte_length(value) > limit:
            raise ConfigError(f"the {name} of a recorder has at most {limit} bytes, {_shown(value)} has more")


def count_call(
    losses: Losses, cause: str, problem: str, kind: str, *, source: tuple[str, str], obj: object, reason: object
) -> None:
    """Count a call of a recorder, and say which it was: object, component, reason and the caller's line.

    Args:     kind: which mistake it is; the first of each kind and line is logged at once.
    """
    line = _calling_line()
    call = f"{_named(obj)}, component {_shown(source[0])}, reason {_shown(reason)}, at {line}"
    losses.count(cause, 1, f"{cut_bytes(printable(problem), _PROBLEM_BYTES)} ({call})", mistake=f"{kind} {line}")


def _calling_line() -> str:
    """Return file and line of the program that has called a recorder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith(_BETWEEN):
        frame = frame.f_back
    if frame is None:
        return "an unknown line"
    path = frame.f_code.co_filename
    return f"{path if len(path) <= _FILE_BYTES else '...' + path[-_FILE_BYTES:]}:{frame.f_lineno}"


def _named(obj: object) -> str:
    """Return a name for the object argument of a call, even if it is no object."""
    if isinstance(obj, str):
        return _shown(obj)
    try:
        about = reference_to(obj)
        parts = [str(part) for part in (about.namespace, about.kind, about.name)]
    except Exception:
        return "no object" if obj is None else f"a {type(obj).__name__}"
    return cut_bytes(printable("/".join(part for part in parts if part)), _SHOWN_BYTES) or "an empty reference"


def _shown(value: object) -> str:
    """Return *value* as its caller wrote it; only the type if it is no text or number."""
    if value is None or isinstance(value, int | float):
        return repr(value)
    return cut_bytes(printable(repr(value)), _SHOWN_BYTES) if isinstance(value, str) else f"a {type(value).__name__}"


def _formatted(message_format: str, args: tuple[object, ...]) -> str:
    """Return the message. Raises: InvalidEvent: it cannot be formatted."""
    values: Any = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
    try:
        return message_format % values if args else message_format
    except Exception as error:  # a format string and its arguments are the caller's: any of them may raise
        raise InvalidEvent("message", f"cannot be formatted: {_described(error)}") from None


def _check_texts(message: object, event_type: object) -> None:
    if not isinstance(message, str):
        raise InvalidEvent("message", f"must be a string, is {type(message).__name__}")
    if not isinstance(event_type, str) or event_type not in TYPES:
        raise InvalidEvent("type", f"Unsupported event type {event_type!r}; use Normal or Warning")


def _related(obj: object) -> ObjectReference | None:
    try:
        return reference_to(obj)
    except Exception as error:
        log.debug("a related object is left out: %s", _described(error))
        return None


def _usual(
    source: tuple[str, str], reference: ObjectReference, event_type: str, reason: str
) -> tuple[bool, Template | None]:
    """Return whether such events are right if they are short, and their template. False: `prepare` finds out."""
    try:
        return True, find_template(source, reference, event_type, reason)
    except Exception:
        return False, None


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    """Copy the annotations, so that a later change by the caller does not change the event."""
    try:
        return dict(annotations)
    except Exception as error:
        raise InvalidEvent("metadata.annotations", f"must be a mapping: {_described(error)}") from error


def _described(error: Exception) -> str:
    """Return type and text of a foreign error; the type alone if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
