"""`eventbus group list` and `eventbus group delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.completion import complete_deletable
from eventbus.cli.input.options import ask_consent
from eventbus.cli.printers.output import dump_json, wants_colour, write
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.util.table import format_table
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.broker.health.status import Group

#: The store's own group: without it nothing is correlated. As `broker.bus.SINK_GROUP`, which would import redis.
STORE_GROUP = "sink"
#: The prefix of external sinks' names, as in `broker.export.export_group`.
EXPORT = "export:"
NOTIFIER = "worker:notify"


@click.command()
@click.option("-o", "--output", type=click.Choice(["json", "name"]), help="Output in another form.")
def list_groups(output: str | None) -> None:
    """List the consumer groups with their lag, and the group that blocks the stream.

    The columns are those of `eventbus status`.

    \b
    Examples:
      eventbus group list
      eventbus group list -o name
    """
    from eventbus.broker.health.status import read_status
    from eventbus.cli.printers.status_table import GROUP_HEADERS, group_rows

    with open_session() as session:
        groups = read_status(session.bus, session.client).groups
    if output == "json":
        write(dump_json(msgspec.to_builtins(groups)) + "\n")
    elif output == "name":
        write("".join(f"group/{group.name}\n" for group in groups))
    elif groups:
        write(format_table(GROUP_HEADERS, group_rows(groups, colour=wants_colour(sys.stdout))))
    else:
        click.echo("No groups found.", err=True)


@click.command()
@click.argument("name", shell_complete=complete_deletable)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also delete the store's own group, or a group with live workers.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the result as JSON.")
def delete_group(name: str, yes: bool, force: bool, output: str | None) -> None:
    """Delete a consumer group; its unread entries are no longer kept for it.

    Use it for a group without workers that holds up the stream. A live worker would recreate its group, so stop the
    workers first. `sink` is the store's own group. `export:NAME` means an external sink: its position is deleted, and
    a worker that starts later begins as a new export. `worker:notify` means the notifier: its position, alerts, groups
    and expected events are deleted.

    \b
    Examples:
      eventbus group delete billing
      eventbus group delete billing --yes
      eventbus group delete export:file-c71c8c
      eventbus group delete worker:notify
    """
    with open_session() as session:
        if name.startswith(EXPORT):
            _forget_sink(session, name.removeprefix(EXPORT), yes=yes, force=force)
        elif name == NOTIFIER:
            _forget_notifier(session, yes=yes, force=force)
        else:
            _delete(session, name, yes=yes, force=force)
    write(dump_json({"group": name, "deleted": True}) + "\n" if output == "json" else f"group/{name} deleted\n")


def _delete(session: Session, name: str, *, yes: bool, force: bool) -> None:
    from eventbus.broker.groups import delete_group as delete
    from eventbus.broker.health.status import read_status

    groups = {group.name: group for group in read_status(session.bus, session.client).groups}
    if name not in groups:
        raise NotFound(f'group "{name}" not found; there are: {", ".join(groups) or "none"}')
    if not force:
        _refuse(groups[name])
    lag = groups[name].lag
    question = f"Delete group {name}? It loses {'an unknown number of' if lag is None else lag} unread events"
    if not yes:
        ask_consent(question)
    delete(session.bus, session.client, name)


def _forget_sink(session: Session, sink: str, *, yes: bool, force: bool) -> None:
    from eventbus.broker.health.export_status import export_status, forget_sink

    sinks = {status.name: status for status in export_status(session.bus, session.client)}
    if sink not in sinks:
        raise NotFound(f'sink "{sink}" not found; there are: {", ".join(sinks) or "none"}')
    status = sinks[sink]
    if not force and len(status.orphans) < len(status.parts):
        raise click.UsageError(f"a worker of {sink} is still alive: stop it first, or add --force")
    if not yes:
        ask_consent(f"Delete the position of sink {sink}? {status.lag} changes are not written to it yet")
    forget_sink(session.bus, session.client, sink)


def _forget_notifier(session: Session, *, yes: bool, force: bool) -> None:
    from eventbus.broker.notifications import forget_notifier, read_notifier_status

    status = read_notifier_status(session.bus, session.client)
    if status is None:
        raise NotFound("this bus has no state of a notifier")
    if status.holder and not force:
        raise click.UsageError(
            f"{printable(status.holder)} sends notifications: stop it first, or if it was killed, add --force"
        )
    if not yes:
        ask_consent("Delete the alerts, groups and positions of the notifier? The next one starts as a first one")
    if not forget_notifier(session.bus, session.client):
        raise click.UsageError("another notifier has started meanwhile: stop all notifiers, and repeat the command")


def _refuse(group: Group) -> None:
    if group.name == STORE_GROUP:
        raise click.UsageError("sink is the store's own group: without it, no event is stored. --force deletes it")
    if group.alive:
        raise click.UsageError(
            f"{group.alive} worker{'s' * (group.alive != 1)} of {group.name} still alive, and would recreate it: "
            "stop them first, or add --force"
        )
