"""The interface between the export worker and external sinks.

A sink writes to one system. It does not handle Redis, retries or positions. If a write fails, the sink raises an error
that says whether the system is unreachable or the system answered and this event failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from eventbus.errors import EventBusError
from eventbus.model.encoding.event_json import micros_to_json
from eventbus.model.event import Event, EventSeries


class SinkMode(StrEnum):
    """The effect of a repeated write on the system."""

    UPSERT = "upsert"  #: one row, object or document an event; a repeat changes nothing
    APPEND = "append"  #: every write is kept; readers deduplicate by the delivery id


class Verb(StrEnum):
    """The kind of a write, and the method of the sink that does it."""

    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"


class EventPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The change of an event by a repeat.

    The values are absolute: to apply a patch twice, or only the last, is the same.

    *name* and *version* are the event's name and version in the system, as this sink last returned them to any worker
    ("" if it returned none).
    """

    name: str
    version: str = ""
    count: int
    last_timestamp: datetime | None = None
    message: str = ""
    series: EventSeries | None = None

    def body(self) -> dict[str, Any]:
        """Return the strategic merge patch of client-go: count, lastTimestamp (null if unset), message unless empty.

        Of a series it has the series alone.

        Source: tools/record/events_cache.go, eventObserve; tools/events/event_broadcaster.go, recordEvent.
        Departure: a last time of 1970-01-01T00:00:00Z is sent too.
        """
        if self.series is not None:
            observed = micros_to_json(self.series.last_observed_time)
            return {"series": {"count": self.series.count, "lastObservedTime": observed}}
        last = self.last_timestamp
        text = None if last is None else last.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: dict[str, Any] = {"count": self.count, "lastTimestamp": text}
        return body | {"message": self.message} if self.message else body


class SinkWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write for `BatchSink.write`. *patch* is set if and only if *verb* is PATCH; *event* is always whole.

    *delivery_id* is `<event uid>/<count>`: the same if the write is repeated, different for every other write.
    *origin* is the bus and the partition that the event comes from, as in `DeletingSink.held`.
    """

    verb: Verb
    event: Event
    patch: EventPatch | None = None
    delivery_id: str
    origin: str = ""

    @classmethod
    def of(cls, verb: Verb, event: Event, patch: EventPatch | None = None, origin: str = "") -> SinkWrite:
        """Make a write with its delivery id."""
        return cls(verb=verb, event=event, patch=patch, delivery_id=delivery_id(event), origin=origin)


#: The result of one write of a batch: the event as the system has it now, or the error of this event alone.
SinkAnswer: TypeAlias = Event | EventBusError


@runtime_checkable
class EventSink(Protocol):
    """A system that events are written to. One thread at a time calls it; every call may block up to its own timeout.

    Events are complete and correlated. `metadata.namespace` and `name` address an event, `metadata.uid` identifies it.
    `metadata.resource_version` is the store's version and only increases. An upserting sink ignores a write unless its
    version is newer. Every call may be repeated, and may have been applied before (a reply was lost).

    Returns:  the event as the system has it. The next `EventPatch`, from any worker, contains its `metadata.name` and
              `metadata.resource_version`. A sink without names and versions of its own returns the given event.
    Raises:   SinkUnreachable (no answer, or every event is refused: 401, 403, 503): the loop retries without limit.
              Throttled: the loop waits for the given time, then tries the same event again.
              EventRejected, EventUnbuildable: this event can never be written; it becomes a dead letter.
              AlreadyExists (create): the event counts as written.  NotFound (patch): the loop creates the event.
              UnexpectedReply and others: the system answered and this event failed; retried, then a dead letter.
    """

    @property
    def name(self) -> str:
        """Return the sink's name, [a-z0-9.-]{1,63}: the key of its position, replies and metrics."""
        ...

    @property
    def mode(self) -> SinkMode: ...

    def create(self, event: Event) -> Event:
        """Write an event that this sink has not seen."""
        ...

    def update(self, event: Event) -> Event:
        """Write the whole event, whether it exists or not. Used to catch up after a list."""
        ...

    def patch(self, event: Event, patch: EventPatch) -> Event:
        """Apply the change of a repeat. *event* is whole: a sink that cannot patch does `return self.update(event)`."""
        ...

    def close(self) -> None:
        """Close the connections; written events stay. Called once, from the thread that wrote."""
        ...


