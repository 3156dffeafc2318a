"""`eventbus down`: stops the embedded server."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from eventbus.broker.embedded.server import EmbeddedServer


@click.command()
@click.option(
    "--state-dir", metavar="DIR", help="Folder of the server.  [default: EVENTBUS_STATE_DIR, or the user's own]"
)
def down(state_dir: str | None) -> None:
    """Stop the embedded server that some command started when it was missing. Its data stays.

    Programs that still use it wait until it is back; the next command starts it again. An `eventbus up` would do so
    at once: while one keeps the server running, end that one instead. Lines of a Procfile that a killed `up` has
    left running are ended first. A server named by EVENTBUS_REDIS_URL is not the embedded one, and is left alone.

    \b
    Examples:
      eventbus down
      eventbus down --state-dir ./state

    \b
    Exit codes:
      0  it is stopped, or none was running
      1  it does not stop, or an `eventbus up` keeps it running
      2  that directory is not this user's alone
    """
    from eventbus.broker.embedded.server import EmbeddedServer, default_directory
    from eventbus.broker.embedded.server_process import other_user_of
    from eventbus.errors import BusUnavailable

    server = EmbeddedServer(Path(state_dir) if state_dir else default_directory(os.environ))
    ended = _end_left_lines(server.directory)
    running = server.running()
    if (process := other_user_of(server.directory)) is not None:
        # A process of another container has the number 0 here, and `kill 0` would end the user's shell.
        place, cure = (f"process {process}", f"by Ctrl-C or kill {process}") if process else ("in a container", "there")
        raise BusUnavailable(
            f"`eventbus up` ({place}) keeps the server in {server.directory} running: end that one, {cure}"
        )
    if not running:
        click.echo(f"no embedded server is running in {server.directory}")
        return
    if ended:
        _remove_mirrors(server)
    server.stop()
    click.echo(f"stopped the embedded server in {server.directory}; its data stays there")


def _remove_mirrors(server: EmbeddedServer) -> None:
    """Delete the mirrors of the ended lines from the store. If that fails, the next `up` does it."""
    from eventbus.agent.procfile.orphaned_processes import line_folders, remove_mirrors
    from eventbus.errors import EventBusError
    from eventbus.settings import Settings
    from eventbus.store.object_store import ObjectStore

    settings = Settings.from_environ(os.environ)
    with suppress(EventBusError), ObjectStore.open(server.start(), settings=settings) as store:
        for folder in line_folders(server.directory):
            remove_mirrors(store, folder)


def _end_left_lines(directory: Path) -> list[str]:
    if not any(directory.glob("up*.lock")):
        return []  # spares the import
    from eventbus.agent.procfile.orphaned_processes import end_left_lines

    if ended := end_left_lines(directory):
        click.echo(f"ended processes of a killed `eventbus up`: {', '.join(ended)}")
    return ended
