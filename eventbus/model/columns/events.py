"""Makes the cells of an event for tables: the columns of `kubectl get events`, `kubectl events` and `kubectl describe`.

Pure functions from an Event and the time to text; nothing is fetched and nothing printed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from eventbus.model.event import Event, EventType
from eventbus.util.human_duration import age
from eventbus.util.table import Cell, Colour, Layout, Row, format_table

#: Of describe's own tab writer: no least width, padding 2, one level of indent.
DESCRIPTION: Final = Layout(padding=2, min_column=0, indent=2, upper_case_header=False)

_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


def get_headers(*, wide: bool = False, all_namespaces: bool = False) -> tuple[str, ...]:
    """Name the columns of `get events`: with *wide* kubectl's own, in its order, else a count before the message."""
    more = ("Subobject", "Source", "Message", "First Seen", "Count", "Name") if wide else ("Count", "Message")
    return (*_namespace("Namespace", all_namespaces), "Last Seen", "Type", "Reason", "Object", *more)


def get_row(
    event: Event, *, now: datetime, wide: bool = False, all_namespaces: bool = False, colour: bool = False
) -> Row:
    """Fill the columns of `get events`, in the order of `get_headers`.

    Args:   now: aware.  colour: writes the type of a Warning in yellow.
    Source: kubernetes `pkg/printers/internalversion/printers.go` printEvent.
    """
    first_seen, message = age(now, first_time(event)), event.message.strip()
    more: Row = (str(seen(event)), message)
    if wide:
        more = (
            event.involved_object.field_path,
            _source(event),
            message,
            first_seen,
            str(seen(event)),
            event.metadata.name,
        )
    return (
        *_namespace(event.metadata.namespace, all_namespaces),
        age(now, last_time(event)),
        type_cell(event, colour),
        event.reason,
        _lower_case_object(event),
        *more,
    )


def first_time(event: Event) -> datetime | None:
    """Return when it was seen first, as `get events` has it."""
    return event.first_timestamp or event.event_time


def last_time(event: Event) -> datetime | None:
    """Return when it was seen last, as `get events` has it."""
    return event.series.last_observed_time if event.series is not None else event.last_timestamp or first_time(event)


def events_headers(*, all_namespaces: bool = False) -> tuple[str, ...]:
    """Name the columns of `events`."""
    return (*_namespace("Namespace", all_namespaces), "Last Seen", "Type", "Reason", "Object", "Message")


def events_row(event: Event, *, now: datetime, all_namespaces: bool = False, colour: bool = False) -> Row:
    """Fill the columns of `events`, in the order of `events_headers`.

    Args:   now: aware.  colour: writes the type of a Warning in yellow.
    Source: kubectl `pkg/cmd/events/event_printer.go`.
    """
    return (
        *_namespace(event.metadata.namespace, all_namespaces),
        interval(event, now),
        type_cell(event, colour),
        event.reason,
        f"{event.involved_object.kind}/{event.involved_object.name}",
        event.message.strip(),
    )


def interval(event: Event, now: datetime) -> str:
    """Say how often and since when: `3m27s (x5 over 11m)`, or only the age of a single occurrence."""
    first = age(now, event.event_time or event.first_timestamp)
    if event.series is not None:
        return f"{age(now, event.series.last_observed_time)} (x{event.series.count} over {first})"
    if event.count > 1:
        return f"{age(now, event.last_timestamp)} (x{event.count} over {first})"
    return first


def describe_events(events: Iterable[Event], *, now: datetime, label_width: int = 0, colour: bool = False) -> str:
    """Format the Events section of `describe`, sorted by last timestamp alone, so that new-style events come first.

    Args:    label_width: where the values of the lines above stand, for the `<none>` of no events.
    Returns: whole lines, each with its newline.
    Source:  kubectl `pkg/describe` DescribeEvents.
    """
    ordered = sorted(events, key=lambda event: event.last_timestamp or _NO_TIME)
    if not ordered:
        return f"{'Events:  ':<{label_width}}<none>\n"
    rows: list[Row] = [("----", "------", "----", "----", "-------")]
    rows += [_description_row(event, now, colour) for event in ordered]
    return "Events:\n" + format_table(("Type", "Reason", "Age", "From", "Message"), rows, layout=DESCRIPTION)


def by_last_seen(events: Iterable[Event]) -> list[Event]:
    """Sort as `kubectl events` does, the latest last: by series, else last timestamp, else event time.

    Events without any of these come first; events of the same time stay in their order.
    """
    return sorted(events, key=_last_time)


def _last_time(event: Event) -> datetime:
    of_series = event.series.last_observed_time if event.series is not None else None
    return of_series or event.last_timestamp or event.event_time or _NO_TIME


def seen(event: Event) -> int:
    """Return how often the event happened; only a lone event has no count."""
    return event.series.count if event.series is not None else event.count or 1


def _source(event: Event) -> str:
    component = event.source.component or event.reporting_component
    host = event.source.host or event.reporting_instance
    return f"{component}, {host}" if host else component


def _lower_case_object(event: Event) -> str:
    kind, name = event.involved_object.kind.lower(), event.involved_object.name
    return f"{kind}/{name}" if name else kind


def _description_row(event: Event, now: datetime, colour: bool) -> Row:
    message, field_path = event.message.strip(), event.involved_object.field_path
    return (
        type_cell(event, colour),
        event.reason,
        interval(event, now),
        event.source.component or event.reporting_component,
        f"{field_path}: {message}" if field_path else message,
    )


def type_cell(event: Event, colour: bool) -> Cell:
    """Return the type, a Warning in yellow."""
    warns = colour and event.type == EventType.WARNING
    return Cell(event.type, Colour.YELLOW if warns else Colour.PLAIN)


def _namespace(cell: str, all_namespaces: bool) -> tuple[str, ...]:
    return (cell,) if all_namespaces else ()
