"""A scenario: options, then events at their times, each with the decision it must lead to."""

from __future__ import annotations

from typing import Any

import msgspec

from eventbus.event import Event
from eventbus.settings import Options
from tests.conformance.driver import Decision
from tests.conformance.model import time_of

#: 2024-01-01T00:00:00Z, where every scenario's clock begins.
START_MS = 1_704_067_200_000


class Step(msgspec.Struct, frozen=True):
    """One event and what must become of it."""

    t_ms: int  #: milliseconds after the scenario's beginning; may go back
    event: Event  #: complete: namespace, timestamps and count are filled in
    want: Decision
    delete: bool = False  #: the store is emptied before the event

    @property
    def at_ms(self) -> int:
        """The clock, in milliseconds since 1970."""
        return START_MS + self.t_ms


class Scenario(msgspec.Struct, frozen=True):
    """A named table of steps."""

    name: str
    options: Options
    steps: tuple[Step, ...]


def make_options(**given: Any) -> Options:
    """Options with the defaults for what is absent or 0; `EventsSuppressed` is off, it is no part of the rules."""
    return Options(report_suppressed=False, **{name: value for name, value in given.items() if value})


def complete(event: Event, at_ms: int) -> Event:
    """*event* with what the recorder would have filled in: the namespace, and the clock as its timestamps."""
    now = time_of(at_ms)
    namespace = event.metadata.namespace or event.involved_object.namespace or "default"
    return msgspec.structs.replace(
        event,
        metadata=msgspec.structs.replace(event.metadata, namespace=namespace),
        first_timestamp=event.first_timestamp or now,
        last_timestamp=event.last_timestamp or now,
    )
