"""`eventbus help COMMAND…`: what `eventbus COMMAND… --help` says."""

from __future__ import annotations

import click


@click.command(name="help", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[COMMAND]…", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its --help does.

    \b
    Examples:
      eventbus help
      eventbus help get events
    """
    ctx.find_root().command.main([*words, "--help"], prog_name=ctx.find_root().info_name)
