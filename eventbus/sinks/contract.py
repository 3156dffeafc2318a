"""The contract of an external sink, between the export worker's loop and the systems that events go to.

A sink speaks to one system and knows nothing of Redis, of retries and of positions: it writes, or raises the error
that says which of the two things went wrong: the system does not answer, or it answered and this event failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from eventbus.errors import EventBusError
from eventbus.event import Event


class SinkMode(StrEnum):
    """The effect of a repeated write on the system."""

    UPSERT = "upsert"  #: one row, object or document an event; a repeat changes nothing
    APPEND = "append"  #: every write is kept; whoever reads tells repeats apart by the delivery id


class Verb(StrEnum):
    """The kind of a write, and the method of the sink that does it."""

    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"


class EventPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The change of an event by a repeat.

    The values are absolute: to apply a patch twice, or only the last, is the same.

    *name* and *version* are what this sink returned last for the event, from any worker ("" where it returned none):
    the name to address it by, and the version it has there.
    """

    name: str
    version: str = ""
    count: int
    last_timestamp: datetime | None = None
    message: str = ""

    def body(self) -> dict[str, Any]:
        """Return the strategic merge patch of client-go: count, lastTimestamp (null if unset), message unless empty.

        Source: tools/record/events_cache.go, eventObserve. Departure: a last time of 1970-01-01T00:00:00Z is sent too.
        """
        last = self.last_timestamp
        text = None if last is None else last.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: dict[str, Any] = {"count": self.count, "lastTimestamp": text}
        return body | {"message": self.message} if self.message else body


class SinkWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write for `BatchSink.write`. *patch* is set if and only if *verb* is PATCH; *event* is always whole.

    *delivery_id* is `<event uid>/<count>`: the same for every repeat of the write, another for every other one.
    *prepared* is what `LaterSink.prepare` made of the event; None: it was not asked.
    *origin* is the bus and the partition that the event comes from, as `DeletingSink.held` is given it.
    """

    verb: Verb
    event: Event
    patch: EventPatch | None = None
    delivery_id: str
    prepared: object = None
    origin: str = ""

    @classmethod
    def of(
        cls, verb: Verb, event: Event, patch: EventPatch | None = None, prepared: object = None, origin: str = ""
    ) -> SinkWrite:
        """Make a write with its delivery id."""
        return cls(
            verb=verb, event=event, patch=patch, delivery_id=delivery_id(event), prepared=prepared, origin=origin
        )


#: What became of one write of a batch: the event as the system has it now, or the error that hit this event alone.
SinkAnswer: TypeAlias = Event | EventBusError


@runtime_checkable
class EventSink(Protocol):
    """A system that events are written to. One thread at a time calls it; every call may block up to its own timeout.

    An event arrives whole and correlated: `metadata.name` and `namespace` address it, `metadata.uid` stands for it,
    `metadata.resource_version` is the store's version and only grows for one event: an upserting sink keeps what it
    has if that is not older. Every call may be repeated and may have been applied already (a reply was lost).

    Returns:  the event as the system has it. Its `metadata.name` and `metadata.resource_version` come back in the next
              `EventPatch`, whichever worker makes it. A sink that has nothing to say returns the event it was given.
    Raises:   SinkUnreachable (no answer, or none for anybody: 401, 403, 503): the loop waits, for ever.
              Throttled: the loop waits as long as it says, then tries the same event again.
              EventRejected, EventUnbuildable: this event never will do; it is buried.
              AlreadyExists (create): settled.  NotFound (patch): the loop creates it.
              UnexpectedReply, and anything else: it answered, and this event failed; tried again, then buried.
    """

    @property
    def name(self) -> str:
        """Return its name, [a-z0-9.-]{1,63}, under which its position, its replies and its figures are kept."""
        ...

    @property
    def mode(self) -> SinkMode: ...

    def create(self, event: Event) -> Event:
        """Write an event that this sink has not seen."""
        ...

    def update(self, event: Event) -> Event:
        """Write the whole event, whether it is there or not: catching up after a list."""
        ...

    def patch(self, event: Event, patch: EventPatch) -> Event:
        """Write what a repeat changed. *event* is whole: a sink that cannot patch does `return self.update(event)`."""
        ...

    def close(self) -> None:
        """Let go of connections; what was written stays. Called once, from the thread that wrote."""
        ...


@runtime_checkable
class BatchSink(EventSink, Protocol):
    """A sink that writes many at once. The loop then calls `write` alone; the three calls stay for others."""

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Write all of them, in order; every event occurs once. One answer a write, in the same order.

        An error that hits one event alone is *returned* in its place. SinkUnreachable and Throttled are returned in the
        places of all that are not known to be written: only those are sent again. Raised they are of all; every write
        may then have been applied all the same.
        """
        ...


