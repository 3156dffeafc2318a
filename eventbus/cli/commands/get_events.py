"""`eventbus get events`: kubectl's columns, cells, ages and flags, and options that its users have asked for.

`cli/listing.py` lists and follows, `cli/printers/object_printer.py` makes the table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eventbus.cli.input.event_options import (
    about_option,
    all_namespaces_option,
    events_about,
    events_namespace_option,
    last_seen_between,
    since_events_option,
    types_option,
)
from eventbus.cli.input.get_options import GetOptions, common_options
from eventbus.cli.input.lookup import list_about, no_worker, object_from_words, waiting
from eventbus.cli.input.options import since_option
from eventbus.cli.printers.output import wants_colour
from eventbus.cli.session import Session
from eventbus.model.event import Event, ObjectReference
from eventbus.model.list_watch import ObjectList

if TYPE_CHECKING:
    from eventbus.cli.listing import Request
    from eventbus.cli.printers.object_printer import PrintedChange


@click.command()
@events_namespace_option
@all_namespaces_option
@about_option
@types_option
@since_events_option
@click.option("--until", callback=since_option, metavar="10m|RFC3339", help="Only events last seen until then.")
@click.option("--group", is_flag=True, help="One line for each reason and kind of object, with counts.")
@common_options
def get_events(
    about: str | None,
    types: frozenset[str],
    since: datetime | None,
    until: datetime | None,
    group: bool,
    **common: Any,
) -> None:
    """Show events, sorted by when they were last seen, the latest last.

    -w waits if the bus goes away. If the bus is away at the start, it ends with exit code 1, as kubectl.

    \b
    Examples:
      eventbus get events
      eventbus get events -A -w --types warning
      eventbus get events --for pods/web-0 --since 1h30m -o wide
      eventbus get events -A --group --since 1h
      eventbus get events --field-selector type=Warning,reason!=BackOff -o json
      eventbus get events -o jsonpath='{.items[*].reason}' --sort-by=.count
    """
    from eventbus.cli.listing import run_get

    query = GetOptions(**common)
    if group and (query.watches or query.names or query.output not in ("", "wide")):
        raise click.UsageError("--group cannot be used with -w, -o or a name")
    if about is not None and query.names:
        raise click.UsageError("--for cannot be used with a name")
    if until is not None and query.watches:
        raise click.UsageError("--until cannot be used with -w, which shows future events")
    if since is not None and until is not None and since > until:
        raise click.UsageError("no event can match: --since is later than --until")
    request = event_request(query, about, types, since, until)
    run_get(msgspec.structs.replace(request, on_empty=_hints, printer=_Groups(query) if group else None))


def event_request(
    query: GetOptions, about: str | None, types: frozenset[str], since: datetime | None, until: datetime | None
) -> Request:
    """Return the request for the events about one object (None: all), of *types*, last seen in that time."""
    from eventbus.cli.listing import Request
    from eventbus.model.kinds import EVENT

    reference = None if about is None else object_from_words((about,))
    if reference is not None and reference.namespace:
        query = msgspec.structs.replace(query, namespace=reference.namespace, all_namespaces=False)
    is_about, is_recent = events_about(reference, types), last_seen_between(since, until)
    return Request(
        kind=EVENT,
        query=query,
        list_all=None if reference is None else lambda session: _list_about(session, query, reference),
        wanted=lambda event: is_about(event) and is_recent(event),
        hint=waiting,
    )


class _Groups:
    """Prints groups instead of events."""

    def __init__(self, query: GetOptions) -> None:
        self._no_headers = query.no_headers

    def listed(self, items: Sequence[Any]) -> str:
        from eventbus.cli.printers.event_groups import groups_table

        now, colour = datetime.now(UTC), wants_colour(sys.stdout)
        return groups_table(items, now=now, no_headers=self._no_headers, colour=colour)

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        return self.listed([change.object for change in changes])


def _list_about(session: Session, query: GetOptions, reference: ObjectReference) -> ObjectList[Event]:
    """List by the index of objects if there is a namespace; the other conditions are checked here."""
    from eventbus.model.kinds import EVENT
    from eventbus.store.selection import Selection

    options = query.list_options(EVENT)
    selection: Selection[Event] = Selection(EVENT, options)
    listing = list_about(session.store, options.namespace or None, reference)
    return ObjectList(tuple(event for event in listing.items if selection.matches(event)), listing.resource_version)


def _hints(session: Session) -> list[str]:
    """List possible reasons for an empty list."""
    from eventbus.util.human_duration import human_duration

    kept = human_duration(session.event_ttl_s())
    hints = [f"An event is kept for {kept} after it was last seen."]
    if hint := no_worker(session):
        hints.append(hint)
    return hints
