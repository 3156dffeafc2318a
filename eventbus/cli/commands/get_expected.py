"""`eventbus get expected`: the events that rules expect, their last arrival and whether they are missing."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from eventbus.cli.completion import complete_namespaces
from eventbus.cli.contexts import NAMESPACE_VARIABLE
from eventbus.cli.printers.output import dump_json, wants_colour, write
from eventbus.cli.session import open_session
from eventbus.util.human_duration import age, human_duration
from eventbus.util.table import Cell, Colour, format_table
from eventbus.util.yaml import dump_yaml

if TYPE_CHECKING:
    from eventbus.broker.health.expected_status import ExpectedStatus
    from eventbus.util.table import Row

_HEADERS = ("Name", "Object", "Last", "Next", "State")
_WIDE = ("Deadline", "Missing since", "Known since")


@click.command()
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="More columns, or another format.")
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAMESPACE",
    envvar=NAMESPACE_VARIABLE,
    help="Only of objects in this namespace.  [default: that of the context, else all]",
    shell_complete=complete_namespaces,
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
def get_expected(output: str | None, namespace: str, no_headers: bool) -> None:
    """List the events that the rules of the notifier expect.

    LAST is the time since the last arrival, NEXT the time until the next is due (with a minus: since it was due). STATE
    is Waiting (it has not arrived yet), Arrived, Late (due, and within its grace) or Missing: then a Warning
    ExpectedEventMissing about the object was recorded. See docs/warnings.md.

    \b
    Examples:
      eventbus get expected
      eventbus get expected -o wide
      eventbus get expected -n shop -o json
    """
    import msgspec

    now = datetime.now(UTC)
    with open_session() as session:
        found = session.read_expected(now, namespace)
    if output in ("json", "yaml"):
        plain = msgspec.to_builtins(found)
        write(dump_json(plain) + "\n" if output == "json" else dump_yaml(plain))
        return
    if not found:
        click.echo("No event is expected: add entries of expect to the rules of `eventbus worker notify`.", err=True)
        return
    wide = output == "wide"
    rows = [_row(each, now, wide=wide, coloured=wants_colour(sys.stdout)) for each in found]
    write(format_table(_HEADERS + _WIDE if wide else _HEADERS, rows, no_headers=no_headers))


def _row(each: ExpectedStatus, now: datetime, *, wide: bool, coloured: bool) -> Row:
    about = "/".join(filter(None, (each.object.namespace, each.object.kind, each.object.name)))
    until_s = (each.next - now).total_seconds()
    until = human_duration(until_s) if until_s >= 0 else f"-{human_duration(-until_s)}"
    state = Cell(each.state, Colour.YELLOW if coloured and each.state in ("Late", "Missing") else Colour.PLAIN)
    row = (each.name, about, age(now, each.last) if each.last else "never", until, state)
    if not wide:
        return row
    missing = age(now, each.missing_since) if each.missing_since else "<none>"
    return (*row, f"{each.deadline.astimezone():%Y-%m-%d %H:%M:%S %z}", missing, age(now, each.known_since))
