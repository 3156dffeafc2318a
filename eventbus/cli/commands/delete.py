"""`eventbus delete`: deletes stored objects, as kubectl does."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.lookup import demanded_kind, objects_from_words
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import Session, open_session
from eventbus.cli.this_machine import up_lines
from eventbus.errors import NotFound
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.event import ObjectReference
    from eventbus.model.kinds import Kind

#: kubectl's warning.
_NOT_WAITED_FOR = (
    "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "
    "The resource may continue to run on the cluster indefinitely."
)


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="[NAMESPACE/]KIND/NAME...", shell_complete=complete_objects)
@namespace_option("Where the objects are.")
@click.option("--ignore-not-found", is_flag=True, help="A missing object is no error.")
@click.option(
    "--grace-period",
    "grace_s",
    type=int,
    default=-1,
    metavar="SECONDS",
    help="How long a pod has to end; 0 only with --force.  [default: as long as it says]",
)
@click.option("--force", is_flag=True, help="Take pods out of the store at once, without waiting for their agent.")
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Only names, or the deleted objects as JSON.")
def delete(
    objects: tuple[str, ...], namespace: str, ignore_not_found: bool, grace_s: int, force: bool, output: str | None
) -> None:
    """Delete objects from the store: pods, nodes with their leases, leases, events.

    A pod of the bus is Terminating until its agent has ended it, within its grace period or --grace-period. With
    --force it is deleted immediately, for example if its machine is lost; a running agent then ends it.

    Deleting a node records no NodeNotReady. If its agent still runs, the node is registered again. KIND NAME works as
    well, and kubectl's plurals and short names.

    \b
    Examples:
      eventbus delete node/n1
      eventbus delete node n1
      eventbus delete lease/n1 -n kube-node-lease
      eventbus delete event/web-0.17f3a2 -n shop
      eventbus delete pod/web-0 --grace-period=5
      eventbus delete pod/web-0 --force

    \b
    Exit codes:
      0  all objects are deleted
      1  an object does not exist, or Redis is unavailable
      2  wrong usage, or no such kind
    """
    from eventbus.model.columns.objects import object_name

    asked_s = _asked_s(grace_s, force=force)
    found = [_meant(reference, namespace) for reference in objects_from_words(objects)]
    missing, gone = 0, []
    with open_session() as session:
        for kind, name, place in found:
            try:
                _delete(session, kind, name, place, asked_s)
            except NotFound as error:
                missing += not ignore_not_found
                if not ignore_not_found:
                    click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
                    _tell_line(kind, name, place)
                continue
            _tell_line(kind, name, place)
            gone.append({"kind": kind.name, "apiVersion": kind.api_version, "name": name})
            if output != "json":
                click.echo(printable(object_name(kind, name)) if output == "name" else _deleted(kind, name, force))
    if output == "json":
        write(dump_json({"deleted": gone}) + "\n")
    sys.exit(NotFound.exit_code if missing else 0)


def _asked_s(grace_s: int, *, force: bool) -> int | None:
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


def _tell_line(kind: Kind[Any], name: str, namespace: str) -> None:
    """Refuse to delete the mirror of a line of `eventbus up`, and print how to end the line."""
    from eventbus.model.kinds import POD

    for line in up_lines(namespace) if kind is POD else ():
        if line == name or line.startswith(f"{name}-"):
            click.echo(f"{printable(line)} is a line of `eventbus up`, which ends it at its own end (Ctrl-C)", err=True)


def _deleted(kind: Kind[Any], name: str, force: bool) -> str:
    """kubectl's line."""
    group = kind.api_version.rpartition("/")[0]
    word = f"{kind.name.lower()}.{group}" if group else kind.name.lower()
    return f'{word} "{printable(name)}" {"force deleted" if force else "deleted"}'
