"""The values: Event and its parts, frozen all the way down. No I/O, no Redis, no rules (those are in `validation`).

Nothing is checked when a value is made in Python, because the recorder makes one per call: `validation.validate`
checks on the way in, `encoding.event_json` when bytes are read. Change one with `msgspec.structs.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from eventbus.model.frozen import EMPTY, FrozenDict, FrozenStruct, freeze

#: A point in time with its time zone. Decoded times are always in UTC.
Instant: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

#: Counts are int32 in core/v1; other clients refuse anything larger.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

#: The default of sequence fields, which are empty in most objects.
_NONE: Final = ()


class EventType(StrEnum):
    """The two types of events (core/v1): case matters. A member equals its plain string."""

    NORMAL = "Normal"
    WARNING = "Warning"


#: The reason of the bus's own report of the events that the spam filter suppressed.
SUPPRESSED_REASON: Final = "EventsSuppressed"


# gc=False below: values hold only values, so they cannot be part of a cycle, and a full outbox holds 10 000 of them.
# cache_hash: each call of a recorder looks its reference up in a dict.
class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, cache_hash=True):
    """The object that an event is about.

    An empty string means unset; *namespace* is empty for cluster-scoped objects."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The source of an event: the component, and the host it runs on."""

    component: str = ""
    host: str = ""


class EventSeries(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A continuing series, events.k8s.io's way to count. *last_observed_time* has microseconds in JSON."""

    count: Int32 = 0
    last_observed_time: Instant | None = None


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An object that this one belongs to, in the same namespace or in none. None is unset, as Go's pointers are."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(FrozenStruct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The metadata of every stored object. Times are aware; mappings are frozen copies of the given ones.

    *generation* counts the changes of the object's desired state, its spec; 0: the kind has none.
    *managed_fields* is stored and returned unchanged, and not used.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[Mapping[str, Any], ...] = _NONE

    def __post_init__(self) -> None:
        # As FrozenStruct's, in a fraction of the time: a recorder makes one of these a call.
        if self.labels is not EMPTY:
            msgspec.structs.force_setattr(self, "labels", _frozen(self.labels))
        if self.annotations is not EMPTY:
            msgspec.structs.force_setattr(self, "annotations", _frozen(self.annotations))
        if self.managed_fields is not _NONE:
            msgspec.structs.force_setattr(self, "managed_fields", freeze(self.managed_fields))


class Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One core/v1 Event: a statement that something happened to an object.

    Every field has a default and a string that is empty means unset, as in Go. *first_timestamp* and
    *last_timestamp* have whole seconds in JSON (cut off), *event_time* and the series microseconds. Equal fields
    make equal, equally hashed events.

    Source:   k8s.io/api core/v1 types.go.
    """

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: Instant | None = None
    last_timestamp: Instant | None = None
    count: Int32 = 0
    type: str = ""
    event_time: Instant | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""

    @property
    def kind(self) -> str:
        """Return "Event"."""
        return "Event"

    @property
    def api_version(self) -> str:
        """Return "v1"; the same event is also served as events.k8s.io/v1 (see `eventbus.model.encoding.event_json`)."""
        return "v1"

    @property
    def occurrences(self) -> int:
        """Return the count of the series, else the count; 0: it has none."""
        return self.series.count if self.series is not None else self.count

    @property
    def times_seen(self) -> int:
        """Return how often it happened: by the series, else by the count; at least once."""
        return max(1, self.occurrences)

    @property
    def last_seen(self) -> datetime | None:
        """Return when it happened last: of the series, else last, event, first, creation time; None if none is set."""
        if self.series is not None and self.series.last_observed_time is not None:
            return self.series.last_observed_time
        return self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp


def _frozen(mapping: Mapping[str, str] | None) -> FrozenDict:
    if not mapping:
        return EMPTY
    return mapping if type(mapping) is FrozenDict else FrozenDict(mapping)
