"""`eventbus options get|set`: the correlation options of the bus, shared by all its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from eventbus.cli.completion import complete_options
from eventbus.cli.input.option_values import named, parse_pairs, shown, shown_value, with_changes
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import find_url
from eventbus.errors import ConfigError
from eventbus.settings import Options, Settings
from eventbus.util.table import format_table

if TYPE_CHECKING:
    from eventbus.broker.connection.connect import Client


@click.command("get")
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Output as JSON; `options` can be used as EVENTBUS_OPTIONS."
)
def get_options(output: str | None) -> None:
    """Show the options of the bus with their defaults, and their version.

    \b
    Examples:
      eventbus options get
      EVENTBUS_OPTIONS="$(eventbus options get -o json | jq .options)" eventbus worker sink
    """
    from eventbus.broker.bus import read_values

    with _open_bus_key() as (client, prefix):
        values, version = read_values(client, prefix) or ({}, 0)
    options, defaults = named(values), shown(Options())
    if output == "json":
        write(dump_json({"version": version, "options": options}) + "\n")
    else:
        rows = [(name, shown_value(value), shown_value(defaults[name])) for name, value in options.items()]
        write(format_table(("Option", "Value", "Default"), rows))
        write(f"options version {version}\n")
    try:
        with_changes(values, {})
    except ConfigError as error:
        raise ConfigError(f"{error}; no worker can start with it: correct it with `eventbus options set`") from error


@click.command("set")
@click.argument("pairs", metavar="KEY=VALUE…", nargs=-1, required=True, shell_complete=complete_options)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Output the new options as JSON.")
def set_options(pairs: Sequence[str], output: str | None) -> None:
    """Change options for all: every worker restarts its consumers with them within about a second.

    Lists are written with commas, and an empty value empties them. A rate may be a fraction, like 1/300. Stored
    counts and events stay.

    \b
    Examples:
      eventbus options set burst=50 qps=1/60     # one token a minute
      eventbus options set exempt_namespaces=kube-system,audit spam_key=object+type+reason
      eventbus options set exempt_namespaces=
    """
    from eventbus.broker.bus import change_options

    changes = parse_pairs(pairs)
    with_changes({}, changes)  # invalid values are refused without asking Redis
    with _open_bus_key() as (client, prefix):
        options, version, changed = change_options(client, prefix, lambda current: with_changes(current, changes))
    values = shown(options)
    if output == "json":
        write(dump_json({"version": version, "changed": changed, "options": values}) + "\n")
        return
    for name in changes:
        click.echo(f"{name}={shown_value(values[name])}")
    click.echo(f"options version {version}" + ("" if changed else ": nothing to change"))


@contextmanager
def _open_bus_key() -> Iterator[tuple[Client, str]]:
    """Yield a client and the prefix of a bus; a missing bus is made, one that exists is not opened."""
    from eventbus.broker.bus import open_bus, read_values
    from eventbus.broker.connection.connect import connect

    settings = Settings.from_environ(os.environ)
    url = find_url(settings)
    client = connect(url, name="eventbus-cli")
    try:
        if read_values(client, settings.prefix) is None:
            open_bus(url, settings)
        yield client, settings.prefix
    finally:
        client.close()
