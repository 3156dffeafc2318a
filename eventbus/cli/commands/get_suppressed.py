"""`eventbus get suppressed`: counts of events held back, folded, refused for memory or evicted, by source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.util.table import format_table

if TYPE_CHECKING:
    from eventbus.broker.health.status import SourceCounts


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of the table.")
@click.option("--no-headers", is_flag=True, help="A table without its first line.")
def get_suppressed(output: str | None, no_headers: bool) -> None:
    """Show how many events were held back as spam, aggregated, not created because memory was full, or evicted.

    By component, kind of object, type and reason, the most first. Of each, 500 sources a partition have a name, the
    most always among them; the rest is counted as <other>.

    \b
    Examples:
      eventbus get suppressed
      eventbus get suppressed -o json
    """
    from eventbus.broker.health.status import COUNTED

    with open_session() as session:
        sources = session.read_sources()
    if output == "json":
        write(dump_json([_plain(source) for source in sources]) + "\n")
        return
    if not sources:
        click.echo("Nothing was held back, folded or evicted.", err=True)
        return
    rows = [(*source.names, *(str(getattr(source, what)) for what in COUNTED.values())) for source in sources]
    headers = ("Component", "Kind", "Type", "Reason", "Suppressed", "Aggregated", "Not created", "Evicted")
    write(format_table(headers, rows, no_headers=no_headers))


def _plain(source: SourceCounts) -> dict[str, str | int]:
    from eventbus.broker.health.status import COUNTED

    named = zip(("component", "kind", "type", "reason"), source.names, strict=True)
    return dict(named) | {what: getattr(source, what) for what in COUNTED.values()}
