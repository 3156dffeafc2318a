"""Checks the rules of an event: those of core/v1, and our limits in bytes of UTF-8. Repairs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.event import Event, EventSource, EventType, ObjectMeta, ObjectReference
from eventbus.model.names import MAX_LABEL, MAX_QUALIFIED, MAX_SUBDOMAIN, is_dns_label, is_qualified_name
from eventbus.util.text import byte_length, is_clean, quoted, shortened

# Lengths are bytes of UTF-8; 128 and 1024 are those of the API server's event rules.
MAX_KIND: Final = 63
MAX_NAMESPACE: Final = MAX_LABEL
MAX_NAME: Final = MAX_SUBDOMAIN
MAX_REASON: Final = 128
MAX_ACTION: Final = 128
MAX_COMPONENT: Final = 128
MAX_HOST: Final = 253
MAX_CONTROLLER: Final = MAX_QUALIFIED
MAX_INSTANCE: Final = 253
#: The limits of events.k8s.io, if event_time is set.
MAX_NEW_INSTANCE: Final = 128
MAX_NEW_MESSAGE: Final = 1024
MAX_ANNOTATIONS: Final = 16
MAX_ANNOTATION_KEY: Final = MAX_QUALIFIED
MAX_ANNOTATION_VALUE: Final = 1024
MAX_ANNOTATION_BYTES: Final = 4096


class FieldProblem(NamedTuple):
    """One invalid field of an object, in the form of a Status's cause."""

    reason: str
    text: str
    field: str


def missing_field(field: str, problem: str = "") -> FieldProblem:
    """Return the problem of a field that is missing."""
    return FieldProblem("FieldValueRequired", f"Required value{f': {problem}' if problem else ''}", field)


def invalid_field(field: str, value: object, problem: str) -> FieldProblem:
    """Return the problem of a field with an invalid value."""
    shown = quoted(value) if isinstance(value, str) else value
    return FieldProblem("FieldValueInvalid", f"Invalid value: {shown}: {problem}", field)


#: Bytes that a character has at the most.
_MOST_BYTES: Final = 4
_AT_PATH: Final = re.compile(r"(?P<problem>.*) - at `(?:key` in `)?\$\.?(?P<path>.*)`", re.DOTALL)


def validate(event: Event) -> None:
    """Raise unless *event* conforms to the rules of core/v1 and to the limits of this package.

    Without event_time the rules are the legacy ones (the namespaces agree), with it the stricter ones of
    events.k8s.io (reporting_component, reporting_instance, action and reason are needed, message ≤ 1024 bytes).
    The size of the whole event and the name of the involved object are not checked.

    Raises:   InvalidEvent: names the first broken rule, with the field's path as in JSON. Fix the caller.
    Source:   kubernetes pkg/apis/core/validation/events.go. Departures: type must be Normal or Warning; a namespace
              may be empty, and is one DNS label (there: a subdomain); the limits above.
    """
    check_values(event)
    _check_type(event)
    _check_rules(event)


def validate_written(event: Event) -> None:
    """Raise unless *event* may be written through the store: `validate`, but of any type, as the API server has it.

    Raises:   InvalidEvent: as `validate`.
    """
    check_values(event)
    _check_length("type", str(event.type), MAX_REASON)
    _check_rules(event)


def validate_recorded(event: Event) -> None:
    """Raise unless *event* may be recorded: `validate`, and it has a reason and an object with a kind and a name.

    Raises:   InvalidEvent: as `validate`.
    """
    check_values(event)
    if not event.involved_object.kind:
        raise InvalidEvent("involvedObject.kind", "is empty; set the kind of the object that the event is about")
    if not event.involved_object.name:
        raise InvalidEvent("involvedObject.name", "is empty; say which object the event is about")
    if not event.reason:
        raise InvalidEvent("reason", "is empty; say why in one CamelCase word, like BackOff")
    _check_type(event)
    _check_rules(event)


def validate_call(
    source: tuple[str, str], reference: ObjectReference, *, namespace: str, type: str, reason: str
) -> None:
    """Raise unless a recorder of *source*, a component and a host, may record *type* and *reason* for an object.

    Checks the fields of an event except its message. They are the same in repeats, so one check is enough.

    Raises:   InvalidEvent: as `validate_recorded`.
    """
    component, host = source
    validate_recorded(
        Event(
            metadata=ObjectMeta(namespace=namespace),
            involved_object=reference,
            type=type,
            reason=reason,
            source=EventSource(*source),
            reporting_component=component,
            reporting_instance=host,
        )
    )


