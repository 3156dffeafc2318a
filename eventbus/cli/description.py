"""One object as `eventbus describe` shows it: what its events tell of it. Pure functions, nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from eventbus.cli.age import age
from eventbus.cli.event_table import by_last_seen, describe_events
from eventbus.cli.output import core_of
from eventbus.event import Event
from eventbus.text import printable

#: The events by which the store itself says what it held back.
SUPPRESSED_REASON = "EventsSuppressed"
#: Lines of a list; the rest is counted.
LINES = 8
_WIDTH = 14


class Reason(msgspec.Struct, frozen=True, rename="camel"):
    """How often the object's events of one type and reason happened."""

    type: str
    reason: str
    events: int  #: stored ones
    seen: int  #: times, all their counts together


class Description(msgspec.Struct, frozen=True):
    """What the stored events tell of one object; they are sorted by when they were last seen."""

    kind: str
    namespace: str
    name: str
    events: tuple[Event, ...]

    @property
    def uids(self) -> list[str]:
        """The latest first: an object that was made anew has another."""
        return _distinct(event.involved_object.uid for event in reversed(self.events))

    @property
    def api_versions(self) -> list[str]:
        """The latest first."""
        return _distinct(event.involved_object.api_version for event in reversed(self.events))

    @property
    def first_seen(self) -> datetime | None:
        """Of all that is still stored."""
        return min((time for event in self.events if (time := event.first_timestamp or event.event_time)), default=None)

    @property
    def last_seen(self) -> datetime | None:
        """The same, of the latest."""
        return max((time for event in self.events if (time := event.last_seen)), default=None)

    @property
    def reasons(self) -> list[Reason]:
        """The most frequent first, warnings before others; without what was held back."""
        found: dict[tuple[str, str], list[Event]] = {}
        for event in self.events:
            if event.reason != SUPPRESSED_REASON:
                found.setdefault((event.type, event.reason), []).append(event)
        rows = [Reason(*key, len(events), sum(map(seen, events))) for key, events in found.items()]
        return sorted(rows, key=lambda row: (row.type != "Warning", -row.seen, row.reason))

    @property
    def sources(self) -> list[str]:
        """`kubelet, node-1`, the latest first."""
        return _distinct(_source(event) for event in reversed(self.events))

    @property
    def suppressed(self) -> int:
        """How often its events were held back as spam, as far as that has been written down."""
        return sum(seen(event) for event in self.events if event.reason == SUPPRESSED_REASON)


def describe_objects(events: Iterable[Event]) -> list[Description]:
    """One description an object: namespace, kind and name."""
    found: dict[tuple[str, str, str], list[Event]] = {}
    for event in by_last_seen(events):
        about = event.involved_object
        found.setdefault((event.metadata.namespace, about.kind, about.name), []).append(event)
    return [
        Description(kind, namespace, name, tuple(group)) for (namespace, kind, name), group in sorted(found.items())
    ]


def format_description(described: Description, *, now: datetime, show_events: bool = True, colour: bool = False) -> str:
    """The page of one object, with kubectl's Events section at its end."""
    reasons = [f"{row.type:<7}  {row.reason} x{row.seen}" for row in described.reasons]
    parts = [
        _line("Name", [described.name]),
        _line("Namespace", [described.namespace]),
        _line("Kind", [described.kind]),
        _line("API Version", described.api_versions),
        _line("UID", described.uids),
        _line("First Seen", [_when(described.first_seen, now)]),
        _line("Last Seen", [_when(described.last_seen, now)]),
        _line("Reasons", reasons),
        _line("Sources", described.sources),
    ]
    if described.suppressed:
        parts.append(_line("Held Back", [f"{described.suppressed} as spam (eventbus get suppressed)"]))
    if show_events:
        parts.append(describe_events(described.events, now=now, label_width=_WIDTH, colour=colour))
    return "".join(parts)


def description_to_json(described: Description) -> dict[str, Any]:
    """The same as JSON-like data; events in the form of core/v1."""
    return {
        "kind": described.kind,
        "namespace": described.namespace,
        "name": described.name,
        "apiVersions": described.api_versions,
        "uids": described.uids,
        "firstSeen": _json_time(described.first_seen),
        "lastSeen": _json_time(described.last_seen),
        "reasons": msgspec.to_builtins(described.reasons),
        "sources": described.sources,
        "suppressed": described.suppressed,
        "events": [core_of(event) for event in described.events],
    }


def seen(event: Event) -> int:
    """How often it happened; a lone event has no count."""
    return event.series.count if event.series is not None else event.count or 1


def _line(label: str, values: Sequence[str]) -> str:
    """A label and its values, one a line, as many as LINES."""
    shown = [printable(value) for value in values[:LINES]] or ["<none>"]
    if len(values) > LINES:
        shown.append(f"and {len(values) - LINES} more")
    lead = f"{label + ':':<{_WIDTH}}"
    return "".join(f"{lead if number == 0 else ' ' * _WIDTH}{value}\n" for number, value in enumerate(shown))


def _when(time: datetime | None, now: datetime) -> str:
    return "<unknown>" if time is None else f"{format_datetime(time)} ({age(now, time)} ago)"


def _json_time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _source(event: Event) -> str:
    component = event.source.component or event.reporting_component
    host = event.source.host or event.reporting_instance
    return f"{component}, {host}" if host else component


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))
