"""`eventbus events`: what `kubectl events` shows, with its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.completion import complete_namespaces, complete_objects, complete_types
from eventbus.cli.event_table import by_last_seen, events_headers, events_row
from eventbus.cli.kinds import meant_kinds, object_from_words
from eventbus.cli.lookup import is_about, list_about, waiting
from eventbus.cli.object_follower import ObjectFollower
from eventbus.cli.object_printer import Look, Printer, Told, make_printer
from eventbus.cli.output import wants_colour, write
from eventbus.cli.session import open_session
from eventbus.cli.table import Table
from eventbus.event import Event, EventType, ObjectReference
from eventbus.kinds import EVENT
from eventbus.list_watch import ListOptions, ObjectList, WatchEventType
from eventbus.names import is_dns_label

if TYPE_CHECKING:
    from eventbus.store.object_store import ObjectStore


@click.command()
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Events of this namespace.",
    shell_complete=complete_namespaces,
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Events of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="After the list, show events as they are written, until Ctrl-C.")
@click.option(
    "--for",
    "about",
    metavar="KIND/NAME",
    help="Events about one object: pod/web-0, po/web-0, pods/web-0.",
    shell_complete=complete_objects,
)
@click.option(
    "--types",
    metavar="TYPE,…",
    help="Only these: Normal, Warning; in any case.",
    shell_complete=complete_types,
)
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Another form than the table.")
@click.option("--no-headers", is_flag=True, help="A table without its first line.")
def events(
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    about: str | None,
    types: str | None,
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
    wanted_types = _parse_types(types)
    printer: Printer = (
        make_printer(EVENT, Look(form=output))
        if output
        else _Rows(all_namespaces=all_namespaces, no_headers=no_headers, colour=wants_colour(sys.stdout))
    )
    reference = ObjectReference() if about is None else object_from_words((about,), "")
    kinds = frozenset(meant_kinds(reference.kind))
    place = None if all_namespaces else namespace

    def is_wanted(event: Event) -> bool:
        if place is not None and event.metadata.namespace != place:
            return False
        if about is not None and not is_about(event, kinds, reference.name):
            return False
        return not wanted_types or event.type in wanted_types

    def list_all(store: ObjectStore) -> ObjectList[Event]:
        found = store.list(place) if about is None else list_about(store, place, reference)
        return ObjectList(found.items, found.resource_version)

    with open_session() as session, session.store as store:
        changed = ListOptions(namespace=place or "", allow_bookmarks=True)
        follower = ObjectFollower(
            list_all=lambda: list_all(store),
            watch=lambda version: store.objects(EVENT).watch(
                msgspec.structs.replace(changed, resource_version=version)
            ),
            wanted=is_wanted,
        )
        found = by_last_seen(follower.fetch())
        if watch:
            write(printer.watched([Told(WatchEventType.ADDED, event) for event in found]))
            _say(waiting(session))
            for told in follower.follow():
                write(printer.watched([one for one in told if one.type != WatchEventType.DELETED]))
        hint = waiting(session)
    if found or output in ("json", "yaml"):
        write(printer.listed(found))
    elif output != "name":
        click.echo("No events found." if place is None else f"No events found in {place} namespace.", err=True)
    _say(hint)


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

    def watched(self, told: Sequence[Told]) -> str:
        return self.listed([one.object for one in told])


def _parse_types(text: str | None) -> frozenset[str]:
    """kubectl's rule and words: case does not matter, nothing else is a type."""
    known = {kind.lower(): kind.value for kind in EventType}
    try:
        return frozenset(known[part.strip().lower()] for part in text.split(",")) if text is not None else frozenset()
    except KeyError:
        raise click.UsageError("valid --types are Normal or Warning") from None