def check_values(event: Event) -> None:
    """Raise unless every value has the type its field says, times have a zone, and all text can be stored.

    Raises:   InvalidEvent: names the first invalid field. `text.repair` fixes lone surrogates and NUL.
    """
    try:
        clean = is_clean("".join(_strings(event))) and _numbers_and_times_fit(event) and _rest_fits(event.metadata)
    except (AttributeError, TypeError):
        clean = False
    if not clean:
        _explain(event)


def check_annotations(annotations: Mapping[str, str]) -> None:
    """Raise unless *annotations* are strings within the limits; `validate` calls this too.

    Raises:   InvalidEvent: names the first invalid annotation. Use fewer, or put the text into the message.
    """
    if len(annotations) > MAX_ANNOTATIONS:
        problem = f"has {len(annotations)} keys, at most {MAX_ANNOTATIONS} are allowed"
        raise InvalidEvent("metadata.annotations", problem)
    for key, value in annotations.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidEvent("metadata.annotations", "has a key or value that is not a string")
        if not key:
            raise InvalidEvent("metadata.annotations", "has an empty key")
        _check_length("metadata.annotations (a key)", key, MAX_ANNOTATION_KEY)
        _check_length(f"metadata.annotations[{ascii(key)[1:-1]}]", value, MAX_ANNOTATION_VALUE)
    total = sum(byte_length(key) + byte_length(value) for key, value in annotations.items())
    if total > MAX_ANNOTATION_BYTES:
        raise InvalidEvent("metadata.annotations", f"has {total} bytes, at most {MAX_ANNOTATION_BYTES} are allowed")


def invalid_from(error: msgspec.ValidationError) -> InvalidEvent:
    """Translate msgspec's message ("Expected … - at `$.path`") into ours."""
    path, problem = problem_at(error)
    return InvalidEvent(path or "event", problem)


