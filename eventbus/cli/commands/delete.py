"""`eventbus delete`: deletes stored objects, as kubectl does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.event_options import about_option
from eventbus.cli.input.lookup import demanded_kind, list_about, object_from_words, objects_from_words, stored_kind
from eventbus.cli.input.options import ask_consent, namespace_option
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import Session, open_session
from eventbus.cli.this_machine import up_lines
from eventbus.errors import NotFound
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.event import Event, ObjectMeta, ObjectReference
    from eventbus.model.kinds import Kind

#: Events read in one request.
PAGE = 500
#: kubectl's warning.
_NOT_WAITED_FOR = (
    "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "
    "The resource may continue to run on the cluster indefinitely."
)


@click.command()
@click.argument("objects", nargs=-1, metavar="[NAMESPACE/]KIND/NAME...", shell_complete=complete_objects)
@namespace_option("Where the objects are.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --for or --field-selector: events of every namespace.")
@about_option
@click.option("--field-selector", default="", metavar="FIELDS", help="Events with these fields: reason=Pulled.")
@click.option("-y", "--yes", is_flag=True, help="With --for or --field-selector: do not ask.")
@click.option("--dry-run", is_flag=True, help="With --for or --field-selector: only print the events.")
@click.option("--ignore-not-found", is_flag=True, help="Ignore missing objects.")
@click.option(
    "--grace-period",
    "grace_s",
    type=int,
    default=-1,
    metavar="SECONDS",
    help="Grace period of pods; 0 only with --force.  [default: that of the pod]",
)
@click.option("--force", is_flag=True, help="Delete pods from the store at once, without waiting for their agent.")
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Only names, or the deleted objects as JSON.")
def delete(
    objects: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    about: str | None,
    field_selector: str,
    yes: bool,
    dry_run: bool,
    ignore_not_found: bool,
    grace_s: int,
    force: bool,
    output: str | None,
) -> None:
    """Delete objects from the store: pods, nodes with their leases, leases, events.

    A pod of the bus is Terminating until its agent has ended it, within its grace period or --grace-period. With
    --force it is deleted immediately, for example if its machine is lost; a running agent then ends it.

    `delete events` with --for or --field-selector deletes all events that match. It asks first, unless --yes is given.
    Events that are recorded meanwhile, or later, stay. Exports and backups keep theirs.

    Deleting a node records no NodeNotReady. If its agent still runs, the node is registered again. KIND NAME works as
    well, and kubectl's plurals and short names.

    \b
    Examples:
      eventbus delete node/n1
      eventbus delete node n1
      eventbus delete lease/n1 -n kube-node-lease
      eventbus delete event/web-0.17f3a2 -n shop
      eventbus delete events --for customer/4711 -A --dry-run
      eventbus delete events --field-selector reason=Pulled --yes
      eventbus delete pod/web-0 --grace-period=5
      eventbus delete pod/web-0 --force

    \b
    Exit codes:
      0  all objects are deleted
      1  an object does not exist, or Redis is unavailable
      2  wrong usage, or no such kind
    """
    from eventbus.model.columns.objects import object_name
    from eventbus.model.kinds import EVENT

    if about is not None or field_selector:
        if len(objects) != 1 or stored_kind(objects[0]) is not EVENT:
            raise click.UsageError("--for and --field-selector delete events: give `delete events`, without a name")
        place = None if all_namespaces else namespace
        _delete_events(place, about, field_selector, yes=yes, dry_run=dry_run, output=output)
        return
    if not objects or all_namespaces or dry_run:
        raise click.UsageError("give KIND/NAME, or `events` with --for or --field-selector")
    grace_period_s = _grace_period_s(grace_s, force=force)
    targets = [_meant(reference, namespace) for reference in objects_from_words(objects)]
    missing, deleted = 0, []
    with open_session() as session:
        for kind, name, place in targets:
            try:
                _delete(session, kind, name, place, grace_period_s)
            except NotFound as error:
                missing += not ignore_not_found
                if not ignore_not_found:
                    click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
                    _hint_at_line(kind, name, place)
                continue
            _hint_at_line(kind, name, place)
            deleted.append({"kind": kind.name, "apiVersion": kind.api_version, "name": name})
            if output != "json":
                click.echo(printable(object_name(kind, name)) if output == "name" else _deleted(kind, name, force))
    if output == "json":
        write(dump_json({"deleted": deleted}) + "\n")
    sys.exit(NotFound.exit_code if missing else 0)


def _delete_events(
    namespace: str | None, about: str | None, field_selector: str, *, yes: bool, dry_run: bool, output: str | None
) -> None:
    """Delete the events that match in *namespace* (None: in all), and print each and their number.

    Raises: ClickException: there is no terminal to ask.  InvalidSelector, BusUnavailable: the error ends the command.
    """
    reference = None if about is None else object_from_words((about,))
    if reference is not None and reference.namespace:
        namespace = reference.namespace
    with open_session() as session:
        matching = _matching_events(session, namespace, reference, field_selector)
        if matching and not dry_run and not yes:
            place = "all namespaces" if namespace is None else f"namespace {namespace}"
            ask_consent(f"Delete {_number(matching)} of {place}?")
        deleted = []
        for event in matching:
            if not dry_run:
                try:
                    session.store.delete(event.namespace, event.name)
                except NotFound:
                    continue  # it has expired, or another command was faster
            deleted.append(event)
            if output != "json":
                name = printable(f"event/{event.name}" if output == "name" else f'event "{event.name}" deleted')
                click.echo(f"{name} (dry run)" if dry_run and not output else name)
    if output == "json":
        objects = [
            {"kind": "Event", "apiVersion": "v1", "namespace": event.namespace, "name": event.name} for event in deleted
        ]
        write(dump_json({"deleted": [] if dry_run else objects, "matched": len(matching)}) + "\n")
    elif not output:
        click.echo(f"{_number(deleted)} {'would be ' if dry_run else ''}deleted" if matching else "No events match.")


def _number(events: Sequence[object]) -> str:
    return "1 event" if len(events) == 1 else f"{len(events)} events"


def _matching_events(
    session: Session, namespace: str | None, reference: ObjectReference | None, field_selector: str
) -> list[ObjectMeta]:
    """Return the metadata of the events to delete: there may be a million, and their texts are not needed."""
    from eventbus.model.kinds import EVENT
    from eventbus.model.list_watch import ListOptions, list_all
    from eventbus.store.selection import Selection

    options = ListOptions(namespace=namespace or "", field_selector=field_selector, limit=PAGE)
    if reference is None:
        matching = list_all(session.store.objects(EVENT), options)[0].items
    else:
        selection: Selection[Event] = Selection(EVENT, options)
        items = list_about(session.store, namespace, reference).items
        matching = tuple(event for event in items if selection.matches(event))
    return [event.metadata for event in matching]


def _grace_period_s(grace_s: int, *, force: bool) -> int | None:
    """Return the grace period to request; None: the pod's own. Raises: UsageError."""
    if not force:
        return None if grace_s < 0 else max(1, grace_s)  # as kubectl, against accidents
    if grace_s > 0:
        raise click.UsageError("--force and --grace-period greater than 0 cannot be specified together")
    click.echo(_NOT_WAITED_FOR, err=True)
    return 0


