"""`eventbus explain`: the fields of a kind, as `kubectl explain` shows them."""

from __future__ import annotations

import click

from eventbus.cli.completion import complete_kinds
from eventbus.cli.input.lookup import demanded_kind
from eventbus.printers.output import write


@click.command()
@click.argument("path", metavar="KIND[.FIELD]...", shell_complete=complete_kinds)
@click.option("--recursive", is_flag=True, help="All fields below, without their descriptions.")
def explain(path: str, recursive: bool) -> None:
    """Show the fields of a kind that the store holds.

    \b
    Examples:
      eventbus explain event
      eventbus explain event.involvedObject
      eventbus explain node --recursive
    """
    from eventbus.printers.explanation import NoSuchField
    from eventbus.printers.explanation import explain as explained

    word, *fields = path.split(".")
    kind = demanded_kind(word)
    try:
        write(explained(kind, fields, recursive=recursive))
    except NoSuchField as problem:
        raise click.UsageError(str(problem)) from None
