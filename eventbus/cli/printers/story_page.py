"""Formats the story of one object for a terminal: its state, its events, and related events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from eventbus.model.columns.events import DESCRIPTION, interval, type_cell
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.store.story.story import Around, Link, Story
from eventbus.store.story.verdict import Still, Verdict, first_seen
from eventbus.util.human_duration import age, human_duration
from eventbus.util.table import Row, format_table
from eventbus.util.text import printable

#: Link → its words on a line.
LINK_WORDS: Final = {
    Link.NODE: "its node",
    Link.OWNER: "its owner",
    Link.CHANGE: "change on its host",
    Link.TROUBLE: "Warning on its host",
    Link.SAME_REASON: "same reason",
}


#: Most names of objects that were started together.
NAMES: Final = 5


def format_story(story: Story, *, now: datetime, colour: bool = False) -> str:
    """Format the whole page; it ends with a newline."""
    parts = [verdict(story, now=now) + "\n"]
    parts += [_line("Belongs to", story.owners), _line("Owns", story.owned)]
    if story.hosts:
        parts.append(f"{'On:':<12}{printable(', '.join(story.hosts))}\n")
    if story.events:
        parts.append("\nEvents:\n" + _events(story.events, now=now, colour=colour, named=False))
    if story.of_owned:
        parts.append("\nOf objects that it owns:\n" + _events(story.of_owned, now=now, colour=colour, named=True))
    parts += [_silences(story), _surroundings(story, colour)]
    return "".join(parts)


def verdict(story: Story, *, now: datetime) -> str:
    """Return one sentence: why the object fails, since when, how often, and whether it still does."""
    about = printable(f"{story.object.kind}/{story.object.name}")
    state = story.verdict(now)
    if state is None:
        return f"{about}: no Warning is stored." if story.events else f"{about}: no event about it is stored."
    often = "once" if state.times == 1 else f"{state.times} times"
    since = f"{state.since:%Y-%m-%d %H:%M:%S} UTC ({age(now, state.since)} ago)"
    last = age(now, state.last)
    return f"{about}: {printable(state.reason)} {often}, warnings since {since}, last {last} ago; {_still(state)}."


def _still(verdict: Verdict) -> str:
    if verdict.still is Still.GOES_ON:
        return "still failing"
    if verdict.still is Still.ONCE:
        return "only once so far"
    return f"recovered: {printable(verdict.ended_by or 'no Warning')} since then"


def _line(label: str, objects: Iterable[ObjectReference]) -> str:
    named = ", ".join(f"{one.kind}/{one.name}" for one in objects)
    return f"{label + ':':<12}{printable(named)}\n" if named else ""


def _events(events: Iterable[Event], *, now: datetime, colour: bool, named: bool) -> str:
    rows: list[Row] = []
    for event in events:
        about = (f"{event.involved_object.kind}/{event.involved_object.name}",) if named else ()
        rows.append((interval(event, now), type_cell(event, colour), event.reason, *about, event.message.strip()))
    headers = ("Seen", "Type", "Reason", *(("Object",) if named else ()), "Message")
    return format_table(headers, rows, layout=DESCRIPTION)


def _silences(story: Story) -> str:
    """List the long silences of repeated events, because the events have a first and last time only."""
    events = {event.metadata.uid: event for event in (*story.events, *story.of_owned)}
    pauses = [
        (pause, events[rhythm.uid]) for rhythm in story.rhythms if rhythm.uid in events for pause in rhythm.silences
    ]
    if not pauses:
        return ""
    rows = [
        (
            f"{silence.since:%m-%d %H:%M} UTC",
            human_duration((silence.until - silence.since).total_seconds()),
            event.reason,
            f"{event.involved_object.kind}/{event.involved_object.name}",
        )
        for silence, event in sorted(pauses, key=lambda pause: pause[0].since)
    ]
    return "\nPauses between its events:\n" + format_table(
        ("From", "For", "Reason", "Object"), rows, layout=DESCRIPTION
    )


def _surroundings(story: Story, colour: bool) -> str:
    start = story.first_warning or next(iter(story.events), None)
    if start is None or story.since is None:
        return ""
    when = first_seen(start)
    first = "first Warning" if start.type == EventType.WARNING else "first event"
    period = human_duration(round((when - story.since).total_seconds()))
    head = f"\nRelated events in the {period} before its {first} at {when:%H:%M:%S} UTC"
    if not story.around:
        return f"{head}: none.\n"
    rows = [_around(one, when, colour) for one in story.around]
    return f"{head}:\n" + format_table(
        ("When", "Link", "Type", "Reason", "Object", "Message"), rows, layout=DESCRIPTION
    )


def _around(related: Around, when: datetime, colour: bool) -> Row:
    event = related.event
    seconds = (first_seen(event) - when).total_seconds()
    offset = f"{'-' if seconds < 0 else '+'}{human_duration(abs(seconds))}"
    about, message = f"{event.involved_object.kind}/{event.involved_object.name}", event.message.strip()
    if related.also:
        names = [event.involved_object.name, *(other.name for other in related.also)]
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        about = f"{event.involved_object.kind} ×{len(names)}"
        message = f"{len(names)} started: {', '.join(names[:NAMES])}{more}"
    return (offset, LINK_WORDS[related.link], type_cell(event, colour), event.reason, about, message)