def _meant(reference: ObjectReference, namespace: str) -> tuple[Kind[Any], str, str]:
    return demanded_kind(reference.kind), reference.name, reference.namespace or namespace


def _delete(session: Session, kind: Kind[Any], name: str, namespace: str, grace_s: int | None) -> None:
    from eventbus.model.kinds import LEASE, NODE
    from eventbus.model.objects.cluster import NODE_LEASES

    place = namespace if kind.namespaced else ""
    if kind is NODE:
        # First, or a lifecycle worker would recreate the node for a lease without one.
        session.store.objects(NODE).get(name)
        with suppress(NotFound):
            session.store.objects(LEASE).delete(name, NODE_LEASES)
    session.store.objects(kind).delete(name, place, grace_s=grace_s)


def _hint_at_line(kind: Kind[Any], name: str, namespace: str) -> None:
    """Refuse to delete the mirror of a line of `eventbus up`, and print how to end the line."""
    from eventbus.model.kinds import POD

    for line in up_lines(namespace) if kind is POD else ():
        if line == name or line.startswith(f"{name}-"):
            click.echo(f"{printable(line)} is a process of `eventbus up`: end it with Ctrl-C there", err=True)


def _deleted(kind: Kind[Any], name: str, force: bool) -> str:
    """kubectl's line."""
    group = kind.api_version.rpartition("/")[0]
    word = f"{kind.name.lower()}.{group}" if group else kind.name.lower()
    return f'{word} "{printable(name)}" {"force deleted" if force else "deleted"}'
