"""`eventbus spool list | send`: lists and sends events that ended processes have left on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eventbus.cli.printers.output import dump_json, write
from eventbus.errors import BusUnavailable, ConfigError
from eventbus.settings import Settings
from eventbus.util.human_duration import UNKNOWN, human_duration
from eventbus.util.table import format_table

if TYPE_CHECKING:
    from eventbus.record.spool.journal import SpoolFolder

HEADERS = ("Name", "State", "Events", "Bytes", "Oldest", "Pid", "Bus", "Problem")

_dir = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The spool.  [default: EVENTBUS_SPOOL]",
)
_output = click.option("-o", "--output", type=click.Choice(["json"]), help="Output as JSON.")


@click.command()
@_dir
@_output
def list_spooled(folder: Path | None, output: str | None) -> None:
    """List the spool: a folder for each process with unacknowledged events.

    \b
    States:
      held        its process runs, or another process is sending it
      waiting     its process has ended: the next one, or `eventbus spool send`, sends it
      unreadable  it is corrupt, or not readable for this user; check and delete it

    \b
    Examples:
      eventbus spool list
      eventbus spool list --dir /var/lib/shop/spool -o json
    """
    from eventbus.record.spool.journal import list_spool

    folders = _read(list_spool, _root(folder))
    if output == "json":
        write(dump_json([msgspec.to_builtins(folder_state) for folder_state in folders]) + "\n")
    elif folders:
        write(format_table(HEADERS, [_row(folder_state) for folder_state in folders]))
    else:
        click.echo("The spool is empty.", err=True)


@click.command()
@_dir
@click.option(
    "--any-bus",
    is_flag=True,
    help="Also events recorded for another bus, or for this bus before it was recreated.",
)
@_output
@click.pass_context
def send_spooled(ctx: click.Context, folder: Path | None, any_bus: bool, output: str | None) -> None:
    """Send the spooled events of ended processes, and delete them from the spool. Safe to repeat.

    Events are not stored twice, because batches keep their sequence numbers. The events of running processes are
    not sent.

    \b
    Exit codes:
      0  all events were sent, or there were none
      1  some events remain: for another bus, unreadable, or not accepted by Redis

    \b
    Examples:
      eventbus spool send
      eventbus spool send --dir /var/lib/shop/spool
    """
    root = _root(folder)
    sent, left = _send(root, any_bus)
    if output == "json":
        write(dump_json({"sent": sent, "left": [msgspec.to_builtins(each) for each in left]}) + "\n")
    else:
        write(f"{sent} event{'' if sent == 1 else 's'} sent\n")
        for each in left:
            why = each.problem or "it is for another bus: --any-bus sends it to this one"
            click.echo(f"left: {each.name}, {each.events} event{'s' * (each.events != 1)}: {why}", err=True)
    ctx.exit(1 if left else 0)


def _send(root: Path, any_bus: bool) -> tuple[int, list[SpoolFolder]]:
    """Send the folders that no process holds; return the number of events sent, and the folders that remain."""
    from eventbus.broker.redis_transport import RedisTransport
    from eventbus.cli.session import open_session
    from eventbus.record.losses import Losses
    from eventbus.record.spool.adopter import Adopter
    from eventbus.record.spool.journal import State, list_spool
    from eventbus.record.spool.spool import BusName, name_before_opening
    from eventbus.util.clock import SystemClock

    if not any(each.state is State.WAITING or each.events for each in _read(list_spool, root)):
        return 0, [each for each in list_spool(root) if each.state is State.UNREADABLE]
    with open_session() as session:
        clock = SystemClock()
        name = name_before_opening(session.settings.redis_url or None, session.settings)
        losses = Losses(clock)
        adopter = Adopter(
            root=root,
            name_bus=lambda: BusName(name.address, name.prefix, session.bus.id, session.bus.partitions),
            connect=lambda: RedisTransport(session.bus),
            settings=session.settings,
            clock=clock,
            losses=losses,
            any_bus=any_bus,
        )
        try:
            sent = adopter.adopt()
        except OSError as error:
            raise BusUnavailable(f"the spool cannot be sent: {error}") from error
        finally:
            losses.close()
    found = [each for each in list_spool(root) if each.state is not State.HELD]
    # A folder without events is being removed by another process.
    return sent, [each for each in found if each.events or each.state is State.UNREADABLE]


def _root(folder: Path | None) -> Path:
    if folder is None:
        spool = Settings.from_environ(os.environ).spool
        if not spool:
            raise ConfigError("no spool is named: set EVENTBUS_SPOOL, or give --dir")
        folder = Path(spool)
    return folder.absolute()


def _read(read: Callable[[Path], Any], root: Path) -> Any:
    try:
        return read(root)
    except OSError as error:
        raise ConfigError(f"the spool {root} cannot be read: {error.strerror}") from error


def _row(each: SpoolFolder) -> tuple[str, ...]:
    age = human_duration(time.time() - each.oldest_ms / 1000) if each.oldest_ms else UNKNOWN
    bus = f"{each.bus} {each.prefix}".strip()
    return (
        each.name,
        each.state,
        str(each.events),
        str(each.bytes),
        age,
        str(each.pid or "-"),
        bus or "-",
        each.problem,
    )
