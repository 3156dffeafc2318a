"""`eventbus options get|set`: how the whole bus correlates, shared by all its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from eventbus.broker.options import change_options
from eventbus.cli.completion import complete_options
from eventbus.cli.option_values import parse_pairs, shown, shown_value, with_changes
from eventbus.cli.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.cli.table import format_table
from eventbus.settings import Options


@click.command("get")
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON; its `options` may be given to a worker.")
def get_options(output: str | None) -> None:
    """Show the options of the bus and their version, beside the defaults.

    \b
    Examples:
      eventbus options get
      EVENTBUS_OPTIONS="$(eventbus options get -o json | jq .options)" eventbus worker sink
    """
    with open_session() as session:
        options, version = session.bus.options, session.bus.options_version
    if output == "json":
        write(dump_json({"version": version, "options": shown(options)}) + "\n")
        return
    rows = [(name, shown_value(value), shown_value(default)) for name, value, default in _beside_defaults(options)]
    write(format_table(("Option", "Value", "Default"), rows))
    write(f"options version {version}\n")


@click.command("set")
@click.argument("pairs", metavar="KEY=VALUE…", nargs=-1, required=True, shell_complete=complete_options)
@click.option("-o", "--output", type=click.Choice(["json"]), help="The options as they are now, as JSON.")
def set_options(pairs: Sequence[str], output: str | None) -> None:
    """Change options for all: every worker restarts its consumers with them within about a second.

    Lists are written with commas, and an empty value empties them. Counts and events that are there stay.

    \b
    Examples:
      eventbus options set burst=50 qps=0.01
      eventbus options set exempt_namespaces=kube-system,audit spam_key=object+type+reason
      eventbus options set exempt_namespaces=
    """
    changes = parse_pairs(pairs)
    with_changes(Options(), changes)  # what can never be right is said without asking Redis
    with open_session() as session:
        options, version = change_options(
            session.client, session.bus.prefix, lambda current: with_changes(current, changes)
        )
        changed = version != session.bus.options_version
    values = shown(options)
    if output == "json":
        write(dump_json({"version": version, "changed": changed, "options": values}) + "\n")
        return
    for name in changes:
        click.echo(f"{name}={shown_value(values[name])}")
    click.echo(f"options version {version}" + ("" if changed else ": nothing to change"))


def _beside_defaults(options: Options) -> list[tuple[str, Any, Any]]:
    defaults = shown(Options())
    return [(name, value, defaults[name]) for name, value in shown(options).items()]
