"""`eventbus delete`: takes stored objects out, as kubectl does."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.completion import complete_namespaces, complete_objects
from eventbus.cli.input.kind_names import object_from_words
from eventbus.cli.input.lookup import stored_kind
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.kinds import KINDS, LEASE, NODE, Kind
from eventbus.names import is_dns_label
from eventbus.objects.conditions import NODE_LEASES
from eventbus.printers.object_table import object_name
from eventbus.printers.output import dump_json, write
from eventbus.text import printable

if TYPE_CHECKING:
    from eventbus.event import ObjectReference


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME...", shell_complete=complete_objects)
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Where the objects are.",
    shell_complete=complete_namespaces,
)
@click.option("--ignore-not-found", is_flag=True, help="What is not there is no error.")
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Names only, or what was taken out as JSON.")
def delete(objects: tuple[str, ...], namespace: str, ignore_not_found: bool, output: str | None) -> None:
    """Take objects out of the store: nodes with their leases, leases, events.

    A node leaves without noise: nobody is told that it fell silent. One whose agent still runs comes back. KIND NAME
    works as well, and kubectl's plurals and short names.

    \b
    Examples:
      eventbus delete node/n1
      eventbus delete node n1
      eventbus delete lease/n1 -n kube-node-lease
      eventbus delete event/web-0.17f3a2 -n shop

    \b
    Exit codes:
      0  all of them are gone
      1  one of them was not there, or Redis does not answer
      2  wrong usage, or no such kind
    """
    if not is_dns_label(namespace):
        raise click.BadParameter(f"{namespace!a} is not a DNS label", param_hint="--namespace")
    found = [_meant(reference) for reference in _references(objects)]
    missing, gone = 0, []
    with open_session() as session:
        for kind, name in found:
            try:
                _delete(session, kind, name, namespace)
            except NotFound as error:
                missing += not ignore_not_found
                if not ignore_not_found:
                    click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
                continue
            gone.append({"kind": kind.name, "apiVersion": kind.api_version, "name": name})
            if output != "json":
                click.echo(printable(object_name(kind, name)) if output == "name" else _deleted(kind, name))
    if output == "json":
        write(dump_json({"deleted": gone}) + "\n")
    sys.exit(NotFound.exit_code if missing else 0)


def _references(words: tuple[str, ...]) -> list[ObjectReference]:
    """`node/a node/b`, or `node a b`."""
    if "/" in words[0]:
        return [object_from_words((word,), "") for word in words]
    names = words[1:]
    return [object_from_words((words[0], name), "") for name in names] or [object_from_words(words, "")]


def _meant(reference: ObjectReference) -> tuple[Kind[Any], str]:
    kind = stored_kind(reference.kind)
    if kind is None:
        known = ", ".join(sorted(kind.plural for kind in KINDS))
        raise click.UsageError(f"the store holds no {printable(reference.kind)}: it has {known}")
    return kind, reference.name


def _delete(session: Session, kind: Kind[Any], name: str, namespace: str) -> None:
    place = namespace if kind.namespaced else ""
    if kind is NODE:
        # First, or a lifecycle worker would make the node anew for a lease that has none.
        session.store.objects(NODE).get(name)
        with suppress(NotFound):
            session.store.objects(LEASE).delete(name, NODE_LEASES)
    session.store.objects(kind).delete(name, place)


def _deleted(kind: Kind[Any], name: str) -> str:
    """kubectl's line."""
    group = kind.api_version.rpartition("/")[0]
    word = f"{kind.name.lower()}.{group}" if group else kind.name.lower()
    return f'{word} "{printable(name)}" deleted'
