"""`eventbus format get | upgrade`: the format that all processes of a bus must be able to read."""

from __future__ import annotations

import click

from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.model.formats import CODECS, FORMATS
from eventbus.util.table import format_table


def _text(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


@click.command("get")
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of a table.")
def get_format(output: str | None) -> None:
    """Show the format and codecs of the bus, and those that this build supports.

    \b
    Examples:
      eventbus format get
    """
    with open_session() as session:
        bus = session.bus
    if output == "json":
        ours = {"formats": FORMATS, "codecs": CODECS}
        write(dump_json({"format": bus.format, "codecs": bus.codecs, "thisProgram": ours}) + "\n")
        return
    rows = [("format", str(bus.format), _text(FORMATS)), ("codecs", _text(bus.codecs), _text(CODECS))]
    write(format_table(("Name", "Bus", "This program"), rows))


@click.command("upgrade")
@click.option("--force", is_flag=True, help="Upgrade even if running processes do not support the new format.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Output the new format and codecs as JSON.")
def upgrade_format(force: bool, output: str | None) -> None:
    """Upgrade the bus to the newest format of this build, and enable all its codecs.

    Older versions can no longer use the bus, so run this only after an upgrade that you do not want to undo. It is
    rejected if a process has announced in the last ten minutes that it does not support them. No other command
    changes the format. The user needs the role deploy.

    \b
    Examples:
      eventbus format upgrade
    """
    from eventbus.broker.bus import upgrade_format as upgrade

    with open_session() as session:
        former = (session.bus.format, session.bus.codecs)
        upgraded = upgrade(session.client, session.bus, force=force)
    if output == "json":
        write(dump_json({"format": upgraded[0], "codecs": upgraded[1], "changed": upgraded != former}) + "\n")
        return
    changed = "" if upgraded != former else ": nothing to change"
    write(f"format {upgraded[0]}, codecs {_text(upgraded[1])}{changed}\n")