@runtime_checkable
class BatchSink(EventSink, Protocol):
    """A sink that writes batches. The loop then calls only `write`; other callers use the three single writes."""

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Write the batch in order; every event occurs once. Return one answer for each write, in the same order.

        An error of one event is *returned* in its place. SinkUnreachable and Throttled are returned in the place of
        each write that may not have been applied: only those are sent again. If they are raised, the whole batch is
        sent again, although any of its writes may have been applied.
        """
        ...


@runtime_checkable
class OrderedSink(BatchSink, Protocol):
    """A sink that keeps the order of writes about one object, also if one of them fails.

    After a failed write, the sink answers later writes about the same object with NotSent. The loop retries the failed
    write first. It sends the later ones after that write has succeeded or has become a dead letter.
    """

    ordered: bool  #: True


@runtime_checkable
class DeletingSink(BatchSink, Protocol):
    """A sink that can remove events that the store has lost, and that came back under another uid.

    Redis may lose its last writes in a restart or a failover. The producers send the events again, and some of them
    come back under another uid, so the sink has them twice. The loop calls `held` to find events that were lost, and
    `delete` when they have come back. A sink without these two keeps them.
    """

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Return events that were written with *origin*, *most* of them at most.

        Their versions are above *after* and not above *until*, and they were last seen at *since* or later. Raises:
        EventRejected: the sink may not read them: they stay.  Else as `EventSink`.
        """
        ...

    def delete(self, events: Sequence[Event]) -> int:
        """Remove those of *events* that the system still has in this very version. Returns how many. May be repeated.

        Raises: EventRejected: the sink may not remove anything.  Else as `EventSink`.
        """
        ...


@runtime_checkable
class CountingSink(BatchSink, Protocol):
    """A sink of a system that may reject some events of a batch without naming them. They count as written, too."""

    def take_rejected(self) -> int:
        """Return how many events it has rejected so, since the last call."""
        ...


@runtime_checkable
class OpeningSink(EventSink, Protocol):
    """A sink that connects before the first write, so that a wrong password is reported at start."""

    def open(self) -> None:
        """Connect and prepare the target, such as its tables. May be called again, also when it is open.

        Raises: SinkUnreachable, Throttled: the loop waits, and calls again.
        """
        ...


@runtime_checkable
class CollectingSink(BatchSink, Protocol):
    """A sink that prefers few large batches: after it has written all changes, the loop waits before it reads more."""

    @property
    def collect_s(self) -> float:
        """Return how long to wait. Events are written that much later; a backlog is written without a pause."""
        ...


@runtime_checkable
class CheckedSink(Protocol):
    """A sink that can distinguish a wrong URL from a system that is unreachable for now."""

    def check(self) -> None:
        """Check once whether the URL can be right. An outage is no error: the export waits for the system later.

        Blocks for at most one connect timeout. Raises: ConfigError: correct the URL, or create the target it names.
        """
        ...


def object_of(event: Event) -> tuple[str, str, str]:
    """Return the kind, namespace and name of the event's object: an `OrderedSink` keeps the order of its writes."""
    about = event.involved_object
    return about.kind, about.namespace, about.name


def delivery_id(event: Event) -> str:
    """Return `<event uid>/<count>`, with the count of the series if it has one.

    Appending sinks write it together with the event; a webhook sends it as Idempotency-Key."""
    return f"{event.metadata.uid}/{event.occurrences}"
