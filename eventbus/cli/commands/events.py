"""`eventbus events`: kubectl's `events` command, with its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.completion import complete_forms
from eventbus.cli.input.event_options import (
    about_option,
    all_namespaces_option,
    events_about,
    events_namespace_option,
    last_seen_between,
    since_events_option,
    types_option,
)
from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.input.lookup import list_about, object_from_words, waiting
from eventbus.cli.printers.output import FORMS, wants_colour, write
from eventbus.cli.session import open_session
from eventbus.model.event import Event, ObjectReference
from eventbus.model.list_watch import ListOptions, ObjectList, WatchEventType

if TYPE_CHECKING:
    from eventbus.cli.listing import ObjectFollower
    from eventbus.cli.printers.object_printer import PrintedChange, Printer
    from eventbus.store.object_store import AnyStore


@click.command()
@events_namespace_option
@all_namespaces_option
@click.option("-w", "--watch", is_flag=True, help="After the list, show events as they are written, until Ctrl-C.")
@about_option
@types_option
@since_events_option
@click.option("--sort-by", metavar="JSONPATH", help="Order of the list; else by when they were last seen.")
@click.option(
    "-o", "--output", default="", metavar="FORM", help=f"Another form: {FORMS}.", shell_complete=complete_forms
)
@click.option("--no-headers", is_flag=True, help="A table without its first line.")
def events(
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    about: str | None,
    types: frozenset[str],
    since: datetime | None,
    sort_by: str | None,
    output: str,
    no_headers: bool,
) -> None:
    """Show events with how often and since when they happened, the latest last.

    -w waits if the bus goes away. If the bus is away at the start, it ends with exit code 1, as kubectl.

    \b
    Examples:
      eventbus events
      eventbus events --for pod/web-0
      eventbus events --for pod/web-0 -w
      eventbus events -A --types=Warning --since 10m
      eventbus events --sort-by=.count
    """
    from eventbus.cli.listing import order_option, printer_option
    from eventbus.cli.printers.object_printer import PrintedChange
    from eventbus.model.kinds import EVENT

    reference = None if about is None else object_from_words((about,))
    place = None if all_namespaces else namespace
    if reference is not None and reference.namespace:
        place = reference.namespace
    query = GetOptions(output=output, no_headers=no_headers, sort_by=sort_by)
    rows = _Rows(all_namespaces=all_namespaces, no_headers=no_headers, colour=wants_colour(sys.stdout))
    printer: Printer = printer_option(EVENT, query) if output else rows
    order = order_option(EVENT, query)
    with open_session() as session:
        is_about, is_recent = events_about(reference, types), last_seen_between(since, None)
        follower = _follower(session.store, place, reference, lambda event: is_about(event) and is_recent(event))
        items = order(follower.fetch())
        if watch:
            write(printer.watched([PrintedChange(WatchEventType.ADDED, event) for event in items]))
            _say(waiting(session))
            for changes in follower.follow():
                write(printer.watched([change for change in changes if change.type != WatchEventType.DELETED]))
        hint = waiting(session)
    if items or output not in ("", "wide", "name"):
        write(printer.listed(items))
    elif output != "name":
        click.echo("No events found." if place is None else f"No events found in {place} namespace.", err=True)
    _say(hint)


def _follower(
    store: AnyStore, place: str | None, reference: ObjectReference | None, is_one: Callable[[Event], bool]
) -> ObjectFollower:
    """Make a follower that lists and watches the chosen events of the namespace *place* (None: of all)."""
    from eventbus.cli.listing import ObjectFollower
    from eventbus.model.kinds import EVENT

    changed = ListOptions(namespace=place or "", allow_bookmarks=True)

    def list_all() -> ObjectList[Event]:
        listing = store.list(place) if reference is None else list_about(store, place, reference)
        return ObjectList(listing.items, listing.resource_version)

    return ObjectFollower(
        list_all=list_all,
        watch=lambda version: store.objects(EVENT).watch(msgspec.structs.replace(changed, resource_version=version)),
        wanted=lambda event: place in (None, event.metadata.namespace) and is_one(event),
    )


def _say(hint: str) -> None:
    if hint:
        click.echo(hint, err=True)


class _Rows:
    def __init__(self, *, all_namespaces: bool, no_headers: bool, colour: bool) -> None:
        from eventbus.model.columns.events import events_headers
        from eventbus.util.table import Table

        self._all_namespaces = all_namespaces
        self._colour = colour
        self._table = Table(events_headers(all_namespaces=all_namespaces), no_headers=no_headers)

    def listed(self, events: Sequence[Event]) -> str:
        from eventbus.model.columns.events import events_row

        now = datetime.now(UTC)
        return self._table.text(
            events_row(event, now=now, all_namespaces=self._all_namespaces, colour=self._colour) for event in events
        )

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        return self.listed([change.object for change in changes])
