"""`eventbus create -f FILE`: stores the objects of a YAML or JSON file, as kubectl does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from eventbus.cli.commands.apply import read_files
from eventbus.cli.completion import complete_files
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.errors import AlreadyExists, InvalidObject
from eventbus.model.columns.objects import object_name
from eventbus.model.kinds import EVENT, EVENTS_V1, KINDS, Kind
from eventbus.util.text import printable


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE",
              help="A file, a folder of them, or - for standard input; may be repeated.",
              shell_complete=complete_files)  # fmt: skip
@namespace_option("Of objects that name none.")
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Only names, or the stored objects as JSON.")
def create(files: tuple[str, ...], namespace: str, output: str | None) -> None:
    """Store the objects of a file: YAML with any number of documents, or JSON.

    A created event is stored unchanged and not correlated. To record an event, use `eventbus record`.

    \b
    Examples:
      eventbus create -f node.yaml
      eventbus get node n1 -o yaml | eventbus --context staging create -f -

    \b
    Exit codes:
      0  all of them are stored
      1  one exists already, or Redis does not answer
      2  wrong usage, or an object that cannot be read
    """
    objects = [(_kind(plain), plain) for file in files for plain in read_files(file)]
    refused, stored = 0, []
    with open_session() as session:
        for kind, plain in objects:
            try:
                created = session.store.objects(kind).create(_placed(kind, kind.decode(plain), namespace))
            except AlreadyExists as problem:
                refused += 1
                click.echo(f"Error from server (AlreadyExists): {printable(str(problem))}", err=True)
                continue
            stored.append(kind.encode(created))
            if output != "json":
                name = printable(object_name(kind, created.metadata.name))
                click.echo(name if output == "name" else f"{name} created")
    if output == "json":
        together = {"kind": "List", "apiVersion": "v1", "items": stored}
        write(dump_json(stored[0] if len(stored) == 1 else together) + "\n")
    sys.exit(1 if refused else 0)


def _kind(plain: Mapping[str, Any]) -> Kind[Any]:
    named = (plain.get("apiVersion"), plain.get("kind"))
    kinds: tuple[Kind[Any], ...] = (*KINDS, EVENTS_V1)
    for kind in kinds:
        if named == (kind.api_version, kind.name):
            return kind
    known = ", ".join(f"{kind.name} ({kind.api_version})" for kind in KINDS)
    raise InvalidObject(f"the store holds no {named[1]} of {named[0]}: it holds {known}")


def _placed(kind: Kind[Any], item: Any, namespace: str) -> Any:
    """Return the object in its namespace, without fields that its former store set."""
    metadata = item.metadata
    place = (metadata.namespace or namespace) if kind.namespaced else ""
    fresh = msgspec.structs.replace(metadata, namespace=place, resource_version="", uid="")
    if kind in (EVENT, EVENTS_V1) and not item.involved_object.namespace:
        about = msgspec.structs.replace(item.involved_object, namespace=place)
        return msgspec.structs.replace(item, metadata=fresh, involved_object=about)
    return msgspec.structs.replace(item, metadata=fresh)
