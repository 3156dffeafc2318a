"""Converts events to and from JSON, exactly as Go writes it: core/v1 and events.k8s.io/v1, two views of one event.

Keys are in Go's order. Left out when empty are the keys that Go leaves out; `null` and `{}` stand where Go writes
them. Characters outside ASCII, and <, > and &, are written as they are: to a JSON reader that is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.encoding.json_read import KIND, convert, decode_fast, load
from eventbus.model.event import (
    Event,
    EventSeries,
    EventSource,
    Instant,
    Int32,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from eventbus.model.validation import check_values

CORE_VERSION: Final = "v1"
EVENTS_VERSION: Final = "events.k8s.io/v1"

#: Go's zero time; it means unset, and some clients write it.
_ZERO: Final = datetime.min.replace(tzinfo=UTC)


class _EventsV1(msgspec.Struct, rename="camel", kw_only=True):
    """The shape of events.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    event_time: Instant | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
    deprecated_source: EventSource = EventSource()
    deprecated_first_timestamp: Instant | None = None
    deprecated_last_timestamp: Instant | None = None
    deprecated_count: Int32 = 0


#: The fields of events.k8s.io/v1, for descriptions of the format.
EVENTS_V1_SHAPE: Final = _EventsV1

_ENCODE: Final = msgspec.json.Encoder().encode
_CORE: Final = msgspec.json.Decoder(decodable(Event))
_EVENTS_V1: Final = msgspec.json.Decoder(decodable(_EventsV1))


def encode_core(event: Event) -> bytes:
    """Return *event* as core/v1 JSON (UTF-8, one line).

    Raises:   InvalidEvent: a value has the wrong type, a time no zone, a text a lone surrogate or NUL.
    """
    return _ENCODE(to_core(event))


def encode_checked(event: Event) -> bytes:
    """Return `encode_core` of an event with checked values."""
    return _ENCODE(_checked_to_core(event))


def decode_core(data: bytes | str) -> Event:
    """Read one core/v1 JSON object.

    kind and apiVersion may be missing but not be others; `null` means unset; unknown keys are ignored. A time is
    RFC 3339 with any offset and fraction and comes back in UTC, cut (not rounded) to microseconds.

    Raises:   InvalidEvent: not JSON, not UTF-8, a wrong type, a lone surrogate or NUL; *field* is the path.
    """
    return read_core(data) or from_core(load(data))


def read_core(data: bytes | str) -> Event | None:
    """`decode_core` in one step; None if that cannot read *data*: `from_core` reads it or reports the error."""
    shape = decode_fast(_CORE, data, CORE_VERSION)
    return None if shape is None else _finish(shape)


def read_events_v1(data: bytes | str) -> Event | None:
    """Read one events.k8s.io/v1 JSON object in one go; None as of `read_core`."""
    shape = decode_fast(_EVENTS_V1, data, EVENTS_VERSION)
    return None if shape is None else _finish(_from_shape(shape))


def to_core(event: Event) -> dict[str, Any]:
    """Return *event* as the plain dict that is its core/v1 JSON, times as strings. Raises: as `encode_core`."""
    check_values(event)
    return _checked_to_core(event)


def _checked_to_core(event: Event) -> dict[str, Any]:
    """Return `to_core` of an event with checked values. Raises: InvalidEvent: a time is out of range in UTC."""
    core: dict[str, Any] = {
        "kind": KIND,
        "apiVersion": CORE_VERSION,
        "metadata": metadata_to_json(event.metadata),
        "involvedObject": msgspec.to_builtins(event.involved_object),
    }
    if event.reason:
        core["reason"] = event.reason
    if event.message:
        core["message"] = event.message
    core["source"] = msgspec.to_builtins(event.source)
    core["firstTimestamp"] = seconds_to_json(event.first_timestamp)
    # One event's first and last time are most often the same object.
    same = event.last_timestamp is event.first_timestamp
    core["lastTimestamp"] = core["firstTimestamp"] if same else seconds_to_json(event.last_timestamp)
    if event.count:
        core["count"] = event.count
    if event.type:
        core["type"] = str(event.type)
    core["eventTime"] = micros_to_json(event.event_time)
    if event.series is not None:
        count = {"count": event.series.count} if event.series.count else {}
        core["series"] = count | {"lastObservedTime": micros_to_json(event.series.last_observed_time)}
    if event.action:
        core["action"] = event.action
    if event.related is not None:
        core["related"] = msgspec.to_builtins(event.related)
    core["reportingComponent"] = event.reporting_component
    core["reportingInstance"] = event.reporting_instance
    return core


