"""`eventbus api-resources`: the kinds in the store, in kubectl's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.printers.output import dump_json, write
from eventbus.util.table import format_table

if TYPE_CHECKING:
    from eventbus.model.kinds import Kind

HEADERS = ("Name", "Shortnames", "Apiversion", "Namespaced", "Kind")


@click.command(name="api-resources")
@click.option("-o", "--output", type=click.Choice(["json", "name"]), help="JSON or names instead of the table.")
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
def api_resources(output: str | None, no_headers: bool) -> None:
    """List the kinds of objects that the store holds. Events may be about objects of any kind.

    \b
    Examples:
      eventbus api-resources
      eventbus api-resources -o name
    """
    from eventbus.model.kinds import KINDS

    kinds = sorted(KINDS, key=lambda kind: kind.plural)
    if output == "name":
        write("".join(f"{kind.plural}\n" for kind in kinds))
    elif output == "json":
        write(dump_json([_plain(row) for row in map(_row, kinds)]) + "\n")
    else:
        write(format_table(HEADERS, [_row(kind) for kind in kinds], no_headers=no_headers))


def _row(kind: Kind[Any]) -> tuple[str, ...]:
    return (kind.plural, ",".join(kind.short_names), kind.api_version, str(kind.namespaced).lower(), kind.name)


def _plain(row: tuple[str, ...]) -> dict[str, object]:
    name, short, version, namespaced, kind = row
    return {
        "name": name,
        "shortNames": short.split(",") if short else [],
        "apiVersion": version,
        "namespaced": namespaced == "true",
        "kind": kind,
    }
