"""The values: Event and its parts, frozen all the way down. No I/O, no Redis, no rules (those are in `validation`).

Nothing is checked when a value is made in Python, because the recorder makes one per call: `validation.validate`
checks on the way in, `codec` when bytes are read. Change one with `msgspec.structs.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NoReturn, Self, TypeAlias

import msgspec

#: A point in time with its zone. What the codec reads is always UTC.
Instant: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

#: Counts are int32 in core/v1; other clients refuse anything larger.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class EventType(StrEnum):
    """The two types there are (core/v1): case matters. A member equals its plain string."""

    NORMAL = "Normal"
    WARNING = "Warning"


class FrozenDict(dict[str, str]):
    """A mapping of strings that cannot be changed and can be hashed. Equal to a dict with the same items."""

    __slots__ = ()

    def __new__(cls, *items: Any, **more: str) -> Self:
        made = super().__new__(cls)
        dict.update(made, *items, **more)
        return made

    def __init__(self, *_items: Any, **_more: str) -> None:
        """Nothing: `__new__` has filled it, and dict's own would change it when called again."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("labels and annotations of an event are frozen; build a new event")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, str]]]:
        # A dict is unpickled item by item, which this one refuses.
        return FrozenDict, (dict(self),)


_EMPTY = FrozenDict()


# gc=False below: values hold only values, so they cannot be part of a cycle, and a full outbox holds 10 000 of them.
class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Which object an event is about. An empty string means unset; *namespace* is empty for cluster-scoped objects."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Who speaks: the component, and the host it runs on."""

    component: str = ""
    host: str = ""


class EventSeries(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A continuing series, events.k8s.io's way to count. *last_observed_time* has microseconds in JSON."""

    count: Int32 = 0
    last_observed_time: Instant | None = None


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What every stored object carries. Times are aware; labels and annotations are frozen copies of what was given."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: Instant | None = None
    labels: Mapping[str, str] = _EMPTY
    annotations: Mapping[str, str] = _EMPTY

    def __post_init__(self) -> None:
        if self.labels is not _EMPTY:
            msgspec.structs.force_setattr(self, "labels", _frozen(self.labels))
        if self.annotations is not _EMPTY:
            msgspec.structs.force_setattr(self, "annotations", _frozen(self.annotations))


class Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One core/v1 Event: a statement that something happened to an object.

    Every field has a default and a string that is empty means unset, as in Go. *first_timestamp* and
    *last_timestamp* have whole seconds in JSON (cut off), *event_time* and the series microseconds. Equal fields
    make equal, equally hashed events.

    Source:   k8s.io/api core/v1 types.go. Departure: metadata has no ownerReferences, finalizers, managedFields.
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
        """Always "Event"."""
        return "Event"

    @property
    def api_version(self) -> str:
        """Always "v1"; the same event is also served as events.k8s.io/v1 (see `codec`)."""
        return "v1"

    @property
    def last_seen(self) -> datetime | None:
        """When it happened last: of the series, else last, event, first, creation time; None if none is set."""
        if self.series is not None and self.series.last_observed_time is not None:
            return self.series.last_observed_time
        return self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp


def _frozen(mapping: Mapping[str, str] | None) -> FrozenDict:
    # One shared empty value, so that omit_defaults recognises it.
    if not mapping:
        return _EMPTY
    return mapping if type(mapping) is FrozenDict else FrozenDict(mapping)