def to_events_v1(event: Event) -> dict[str, Any]:
    """Return *event* as the plain dict that is its events.k8s.io/v1 JSON, times as strings. Raises: as `encode_core`.

    An unset event_time is null, as Go writes it.
    """
    check_values(event)
    new: dict[str, Any] = {"kind": KIND, "apiVersion": EVENTS_VERSION, "metadata": metadata_to_json(event.metadata)}
    new["eventTime"] = micros_to_json(event.event_time)
    if event.series is not None:
        last_observed = micros_to_json(event.series.last_observed_time)
        new["series"] = {"count": event.series.count, "lastObservedTime": last_observed}
    put_set(new, reportingController=event.reporting_component, reportingInstance=event.reporting_instance)
    put_set(new, action=event.action, reason=event.reason)
    new["regarding"] = msgspec.to_builtins(event.involved_object)
    if event.related is not None:
        new["related"] = msgspec.to_builtins(event.related)
    put_set(new, note=event.message, type=str(event.type))
    new["deprecatedSource"] = msgspec.to_builtins(event.source)
    new["deprecatedFirstTimestamp"] = seconds_to_json(event.first_timestamp)
    new["deprecatedLastTimestamp"] = seconds_to_json(event.last_timestamp)
    put_set(new, deprecatedCount=event.count)
    return new


def from_core(mapping: Mapping[str, Any]) -> Event:
    """Read a core/v1 object that is already a mapping (of JSON or YAML); times may be strings or aware datetimes.

    Raises:   InvalidEvent: as `decode_core`.
    """
    return _finish(convert(mapping, Event, CORE_VERSION))


def from_events_v1(mapping: Mapping[str, Any]) -> Event:
    """Read an events.k8s.io/v1 object that is already a mapping; as `from_core`."""
    return _finish(_from_shape(convert(mapping, _EventsV1, EVENTS_VERSION)))


def put_set(target: dict[str, Any], **values: Any) -> None:
    """Put those of *values* into *target* that are not empty, as Go's `omitempty` does."""
    for key, value in values.items():
        if value:
            target[key] = value


def metadata_to_json(meta: ObjectMeta) -> dict[str, Any]:
    """Return the metadata of any object as Go writes it."""
    plain: dict[str, Any] = {}
    if meta.name:
        plain["name"] = meta.name
    if meta.generate_name:
        plain["generateName"] = meta.generate_name
    if meta.namespace:
        plain["namespace"] = meta.namespace
    if meta.uid:
        plain["uid"] = meta.uid
    if meta.resource_version:
        plain["resourceVersion"] = meta.resource_version
    if meta.generation:
        plain["generation"] = meta.generation
    if meta.creation_timestamp is not None and (created := seconds_to_json(meta.creation_timestamp)):
        plain["creationTimestamp"] = created
    if meta.deletion_timestamp is not None:
        plain["deletionTimestamp"] = seconds_to_json(meta.deletion_timestamp)
    if meta.deletion_grace_period_seconds is not None:
        plain["deletionGracePeriodSeconds"] = meta.deletion_grace_period_seconds
    if meta.labels:
        plain["labels"] = dict(sorted(meta.labels.items()))
    if meta.annotations:
        plain["annotations"] = dict(sorted(meta.annotations.items()))
    if meta.owner_references:
        plain["ownerReferences"] = [_owner_to_json(owner) for owner in meta.owner_references]
    if meta.finalizers:
        plain["finalizers"] = list(meta.finalizers)
    if meta.managed_fields:  # plain again, tuples and all
        plain["managedFields"] = msgspec.json.decode(_ENCODE(meta.managed_fields))
    return plain