@runtime_checkable
class OrderedSink(BatchSink, Protocol):
    """A sink whose writes about one object keep their order, also if one of them fails.

    It answers a write that it held back for that with NotSent: the loop gives it again, after the one that failed, and
    gives no later write about the same object before that one is written or buried.
    """

    ordered: bool  #: True


@runtime_checkable
class LaterSink(BatchSink, Protocol):
    """A sink whose system works alone when it was asked: the loop keeps, reads and prepares meanwhile.

    The loop calls `begin` in the place of `write`, and what `begin` returned before it calls anything else but
    `prepare`.
    """

    def prepare(self, event: Event) -> object:
        """Make of *event* what a write of it needs: it comes back in `SinkWrite.prepared`. No I/O; raises nothing."""
        ...

    def begin(self, writes: Sequence[SinkWrite]) -> Callable[[], Sequence[SinkAnswer]]:
        """Ask the system to write all of them. What is returned waits for the answers, and is as `write`.

        Returns as soon as the system has what it needs. Raises nothing: what went wrong, waiting for it raises.
        """
        ...


@runtime_checkable
class DeletingSink(BatchSink, Protocol):
    """A sink that can remove events that the store has lost, and that came back under another uid.

    Redis may lose its last writes in a restart or a failover. The producers send the events again, and some of them
    come back under another uid, so the sink has them twice. The loop calls `held` to find events that were lost, and
    `delete` when they have come back. A sink without these two keeps them.
    """

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Return events that were written with *origin*, *most* of them at most.

        Their versions are above *after* and not above *until*, and they were last seen at *since* or later. Raises: as
        `EventSink`.
        """
        ...

    def delete(self, events: Sequence[Event]) -> int:
        """Remove those of *events* that the system still has in this very version. Returns how many. May be repeated.

        Raises: EventRejected: the sink may not remove anything.  Else as `EventSink`.
        """
        ...


@runtime_checkable
class OpeningSink(EventSink, Protocol):
    """A sink that wants to connect before there is anything to write, so that a wrong password is told at once."""

    def open(self) -> None:
        """Connect, and make ready what is written to. May be called again, also when it is open.

        Raises: SinkUnreachable, Throttled: the loop waits, and calls again.
        """
        ...


def object_of(event: Event) -> tuple[str, str, str]:
    """Return what an `OrderedSink` keeps the order of: kind, namespace and name of the object."""
    about = event.involved_object
    return about.kind, about.namespace, about.name


def delivery_id(event: Event) -> str:
    """Return `<event uid>/<count>`.

    Appending sinks write it beside the event; a webhook sends it as Idempotency-Key."""
    return f"{event.metadata.uid}/{event.count}"


__all__ = [
    "BatchSink",
    "DeletingSink",
    "EventPatch",
    "EventSink",
    "LaterSink",
    "OpeningSink",
    "OrderedSink",
    "SinkAnswer",
    "SinkMode",
    "SinkWrite",
    "Verb",
    "delivery_id",
    "object_of",
]
