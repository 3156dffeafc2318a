"""The options of `eventbus events` and `eventbus get events` that select events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import click

from eventbus.cli.completion import complete_objects, complete_types
from eventbus.cli.input.lookup import is_about
from eventbus.cli.input.options import namespace_option, since_option
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.reference import meant_kinds


def _parse_types(_ctx: click.Context, _param: click.Parameter, text: str | None) -> frozenset[str]:
    """Parse event types as kubectl does, with its messages: case does not matter, other types are errors."""
    if text is None:
        return frozenset()
    known = {kind.lower(): kind.value for kind in EventType}
    try:
        return frozenset(known[part.strip().lower()] for part in text.split(","))
    except KeyError:
        raise click.UsageError("valid --types are Normal or Warning") from None


events_namespace_option = namespace_option("Events of this namespace.")
all_namespaces_option = click.option("-A", "--all-namespaces", is_flag=True, help="Events of every namespace.")
about_option = click.option(
    "--for",
    "about",
    metavar="[NAMESPACE/]KIND/NAME",
    help="Events about one object: pod/web-0, po/web-0, shop/Order/7.",
    shell_complete=complete_objects,
)
types_option = click.option(
    "--types",
    callback=_parse_types,
    metavar="TYPE,…",
    help="Only these: Normal, Warning; in any case.",
    shell_complete=complete_types,
)


since_events_option = click.option(
    "--since", callback=since_option, metavar="10m|RFC3339", help="Only events last seen since then."
)


def last_seen_between(since: datetime | None, until: datetime | None) -> Callable[[Event], bool]:
    """Return a test: was an event last seen then? None: no bound."""

    def is_one(event: Event) -> bool:
        if since is None and until is None:
            return True
        seen = event.last_seen
        return seen is not None and (since is None or seen >= since) and (until is None or seen <= until)

    return is_one


def events_about(reference: ObjectReference | None, types: frozenset[str]) -> Callable[[Event], bool]:
    """Return a test: is an event about *reference*, its kind as typed, and of one of *types*? None, none: any."""
    kinds = frozenset() if reference is None else frozenset(meant_kinds(reference.kind))

    def is_one(event: Event) -> bool:
        if reference is not None and not is_about(event, kinds, reference.name):
            return False
        return not types or event.type in types

    return is_one