def _owner_to_json(owner: OwnerReference) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(owner).items() if value is not None}


def seconds_to_json(time: datetime | None) -> str | None:
    """Format a metav1.Time: whole seconds in UTC, cut off; None if unset."""
    if time is None or (utc := _in_utc(time)) is None:
        return None
    return _rfc3339(utc)[:19] + "Z"


def micros_to_json(time: datetime | None) -> str | None:
    """Format a metav1.MicroTime: UTC with six digits; None if unset."""
    if time is None or (utc := _in_utc(time)) is None:
        return None
    return _rfc3339(utc) if utc.microsecond else _rfc3339(utc)[:19] + ".000000Z"


def _rfc3339(utc: datetime) -> str:
    """Format *utc* with microseconds, if there are any: a tenth of the time of `isoformat`."""
    text: str = msgspec.to_builtins(utc)
    return text


def _in_utc(time: datetime | None) -> datetime | None:
    if time is None or (time.tzinfo is UTC and time.year > 1):
        return time
    try:
        utc = time.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent("event", f"the time {time.isoformat()} is outside the years 1 to 9999 in UTC") from None
    return None if utc == _ZERO else utc


def _from_shape(shape: _EventsV1) -> Event:
    return Event(
        metadata=shape.metadata,
        involved_object=shape.regarding,
        reason=shape.reason,
        message=shape.note,
        source=shape.deprecated_source,
        first_timestamp=shape.deprecated_first_timestamp,
        last_timestamp=shape.deprecated_last_timestamp,
        count=shape.deprecated_count,
        type=shape.type,
        event_time=shape.event_time,
        series=shape.series,
        action=shape.action,
        related=shape.related,
        reporting_component=shape.reporting_controller,
        reporting_instance=shape.reporting_instance,
    )


def _finish(event: Event) -> Event:
    """Check that text can be stored, convert times to UTC, and replace Go's zero time by None."""
    check_values(event)
    return _with_times(event, _in_utc)


def as_read_back(event: Event) -> Event:
    """Return *event*, with checked values, as it is after `encode_core` and `decode_core`.

    Raises:   InvalidEvent: a time is out of range in UTC.
    """
    return _with_times(event, _in_whole_seconds)


def _in_whole_seconds(time: datetime) -> datetime | None:
    utc = _in_utc(time)
    return _in_utc(utc.replace(microsecond=0)) if utc is not None and utc.microsecond else utc


def _with_times(event: Event, put: Callable[[datetime], datetime | None]) -> Event:
    """Return *event* with its times in UTC, those that are a metav1.Time as *put* has them."""
    metadata, series, at = event.metadata, event.series, event.event_time
    times = (metadata.creation_timestamp, metadata.deletion_timestamp, event.first_timestamp, event.last_timestamp)
    created, deleted, first, last = [time and put(time) for time in times]
    if metadata.creation_timestamp is not created or metadata.deletion_timestamp is not deleted:
        metadata = msgspec.structs.replace(metadata, creation_timestamp=created, deletion_timestamp=deleted)
    if series is not None and series.last_observed_time is not (observed := _in_utc(series.last_observed_time)):
        series = msgspec.structs.replace(series, last_observed_time=observed)
    at = at and _in_utc(at)
    if (
        metadata is event.metadata
        and series is event.series
        and first is event.first_timestamp
        and last is event.last_timestamp
        and at is event.event_time
    ):
        return event
    return msgspec.structs.replace(
        event, metadata=metadata, series=series, first_timestamp=first, last_timestamp=last, event_time=at
    )
