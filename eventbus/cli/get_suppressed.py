"""`eventbus get suppressed`: what was held back, folded, refused for memory or evicted; nothing goes silently."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import click

from eventbus.broker.bus import Bus
from eventbus.broker.connection import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.cli.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.cli.table import format_table

#: First part of a counter's name → what it counts, as in record.lua and expire.lua.
COUNTED = {"S": "suppressed", "A": "aggregated", "M": "not_created", "E": "evicted"}

#: component, kind of the object, type, reason.
Source = tuple[str, ...]


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of the table.")
@click.option("--no-headers", is_flag=True, help="A table without its first line.")
def get_suppressed(output: str | None, no_headers: bool) -> None:
    """Show how many events were held back as spam, folded into aggregates, not created for want of memory, evicted.

    \b
    By component, kind of object, type and reason, the most first, since the bus exists. A thousand
    sources have names; what is beyond is counted as <other>.
    Examples:
      eventbus get suppressed
      eventbus get suppressed -o json
    """
    with open_session() as session:
        counts = read_counts(session.bus, session.client)
    ordered = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    if output == "json":
        write(dump_json([_plain(source, found) for source, found in ordered]) + "\n")
        return
    if not ordered:
        click.echo("Nothing was held back, folded or evicted.", err=True)
        return
    rows = [(*_shown(source), *(str(found.get(what, 0)) for what in COUNTED.values())) for source, found in ordered]
    headers = ("Component", "Kind", "Type", "Reason", "Suppressed", "Aggregated", "Not created", "Evicted")
    write(format_table(headers, rows, no_headers=no_headers))


def read_counts(bus: Bus, client: Client) -> dict[Source, dict[str, int]]:
    """By source, what was counted (the values of `COUNTED`); all partitions together.

    Redis: HGETALL on each partition's suppressed.
    """
    counts: dict[Source, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for keys in bus.keys:
        with redis_errors():
            found: Any = client.hgetall(keys.suppressed)
        for field, n in found.items():
            what, *source = field.decode("utf-8", "replace").split("\0")
            counts[tuple(source)][COUNTED.get(what, what)] += int(n)
    return counts


def _shown(source: Source) -> Source:
    """Four cells; the counter of all that has no name of its own is told by its empty ones."""
    component, kind, event_type, reason, *_ = (*source, "", "", "", "")
    if component == "other" and not (kind or event_type or reason):
        return "<other>", "", "", ""
    return component, kind, event_type, reason


def _plain(source: Source, counts: dict[str, int]) -> dict[str, str | int]:
    named = zip(("component", "kind", "type", "reason"), _shown(source), strict=True)
    return dict(named) | {what: counts.get(what, 0) for what in COUNTED.values()}
