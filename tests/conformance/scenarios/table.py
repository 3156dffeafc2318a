"""The notation of a scenario: `table.at(seconds, **event).verdict(…)`, one line an event.

The table only keeps books: which name and first time a label stands for, and what follows from the event itself. Each
line says the outcome for its event.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from tests.conformance.driver import SKIPPED, Action, Decision, Patch
from tests.conformance.model import time_of
from tests.conformance.scenario import START_MS, Scenario, Step, complete, make_options

PREFIX = "(combined from similar events): "
#: For scenarios about anything but the spam filter.
NO_SPAM_FILTER = 100_000

_OBJECT = dict(kind="Volume", namespace="storage", name="vol-7", uid="u-7", api_version="disks/v1")
_SOURCE = dict(component="scrubber", host="rack-3")
_REFERENCE_FIELDS = (*_OBJECT, "resource_version", "field_path")


class Table:
    """One scenario in the making. Options are those of client-go's correlator; absent means default."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.options = make_options(**options)
        self.labels: dict[str, tuple[str, datetime | None]] = {}  #: name and first time of what is remembered
        self.steps: list[Step] = []
        self._delete = False

    def at(self, seconds: float, message: str = "m", **fields: Any) -> Row:
        """An event at *seconds* after the beginning; *fields* are those of Event, its source and its object."""
        filled: dict[str, Any] = dict(reason="ChecksumMismatch", type="Warning", count=1)
        reference = _OBJECT | {name: fields.pop(name) for name in _REFERENCE_FIELDS if name in fields}
        source = _SOURCE | {name: fields.pop(name) for name in _SOURCE if name in fields}
        t_ms = round(seconds * 1000)
        event = Event(
            metadata=ObjectMeta(name=f"{reference['name']}.row-{len(self.steps)}", **fields.pop("metadata", {})),
            involved_object=ObjectReference(**reference),
            source=EventSource(**source),
            message=message,
            **filled | fields,
        )
        return Row(self, t_ms, complete(event, START_MS + t_ms))

    def empty_the_store(self) -> None:
        """Before the next event."""
        self._delete = True

    def add(self, t_ms: int, event: Event, want: Decision) -> None:
        self.steps.append(Step(t_ms, event, want, self._delete))
        self._delete = False

    def scenario(self) -> Scenario:
        return Scenario(self.name, self.options, tuple(self.steps))


class Row:
    """An event that waits for its verdict. *label* is what later rows call it; the message if not given."""

    def __init__(self, table: Table, t_ms: int, event: Event) -> None:
        self._table, self._t_ms, self._event = table, t_ms, event
        self._now = time_of(START_MS + t_ms)

    def created(self, label: str | None = None) -> None:
        """Seen for the first time, stored as it came."""
        self._remember(label)
        self._plain(label, Action.CREATE, self._event.count, repeat=False)

    def created_by_update(self, label: str | None = None) -> None:
        """Seen for the first time with a count above 1: sent as an update without a patch, found nothing, created."""
        self._remember(label)
        self._plain(label, Action.PATCH_CREATE, self._event.count, repeat=False)

    def patched(self, count: int, label: str | None = None) -> None:
        """A repeat of what is stored."""
        self._plain(label, Action.PATCH, count, repeat=True)

    def recreated(self, count: int, label: str | None = None) -> None:
        """A repeat of what is remembered but not stored: old name, old first time, running count."""
        self._plain(label, Action.PATCH_CREATE, count, repeat=True)

    def repeat_created(self, count: int, label: str | None = None) -> None:
        """A repeat whose running count is not above 1, which is no update to the sink."""
        self._plain(label, Action.CREATE, count, repeat=True)

    def skipped(self, label: str | None = None) -> None:
        """Held back by the spam filter; remembered all the same."""
        if (label or self._event.message) not in self._table.labels:
            self._remember(label)
        self._add(SKIPPED)

    def folded(self, count: int, label: str = "aggregate", action: Action | None = None) -> None:
        """Folded into the aggregate *label*, which is born here if it is not known yet."""
        self._remember_aggregate(label)
        action = action or (Action.PATCH if count > 1 else Action.CREATE)
        message = self._table.options.aggregate_message + self._event.message
        self._decided(label, action, count, message, self._now, repeat=count > 1, aggregated=True)

    def folded_and_skipped(self, label: str = "aggregate") -> None:
        """Folded into the aggregate *label*, then held back by the spam filter."""
        self._remember_aggregate(label)
        self._add(SKIPPED)

    def _remember(self, label: str | None) -> None:
        known = (self._event.metadata.name, self._event.first_timestamp)
        self._table.labels[label or self._event.message] = known

    def _remember_aggregate(self, label: str) -> None:
        nanoseconds = (START_MS + self._t_ms) * 1_000_000
        name = f"{self._event.involved_object.name}.{nanoseconds:x}"
        self._table.labels.setdefault(label, (name, self._now))

    def _plain(self, label: str | None, action: Action, count: int, *, repeat: bool) -> None:
        event = self._event
        label = label or event.message
        self._decided(label, action, count, event.message, event.last_timestamp, repeat=repeat, aggregated=False)

    def _decided(
        self,
        label: str,
        action: Action,
        count: int,
        message: str,
        last: datetime | None,
        *,
        repeat: bool,
        aggregated: bool,
    ) -> None:
        name, first = self._table.labels[label]
        want = Decision(
            count=count,
            message=message,
            name=name,
            namespace=self._event.metadata.namespace,
            first=first,
            last=last,
            action=action,
            aggregated=aggregated,
            patch=Patch(count, last, message) if repeat else None,
        )
        self._add(want)

    def _add(self, want: Decision) -> None:
        self._table.add(self._t_ms, self._event, want)


def nine_created(table: Table, start_s: float = 0, step_s: float = 1, text: str = "block", **fields: Any) -> None:
    """Nine different messages, `block 1` … `block 9`, *step_s* apart, each stored on its own."""
    for number in range(1, 10):
        table.at(start_s + (number - 1) * step_s, f"{text} {number}", **fields).created()
