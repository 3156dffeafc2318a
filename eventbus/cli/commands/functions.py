"""`eventbus functions load`: the one command that a server's administrator runs for eventbus."""

from __future__ import annotations

import os

import click

from eventbus.errors import ConfigError
from eventbus.printers.output import dump_json, write
from eventbus.settings import Settings


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="The build and what was done, as JSON.")
def load_functions(output: str | None) -> None:
    """Load the functions of this build into Redis, on every server of the bus that lacks them.

    All prefixes on a server share its functions, so this administers the whole server: the user needs the role admin.
    It makes no bus, and changes nothing where the functions are loaded already.

    \b
    Examples:
      EVENTBUS_REDIS_URL=redis://eb-admin@redis-1/0 eventbus functions load
    """
    from eventbus.broker import functions
    from eventbus.broker.connection.connect import check_server, connect
    from eventbus.cli.session import find_url

    settings = Settings.from_environ(os.environ)
    if settings.url:
        raise ConfigError("EVENTBUS_URL names an API worker; functions are loaded into Redis: set EVENTBUS_REDIS_URL")
    with connect(find_url(settings), name="eventbus-functions") as client:
        check_server(client)
        loaded = functions.load(client)
    if output == "json":
        write(dump_json({"build": functions.BUILD, "loaded": loaded}) + "\n")
    else:
        write(f"build {functions.BUILD} {'loaded' if loaded else 'is there already'}\n")
