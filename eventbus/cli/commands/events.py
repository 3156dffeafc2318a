"""`eventbus events`: kubectl's `events` command, with its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.commands.get_events import event_request
from eventbus.cli.completion import complete_forms
from eventbus.cli.input.event_options import (
    about_option,
    all_namespaces_option,
    events_namespace_option,
    since_events_option,
    types_option,
)
from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.input.lookup import waiting
from eventbus.cli.printers.output import FORMS, wants_colour
from eventbus.model.event import Event

if TYPE_CHECKING:
    from eventbus.cli.printers.object_printer import PrintedChange


@click.command()
@events_namespace_option
@all_namespaces_option
@click.option("-w", "--watch", is_flag=True, help="After the list, show events as they are written, until Ctrl-C.")
@about_option
@types_option
@since_events_option
@click.option("--sort-by", metavar="JSONPATH", help="Order of the list.  [default: by last occurrence]")
@click.option(
    "-o",
    "--output",
    default="",
    metavar="FORM",
    help=f"Output in another form: {FORMS}.",
    shell_complete=complete_forms,
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
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
    from eventbus.cli.listing import run_get

    query = GetOptions(
        namespace=namespace,
        all_namespaces=all_namespaces,
        watch=watch,
        output=output,
        no_headers=no_headers,
        sort_by=sort_by,
    )
    request = event_request(query, about, types, since, None)
    query = request.query
    rows = _Rows(all_namespaces=all_namespaces, no_headers=no_headers, colour=wants_colour(sys.stdout))
    none = "No events found." if query.all_namespaces else f"No events found in {query.namespace} namespace."
    run_get(
        msgspec.structs.replace(
            request, printer=None if output else rows, none=none, on_empty=lambda session: [waiting(session)]
        )
    )


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