def problem_at(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the path in msgspec's message, "" if there is none, and the problem there."""
    match = _AT_PATH.fullmatch(str(error))
    return (match["path"], match["problem"]) if match else ("", str(error))


def _check_type(event: Event) -> None:
    if event.type != EventType.NORMAL and event.type != EventType.WARNING:
        raise InvalidEvent("type", f"must be Normal or Warning (case matters), is {shortened(event.type)}")


def _check_rules(event: Event) -> None:
    for field, text, limit in (
        ("reason", event.reason, MAX_REASON),
        ("action", event.action, MAX_ACTION),
        ("source.component", event.source.component, MAX_COMPONENT),
        ("source.host", event.source.host, MAX_HOST),
        ("reportingComponent", event.reporting_component, MAX_CONTROLLER),
        ("reportingInstance", event.reporting_instance, MAX_INSTANCE),
        ("metadata.name", event.metadata.name, MAX_NAME),
        ("metadata.generateName", event.metadata.generate_name, MAX_NAME),
    ):
        if len(text) * _MOST_BYTES > limit:  # most texts need no counting
            _check_length(field, text, limit)
    _check_reference("involvedObject", event.involved_object)
    if event.related is not None:
        _check_reference("related", event.related)
    _check_metadata(event.metadata)
    if event.event_time is None:
        _check_legacy(event)
    else:
        _check_new_style(event)


def _check_length(field: str, text: str, limit: int) -> None:
    if len(text) * _MOST_BYTES > limit and byte_length(text) > limit:
        raise InvalidEvent(field, f"has {byte_length(text)} bytes, at most {limit} are allowed; shorten it")


def _check_reference(field: str, reference: ObjectReference) -> None:
    _check_length(f"{field}.kind", reference.kind, MAX_KIND)
    _check_length(f"{field}.name", reference.name, MAX_NAME)
    _check_namespace(f"{field}.namespace", reference.namespace)


@lru_cache(maxsize=1024)
def _check_namespace(field: str, namespace: str) -> None:
    _check_length(field, namespace, MAX_NAMESPACE)
    if namespace and not is_dns_label(namespace):
        raise InvalidEvent(field, f"{shortened(namespace)} is not a DNS label (a-z, 0-9, '-', at most {MAX_NAMESPACE})")


def _check_metadata(metadata: ObjectMeta) -> None:
    _check_namespace("metadata.namespace", metadata.namespace)
    if metadata.labels:
        _check_labels(metadata.labels)
    if metadata.annotations:
        check_annotations(metadata.annotations)


def _check_labels(labels: Mapping[str, str]) -> None:
    # Selectors have no quoting: any other label could never be asked for.
    for key, value in labels.items():
        if not is_qualified_name(key):
            raise InvalidEvent(
                "metadata.labels", f"key {shortened(key)} is not a qualified name (like example.com/part)"
            )
        if value and ("/" in value or not is_qualified_name(value)):
            raise InvalidEvent(
                f"metadata.labels[{key}]", f"{shortened(value)} is not at most 63 letters, digits, '-', '_', '.'"
            )


def _check_legacy(event: Event) -> None:
    wanted, namespace = event.involved_object.namespace, event.metadata.namespace
    if wanted != namespace and (wanted or namespace != "default"):
        raise InvalidEvent("involvedObject.namespace", f"{wanted!r} does not match metadata.namespace {namespace!r}")


def _check_new_style(event: Event) -> None:
    namespace = event.metadata.namespace
    if not event.involved_object.namespace and namespace not in ("default", "kube-system"):
        raise InvalidEvent("involvedObject.namespace", f"'' does not match metadata.namespace {namespace!r}")
    _check_required("reportingComponent", event.reporting_component)
    _check_required("reportingInstance", event.reporting_instance)
    _check_required("action", event.action)
    _check_required("reason", event.reason)
    if not is_qualified_name(event.reporting_component):
        problem = f"{shortened(event.reporting_component)} is not a qualified name (like example.com/controller)"
        raise InvalidEvent("reportingComponent", problem)
    _check_length("reportingInstance", event.reporting_instance, MAX_NEW_INSTANCE)
    _check_length("message", event.message, MAX_NEW_MESSAGE)


def _check_required(field: str, text: str) -> None:
    if not text:
        raise InvalidEvent(field, "is empty; it is needed when eventTime is set")


def _strings(event: Event) -> list[str]:
    """Return every string of *event*: joined, they are checked for type and text in three passes over characters."""
    meta, source = event.metadata, event.source
    strings = [
        *msgspec.structs.astuple(event.involved_object),
        *(meta.name, meta.generate_name, meta.namespace, meta.uid, meta.resource_version),
        *(event.reason, event.message, source.component, source.host, event.type, event.action),
        *(event.reporting_component, event.reporting_instance),
    ]
    if event.related is not None:
        strings += msgspec.structs.astuple(event.related)
    for mapping in (meta.labels, meta.annotations):
        if mapping:
            strings += [*mapping, *mapping.values()]
    if meta.owner_references or meta.finalizers or meta.managed_fields:
        more = (meta.owner_references, meta.finalizers, meta.managed_fields)
        strings += [text for _, text in _texts(_plain(more), "")]
    return strings


def _numbers_and_times_fit(event: Event) -> bool:
    metadata, series = event.metadata, event.series
    if not (_is_int32(event.count) and (series is None or _is_int32(series.count))):
        return False
    times = [event.first_timestamp, event.last_timestamp, event.event_time]
    times += (metadata.creation_timestamp, metadata.deletion_timestamp)
    if series is not None:
        times.append(series.last_observed_time)
    for time in times:
        if time is not None and not (isinstance(time, datetime) and time.tzinfo is not None):
            return False
    return True


def _rest_fits(metadata: ObjectMeta) -> bool:
    """Return True if rarely used metadata has the declared types; else the event could not be read back."""
    few = metadata.owner_references or metadata.finalizers or metadata.managed_fields or metadata.generation
    if few or metadata.deletion_grace_period_seconds is not None:
        try:
            msgspec.convert(_plain(metadata), decodable(ObjectMeta))
        except msgspec.ValidationError:
            return False
    return True


def _is_int32(count: int) -> bool:
    return type(count) is int and -(2**31) <= count < 2**31


def _explain(event: Event) -> None:
    """Raise the exact error of an event that `check_values` rejected. Slow; only for invalid events."""
    plain = _plain(event)
    try:
        msgspec.convert(plain, decodable(Event))
    except msgspec.ValidationError as error:
        raise invalid_from(error) from None
    for path, text in _texts(plain, ""):
        if not is_clean(text):
            raise InvalidEvent(ascii(path)[1:-1], "has a lone surrogate or NUL, which cannot be stored as text")


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str.__str__(value) if isinstance(value, str) else value


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            inner_path = f"{path}.{key}" if path else key
            yield inner_path, key
            yield from _texts(inner, inner_path)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
