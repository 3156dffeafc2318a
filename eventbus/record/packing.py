"""Packs a call of a recorder into an event's bytes, or builds the Event itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.encoding.wire import MAX_EVENT_BYTES, pack_array, reference_array, unpack_event
from eventbus.model.event import Event, EventType, ObjectMeta, ObjectReference
from eventbus.model.names import is_dns_label
from eventbus.model.reference import event_name
from eventbus.model.validation import (
    MAX_KIND,
    MAX_NAME,
    MAX_NEW_MESSAGE,
    check_annotations,
    validate_call,
    validate_recorded,
)
from eventbus.util.text import byte_length, cut_bytes, is_clean, repair

TYPES = frozenset(kind.value for kind in EventType)

#: Times for which names end with sixteen digits: from 2006 to 2554.
_DIGITS, _FIRST_NS, _END_NS = 16, 2**60, 2**64
_COUNT_OF_ONE = pack_array(1)

#: Characters of a message that always fits into an event: its other parts have 12 KiB at most.
SHORT_MESSAGE = 1024
#: Bytes of an object's reference. Its uid and fieldPath have no bounds of their own, and must leave room for a message.
MAX_REFERENCE_BYTES = 6 * 1024
_CUT = "\N{HORIZONTAL ELLIPSIS}"
#: The event time of a check: events.k8s.io requires one.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)

#: The packed parts that stay from event to event: before the time in the name, before the message, after it.
Template = tuple[bytes, bytes, bytes]
#: By source, object, type and reason. Each call of a recorder looks there: a dict takes half the time of `lru_cache`,
#: which moves an entry at each hit. Emptied when there are MOST_TEMPLATES, 0.7 KiB each.
TEMPLATES: dict[tuple[tuple[str, str], ObjectReference, str, str], Template | None] = {}
MOST_TEMPLATES = 4096
_UNKNOWN: Template = (b"", b"", b"")


class Pending(msgspec.Struct, frozen=True, gc=False):
    """One call of a recorder. *past_ns* is 0, or the time it is about when that is not now.

    With an *action* it is of an `EventsRecorder`, and *source* is controller and instance. *template* is that of
    `find_template`, if the recorder has looked it up already; then there are no annotations and no action.
    """

    source: tuple[str, str]
    reference: ObjectReference
    type: str
    reason: str
    message: str
    time_ns: int
    template: Template | None = None
    past_ns: int = 0
    annotations: Mapping[str, str] | None = None
    action: str = ""
    related: ObjectReference | None = None


@lru_cache(maxsize=256)
def _checked(
    source: tuple[str, str], reference: ObjectReference, kind: str, reason: str
) -> tuple[str, tuple[str, ...]]:
    """Return namespace and reference array, once they are valid. Cached: sources repeat themselves."""
    namespace = reference.namespace or "default"
    if not (_is_plain(reference) and _may_say(source, kind, reason)):
        validate_call(source, reference, namespace=namespace, type=kind, reason=reason)
    # Plain strings: the cached value serves every caller, and some pass equal strings of a subclass.
    return str.__str__(namespace), _reference_array("involvedObject", reference)


@lru_cache(maxsize=256)
def _checked_in_series(
    source: tuple[str, str],
    reference: ObjectReference,
    kind: str,
    reason: str,
    action: str,
    related: ObjectReference | None,
) -> tuple[str, tuple[str, ...], tuple[str, ...] | None]:
    """Return namespace and reference arrays, once they are valid. Cached as by `_checked`."""
    namespace = reference.namespace or "default"
    controller, instance = source
    validate_recorded(
        Event(
            metadata=ObjectMeta(namespace=namespace),
            involved_object=reference,
            type=kind,
            reason=reason,
            action=action,
            related=related,
            reporting_component=controller,
            reporting_instance=instance,
            event_time=_ANY_TIME,
        )
    )
    about = _reference_array("regarding", reference)
    return str.__str__(namespace), about, None if related is None else _reference_array("related", related)


def _reference_array(field: str, reference: ObjectReference) -> tuple[str, ...]:
    array = tuple(map(str.__str__, reference_array(reference)))
    if (size := sum(map(byte_length, array))) > MAX_REFERENCE_BYTES:
        problem = f"has {size} bytes, at most {MAX_REFERENCE_BYTES} are allowed; shorten uid or fieldPath"
        raise InvalidEvent(field, problem)
    return array


def _is_plain(reference: ObjectReference) -> bool:
    """Return True if *reference* keeps every rule, which most do; False: `validate_call` finds out.

    A third of the time that takes: a program may record each event about another object.
    """
    kind, namespace, name, *_ = parts = msgspec.structs.astuple(reference)
    if [part for part in parts if type(part) is not str]:
        return False
    joined = "".join(parts)
    short = 0 < len(kind) <= MAX_KIND and 0 < len(name) <= MAX_NAME
    return short and joined.isascii() and "\0" not in joined and (not namespace or _is_label(namespace))


_is_label = lru_cache(maxsize=1024)(is_dns_label)


@lru_cache(maxsize=1024)
def _may_say(source: tuple[str, str], kind: str, reason: str) -> bool:
    try:
        validate_call(source, ObjectReference("Pod", "", "web"), namespace="default", type=kind, reason=reason)
    except InvalidEvent:
        return False
    return True


def find_template(source: tuple[str, str], reference: ObjectReference, kind: str, reason: str) -> Template | None:
    """Return the template of such events. None: their names are not made of the object's and the time.

    Raises: InvalidEvent: they break a rule of events. TypeError, ValueError: `prepare` says whether they do.
    """
    key = (source, reference, kind, reason)
    template = TEMPLATES.get(key, _UNKNOWN)
    if template is not _UNKNOWN:
        return template
    template = _make_template(source, reference, kind, reason)
    if len(TEMPLATES) >= MOST_TEMPLATES:
        TEMPLATES.clear()
    TEMPLATES[key] = template
    return template


def _make_template(source: tuple[str, str], reference: ObjectReference, kind: str, reason: str) -> Template | None:
    namespace, about = _checked(source, reference, kind, reason)
    name = event_name(reference.name, _FIRST_NS)
    if name != f"{reference.name}.{_FIRST_NS:x}":
        return None
    return (
        b"\x9a" + pack_array(name)[:-_DIGITS],
        pack_array(namespace) + pack_array(about) + pack_array(reason),
        _packed_end(kind, source),
    )


@lru_cache(maxsize=256)
def _packed_end(kind: str, source: tuple[str, str]) -> bytes:
    """Pack type and source. Cached, so that all templates share the bytes."""
    return pack_array(kind) + pack_array(source)


class _TooLong(InvalidEvent):
    def __init__(self, size: int) -> None:
        super().__init__("event", f"{size} bytes packed; at most {MAX_EVENT_BYTES}: shorten the message")
        self.too_much = size - MAX_EVENT_BYTES


def prepare(pending: Pending) -> tuple[Pending, bool]:
    """Return *pending*, which can be packed then, and whether its message was too long and has been cut.

    Raises: InvalidEvent: it breaks a rule of events.
    """
    if len(pending.message) > MAX_EVENT_BYTES:  # it is cut anyway, and must not be packed before
        pending = msgspec.structs.replace(pending, message=pending.message[:MAX_EVENT_BYTES])
    try:
        pack(pending)
    except _TooLong as error:
        whole = repair(pending.message)
        short = cut_bytes(whole, byte_length(whole) - error.too_much, _CUT)
        pending = msgspec.structs.replace(pending, message=short)
        pack(pending)
        return pending, True
    return pending, False


def pack(pending: Pending) -> bytes:
    """Return the event's wire bytes. Raises: InvalidEvent: it breaks a rule of events."""
    try:
        template = pending.template
        if template is None and not (pending.annotations or pending.action):
            template = find_template(pending.source, pending.reference, pending.type, pending.reason)
        message, time_ns = pending.message, pending.time_ns
        if template is None or "\0" in message or not _FIRST_NS <= time_ns < _END_NS:
            packed = pack_array(_array(pending))
        else:  # the same bytes, joined
            before_name, before_message, after_message = template
            seen = pack_array((pending.past_ns or time_ns) // 1000)
            name_end, text = b"%x" % time_ns, pack_array(message)
            packed = b"".join((before_name, name_end, before_message, text, after_message, seen, seen, _COUNT_OF_ONE))
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        packed = pack_array(_array(_repaired(pending)))
    if len(packed) > MAX_EVENT_BYTES:
        raise _TooLong(len(packed))
    return packed


def pack_counted(pending: Pending) -> bytes:
    """Pack as `pack`, for a bus that does not allow series yet: workers count the repeats. Raises: InvalidEvent."""
    return pack(msgspec.structs.replace(pending, action="", related=None) if pending.action else pending)


def build(pending: Pending) -> Event:
    """Build the Event itself, for watchers of this process. Raises: InvalidEvent."""
    return unpack_event(pack(pending))


def _array(pending: Pending) -> list[Any]:
    if pending.action:
        return _array_in_series(pending)
    message, source = pending.message, pending.source
    namespace, reference = _checked(source, pending.reference, pending.type, pending.reason)
    if "\0" in message:
        message = repair(message)
    seen_us = (pending.past_ns or pending.time_ns) // 1000
    array: list[Any] = [
        event_name(pending.reference.name, pending.time_ns),
        namespace,
        reference,
        pending.reason,
        message,
        pending.type,
        source,
        seen_us,
        seen_us,
        1,
    ]
    if pending.annotations:
        check_annotations(pending.annotations)
        if not is_clean("".join((*pending.annotations, *pending.annotations.values()))):
            raise InvalidEvent("metadata.annotations", "has a lone surrogate or NUL")  # `pack` repairs it
        array += [None, None, None, "", None, None, dict(pending.annotations)]
    return array


def _array_in_series(pending: Pending) -> list[Any]:
    """Return the event as client-go makes it: without source, first and last time, and count."""
    controller, instance = pending.source
    namespace, regarding, related = _checked_in_series(
        pending.source, pending.reference, pending.type, pending.reason, pending.action, pending.related
    )
    note = repair(pending.message) if "\0" in pending.message else pending.message
    if (size := byte_length(note)) > MAX_NEW_MESSAGE:
        raise InvalidEvent("note", f"has {size} bytes, at most {MAX_NEW_MESSAGE} are allowed; shorten it")
    return [
        event_name(pending.reference.name, pending.time_ns),
        namespace,
        regarding,
        pending.reason,
        note,
        pending.type,
        ("", ""),
        None,
        None,
        0,
        controller,
        instance,
        pending.time_ns // 1000,
        pending.action,
        None,
        related,
        None,
        None,
        "",
        1,
    ]


def _repaired(pending: Pending) -> Pending:
    """Return *pending* with lone surrogates and NUL replaced in its texts. Raises: InvalidEvent: one is no text."""
    reference = ObjectReference(*(_text("involvedObject", part) for part in msgspec.structs.astuple(pending.reference)))
    related = pending.related
    if related is not None:
        related = ObjectReference(*(_text("related", part) for part in msgspec.structs.astuple(related)))
    annotations = {
        _text("metadata.annotations", key): _text("metadata.annotations", value)
        for key, value in (pending.annotations or {}).items()
    }
    return msgspec.structs.replace(
        pending,
        source=(_text("source.component", pending.source[0]), _text("source.host", pending.source[1])),
        reference=reference,
        type=_text("type", pending.type),
        reason=_text("reason", pending.reason),
        message=_text("message", pending.message),
        annotations=annotations or None,
        template=None,
        action=_text("action", pending.action),
        related=related,
    )


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidEvent(field, f"must be a string, is {type(value).__name__}")
    return str.__str__(repair(value))  # a template library's string is packed as the plain one that it is
