"""`eventbus events`: kubectl's `events` command, with its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.input.event_options import (
    about_option,
    all_namespaces_option,
    events_about,
    namespace_option,
    types_option,
)
from eventbus.cli.input.kind_names import object_from_words
from eventbus.cli.input.lookup import list_about, waiting
from eventbus.cli.object_follower import ObjectFollower
from eventbus.cli.session import open_session
from eventbus.event import Event, ObjectReference
from eventbus.kinds import EVENT
from eventbus.list_watch import ListOptions, ObjectList, WatchEventType
from eventbus.names import is_dns_label
from eventbus.printers.event_table import by_last_seen, events_headers, events_row
from eventbus.printers.object_printer import PrintedChange, Printer, PrintOptions, make_printer
from eventbus.printers.output import wants_colour, write
from eventbus.printers.table import Table

if TYPE_CHECKING:
    from eventbus.store.object_store import AnyStore


@click.command()
@namespace_option
@all_namespaces_option
@click.option("-w", "--watch", is_flag=True, help="After the list, show events as they are written, until Ctrl-C.")
@about_option
@types_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Another form than the table.")
@click.option("--no-headers", is_flag=True, help="A table without its first line.")
def events(
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    about: str | None,
    types: frozenset[str],
    output: str | None,
    no_headers: bool,
) -> None:
    """Show events with how often and since when they happened, the latest last.

    -w waits through a bus that goes away; one that is away at the start ends it with exit code 1, as kubectl.

    \b
    Examples:
      eventbus events
      eventbus events --for pod/web-0
      eventbus events --for pod/web-0 -w
      eventbus events -A --types=Warning
    """
    if not all_namespaces and not is_dns_label(namespace):
        raise click.BadParameter(f"{namespace!a} is not a DNS label", param_hint="--namespace")
    place = None if all_namespaces else namespace
    reference = None if about is None else object_from_words((about,), "")
    printer: Printer = (
        make_printer(EVENT, PrintOptions(form=output))
        if output
        else _Rows(all_namespaces=all_namespaces, no_headers=no_headers, colour=wants_colour(sys.stdout))
    )
    with open_session() as session:
        follower = _follower(session.store, place, reference, types)
        found = by_last_seen(follower.fetch())
        if watch:
            write(printer.watched([PrintedChange(WatchEventType.ADDED, event) for event in found]))
            _say(waiting(session))
            for told in follower.follow():
                write(printer.watched([one for one in told if one.type != WatchEventType.DELETED]))
        hint = waiting(session)
    if found or output in ("json", "yaml"):
        write(printer.listed(found))
    elif output != "name":
        click.echo("No events found." if place is None else f"No events found in {place} namespace.", err=True)
    _say(hint)


def _follower(
    store: AnyStore, place: str | None, reference: ObjectReference | None, types: frozenset[str]
) -> ObjectFollower:
    """Make a follower that lists and watches the chosen events of the namespace *place* (None: of all)."""
    changed = ListOptions(namespace=place or "", allow_bookmarks=True)
    is_one = events_about(reference, types)

    def list_all() -> ObjectList[Event]:
        found = store.list(place) if reference is None else list_about(store, place, reference)
        return ObjectList(found.items, found.resource_version)

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
        self._all_namespaces = all_namespaces
        self._colour = colour
        self._table = Table(events_headers(all_namespaces=all_namespaces), no_headers=no_headers)

    def listed(self, events: Sequence[Event]) -> str:
        now = datetime.now(UTC)
        return self._table.text(
            events_row(event, now=now, all_namespaces=self._all_namespaces, colour=self._colour)
            for event in by_last_seen(events)
        )

    def watched(self, told: Sequence[PrintedChange]) -> str:
        return self.listed([one.object for one in told])
