"""A scenario: options, then events at their times, each with the decision it must lead to."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from eventbus.model.event import Event
from eventbus.settings import Options, float32
from tests.conformance.driver import Decision
from tests.conformance.model import time_of

#: 2024-01-01T00:00:00Z, where every scenario's clock begins.
START_MS = 1_704_067_200_000

#: More different messages than the product keeps apart.
_MOST_MESSAGES = 1_000
_ALIKE_BEYOND: dict[str, tuple[float, float]] = dict(burst=(0, 2**31 - 1), qps=(0, math.inf), max_events=(1, math.inf))


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


def make_options(events: int = 0, **given: Any) -> Options:
    """Options as client-go takes them, for a scenario of so many *events*: what is absent or 0 is the default.

    client-go takes any number. In the place of one that the product refuses comes the one that decides the same: below
    0 no token comes (back), a set that is always full folds everything, no scenario spends 2^31 tokens, and *events*
    events cannot make a set of more. `EventsSuppressed` is off, it is no part of the rules.
    """
    given = {name: value for name, value in given.items() if value and _is_given(name, value)}
    for field, (least, most) in _ALIKE_BEYOND.items():
        if field in given:
            given[field] = min(max(given[field], least), most)
    if events < _MOST_MESSAGES < given.get("max_events", 0):
        given["max_events"] = _MOST_MESSAGES
    return Options(report_suppressed=False, **given)


def _is_given(field: str, value: Any) -> bool:
    """client-go's zero is that of a float32."""
    return field != "qps" or float32(value) != 0


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
