"""The expected events and their states, for `eventbus get expected`, the API, the page and `eventbus doctor`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.notifications import ExpectedEvent, read_expected
from eventbus.model.event import Instant, ObjectReference


class ExpectedState(StrEnum):
    """The state of an expected event. A notifier decides that it is missing; lateness is a matter of time."""

    WAITING = "Waiting"  #: it has not arrived yet, and is not due
    ARRIVED = "Arrived"
    LATE = "Late"  #: it was due, and may still arrive
    MISSING = "Missing"


class ExpectedStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One expected event. *last*: its last arrival. *next*: when it is due, *deadline*: with its grace."""

    name: str
    object: ObjectReference
    state: ExpectedState
    last: Instant | None
    next: Instant
    deadline: Instant
    missing_since: Instant | None
    known_since: Instant


def read_expected_status(bus: Bus, client: Client, now: datetime, namespace: str = "") -> tuple[ExpectedStatus, ...]:
    """Read the expected events of *namespace* ("": of all), by name. Redis: HGETALL."""
    found = read_expected(bus, client)
    return tuple(status_of(each, now) for each in found if namespace in ("", each.object.namespace))


def status_of(event: ExpectedEvent, now: datetime) -> ExpectedStatus:
    """Return the status of *event* at *now*."""
    due = _time(event.due_ms)
    if event.missing_ms:
        state = ExpectedState.MISSING
    elif now > due:
        state = ExpectedState.LATE
    else:
        state = ExpectedState.ARRIVED if event.last_ms else ExpectedState.WAITING
    return ExpectedStatus(
        name=event.name,
        object=event.object,
        state=state,
        last=_time(event.last_ms) if event.last_ms else None,
        next=due,
        deadline=_time(event.deadline_ms),
        missing_since=_time(event.missing_ms) if event.missing_ms else None,
        known_since=_time(event.since_ms),
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
