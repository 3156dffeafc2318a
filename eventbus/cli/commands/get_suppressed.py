"""`eventbus get suppressed`: counts of suppressed, aggregated, not created and evicted events, by source."""

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
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
def get_suppressed(output: str | None, no_headers: bool) -> None:
    """Show how many events were suppressed by the spam filter, aggregated, not created, or evicted.

    The counts are by component, kind of object, type and reason, the highest first. The 500 sources with the highest
    counts of each partition are named; all others are counted as <other>. Events are not created if Redis has no
    memory left, and evicted if there are more than the option max_stored.

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
        click.echo("No event was suppressed, aggregated or evicted.", err=True)
        return
    rows = [(*source.names, *(str(getattr(source, what)) for what in COUNTED.values())) for source in sources]
    headers = ("Component", "Kind", "Type", "Reason", "Suppressed", "Aggregated", "Not created", "Evicted")
    write(format_table(headers, rows, no_headers=no_headers))


def _plain(source: SourceCounts) -> dict[str, str | int]:
    from eventbus.broker.health.status import COUNTED

    named = zip(("component", "kind", "type", "reason"), source.names, strict=True)
    return dict(named) | {what: getattr(source, what) for what in COUNTED.values()}
