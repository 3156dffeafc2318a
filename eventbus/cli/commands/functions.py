"""`eventbus functions load | list | prune`: the functions of all builds on a server, for its administrator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eventbus.cli.printers.output import dump_json, write
from eventbus.errors import ConfigError, EventBusError
from eventbus.settings import Settings
from eventbus.util.human_duration import human_duration
from eventbus.util.table import format_table

if TYPE_CHECKING:
    from eventbus.broker.connection.connect import Client
    from eventbus.broker.function_library import Library

HEADERS = ("Build", "Library", "Functions", "Servers", "Last used")


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the build and the result as JSON.")
def load_functions(output: str | None) -> None:
    """Load the functions of this build into Redis, on every server of the bus that lacks them.

    The functions of other builds stay, and their processes continue to use them. No bus is created. All prefixes on a
    server share its functions, so this administers the whole server: the user needs the role admin. Workers and
    recorders load the functions themselves if their user has the right.

    \b
    Examples:
      EVENTBUS_REDIS_URL=redis://eb-admin@redis-1/0 eventbus functions load
    """
    from eventbus.broker import function_library
    from eventbus.broker.build import build

    with _connected() as client:
        loaded = function_library.load(client)
    if output == "json":
        write(dump_json({"build": build(), "loaded": loaded}) + "\n")
    else:
        write(f"build {build()} {'loaded' if loaded else 'is there already'}\n")


@click.command("list")
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of a table.")
def list_functions(output: str | None) -> None:
    """Show which builds have functions on the server, and which processes used them last, on any bus there.

    An asterisk marks the build of this program. Workers and recorders announce their build every half a minute while
    they work. The user needs the role admin.

    \b
    Examples:
      eventbus functions list
      eventbus functions list -o json
    """
    from eventbus.broker.function_library import read_libraries

    with _connected() as client:
        libraries = read_libraries(client)
    if output == "json":
        write(dump_json([_plain(each) for each in libraries]) + "\n")
    elif libraries:
        write(format_table(HEADERS, [_row(each) for each in libraries]))
    else:
        click.echo("No functions found.", err=True)


@click.command("prune")
@click.option("--force", is_flag=True, help="Also delete functions that are in use.")
@click.option("--dry-run", is_flag=True, help="Only print the functions that would be deleted.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the result as JSON.")
def prune_functions(force: bool, dry_run: bool, output: str | None) -> None:
    """Delete the functions of other builds that no process has used in the last ten minutes.

    This is the last step of an upgrade. A program that records rarely may still need its functions. It then keeps its
    events in memory or in its spool, and logs this, until the functions are loaded again. The user needs the role
    admin.

    \b
    Exit codes:
      0  only functions of this build are left
      1  some were kept: the message names their processes

    \b
    Examples:
      eventbus functions prune --dry-run
      eventbus functions prune
    """
    from eventbus.broker.function_library import delete_library, describe, read_libraries

    deleted: list[Library] = []
    kept: dict[str, str] = {}
    with _connected() as client:
        for each in read_libraries(client):
            if each.is_ours:
                continue
            if force or not each.in_use:
                if not dry_run:
                    delete_library(client, each.name)
                deleted.append(each)
            else:
                users = "; ".join(describe(user) for user in each.announced if user.in_use)
                kept[each.name] = f"build {each.build} is in use ({users})"
    if output == "json":
        said = {"wouldDelete" if dry_run else "deleted": [each.name for each in deleted], "kept": kept}
        write(dump_json(said) + "\n")
    else:
        write("".join(f"library/{each.name} {'would be deleted' if dry_run else 'deleted'}\n" for each in deleted))
        if not deleted and not kept:
            click.echo("No functions of other builds found.", err=True)
    if kept:
        cure = "stop these processes and run this again ten minutes later, or use --force"
        raise EventBusError(f"{'; '.join(kept.values())}: {cure}", cure=cure)


@contextmanager
def _connected() -> Iterator[Client]:
    from eventbus.broker.connection.connect import check_server, connect
    from eventbus.cli.session import find_url

    settings = Settings.from_environ(os.environ)
    if settings.url:
        raise ConfigError("EVENTBUS_URL names an API worker; functions are loaded into Redis: set EVENTBUS_REDIS_URL")
    with connect(find_url(settings), name="eventbus-functions") as client:
        check_server(client)
        yield client


def _row(library: Library) -> tuple[str, ...]:
    used = "<none>"
    if library.announced:
        last = library.announced[0]
        program = last.role
        used = f"{human_duration(last.age_s)} ago, {program} {last.name} (bus {last.prefix})"
    return f"{library.build}{' *' * library.is_ours}", library.name, str(library.functions), str(library.servers), used


def _plain(library: Library) -> dict[str, Any]:
    return {
        "library": library.name,
        "build": library.build,
        "functions": library.functions,
        "servers": library.servers,
        "thisProgram": library.is_ours,
        "inUse": library.in_use,
        "announced": msgspec.to_builtins(library.announced),
    }
